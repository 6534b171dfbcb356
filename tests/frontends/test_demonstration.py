"""The hotel: its wishes, its guests, and messages that nobody foresaw."""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Any, Final

import pytest

from legation_cli.hotel import CHANNEL_SECRET, make_hotel
from legation_host.loading import load_platform
from legation_testing import Client, crash_everywhere
from legation_testing.clock import NEW_YEAR_2026

from ..transcripts import ROOT

BOOK: Final = "Book a double room for two nights for Ada"
LEASE_SECONDS: Final = 30


def open_hotel() -> Client:
    return Client(lambda: make_hotel("sqlite://"))


@pytest.fixture
def hotel() -> Generator[Client]:
    with open_hotel() as client:
        yield client


def say(hotel: Client, message: str, session: str = "first", agent: str = "desk") -> str:
    content = hotel.run(agent, message, session_id=session)["content"]
    assert isinstance(content, str)
    return content


def book(hotel: Client, message: str = BOOK, session: str = "first") -> str:
    """Book, approve, and return what the desk says then."""
    run = hotel.run("desk", message, session_id=session)
    assert run["status"] == "PAUSED"
    return str(hotel.go_on(run, confirmed=True)["content"])


# --- Wishes --------------------------------------------------------------------------------------


def test_free_rooms_are_those_of_the_next_night(hotel: Client) -> None:
    assert say(hotel, "Which rooms are free tomorrow?") == (
        "Free on 2 January: single (80 euros), double (120 euros), suite (240 euros)."
    )


def test_a_booking_waits_for_a_person_and_then_has_a_number(hotel: Client) -> None:
    said = book(hotel)

    number = re.fullmatch(
        r"Booked: a double room for Ada, 2 nights, 240 euros. The number is (H-[0-9]{5}).", said
    )
    assert number
    assert say(hotel, "What did I book?") == (
        f"{number[1]} is a double room for Ada, 2 nights, 240 euros."
    )
    assert hotel.get("/sessions/first").json()["session_state"] == {
        "guest": "Ada",
        "bookings": {number[1]: {"room": "double", "nights": 2, "guest": "Ada", "euros": 240}},
    }


def test_what_a_person_refuses_is_not_booked(hotel: Client) -> None:
    run = hotel.run("desk", BOOK, session_id="first")
    said = hotel.go_on(run, confirmed=False, confirmation_note="Ada called")["content"]

    assert "rejected" in said
    assert "Ada called" in said
    assert say(hotel, "What did I book?") == "You have not booked anything yet."


def test_the_desk_remembers_the_guest_of_the_session(hotel: Client) -> None:
    book(hotel)

    assert "for Ada, 1 night, 80 euros" in book(hotel, "Please book a single room")


def test_a_booking_without_a_name_is_explained(hotel: Client) -> None:
    assert "needs a name" in book(hotel, "Book a single room")


def test_a_guest_does_not_see_what_another_one_booked(hotel: Client) -> None:
    book(hotel, "Book the suite for Ada")

    assert "suite" not in say(hotel, "Which rooms are free?")
    assert book(hotel, "Book the suite for Ada") == "No suite room is free."
    assert "suite (240 euros)" in say(hotel, "Which rooms are free?", "second")
    assert say(hotel, "What did I book?", "second") == "You have not booked anything yet."


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        (BOOK, ("double", 2, "Ada")),
        ("book a suite for 3 nights for eve", ("suite", 3, "eve")),
        ("Book a double room for Ada for a night", ("double", 1, "Ada")),
        ("Could you book me a room for tomorrow for Grace?", ("single", 1, "Grace")),
        ("Book a single for 99 nights for Ada", ("single", 99, "Ada")),
    ],
)
def test_a_booking_is_read_from_the_words_of_a_message(
    hotel: Client, message: str, arguments: tuple[Any, ...]
) -> None:
    (call,) = hotel.run("desk", message)["tools"]

    assert tuple(call["tool_args"].values()) == arguments


def test_nobody_stays_for_longer_than_two_weeks(hotel: Client) -> None:
    said = book(hotel, "Book a single for 99 nights for Ada")

    assert said == "A room can be booked for 1 to 14 nights."


def test_breakfast_is_the_same_on_each_day_and_dinner_is_not() -> None:
    meals: list[tuple[str, str]] = []
    for day in range(7):
        start_us = NEW_YEAR_2026 + day * 86_400_000_000
        with Client(make_hotel("sqlite://"), start_us=start_us) as hotel:
            meals.append(
                (
                    say(hotel, "What is for breakfast?", agent="kitchen"),
                    say(hotel, "What is for dinner?", agent="kitchen"),
                )
            )
    breakfasts, dinners = map(set, zip(*meals, strict=True))

    assert breakfasts == {"Today the kitchen serves coffee or tea, rolls, an egg and porridge."}
    assert len(dinners) == len(meals)


def test_the_team_asks_both_side_by_side(hotel: Client) -> None:
    run = hotel.run_team("evening", "Plan my evening")

    assert run["content"].startswith("Free on 1 January: single")
    assert "Today the kitchen serves" in run["content"]
    assert [member["agent_id"] for member in run["member_responses"]] == ["desk", "kitchen"]


def test_a_booking_that_a_team_was_asked_for_waits_as_well(hotel: Client) -> None:
    run = hotel.run_team("evening", BOOK, session_id="first")

    assert run["status"] == "PAUSED"
    assert "The number is H-" in hotel.go_on(run, confirmed=True)["content"]


def test_breaking_something_leaves_an_incident() -> None:
    with Client(make_hotel("sqlite://"), raise_errors=False) as hotel:
        run = hotel.run("desk", "Break something")
        hotel.advance(60)

        assert run["status"] == "ERROR"
        (incident,) = hotel.get("/incidents").json()["data"]
        assert incident["run_id"] == run["run_id"]
        assert incident["incident"] in run["content"]


# --- Messages that nobody foresaw ----------------------------------------------------------------


@pytest.mark.parametrize(
    "message",
    [
        "Hello",
        "Haben Sie morgen ein Zimmer frei?",
        "明日の部屋は空いていますか",
        "\u202ebook\u202c",
        "'; drop table runs; --",
        "book " * 60,
        f"{BOOK}. " * 1000,
        "for " * 100_000,
        "<script>alert(1)</script>",
    ],
    ids=lambda text: text[:12],
)
@pytest.mark.parametrize("agent", ["desk", "kitchen"])
def test_a_message_that_is_not_understood_is_answered_with_what_is(
    hotel: Client, message: str, agent: str
) -> None:
    assert say(hotel, message, agent=agent).startswith("I understand: “Wh")


def test_words_come_one_by_one() -> None:
    with Client(make_hotel("sqlite://", pause_seconds=0.1)) as hotel:
        pieces = [
            event.json()["content"]
            for event in hotel.stream("desk", "What did I book?")
            if event.name == "RunContent"
        ]

    assert pieces == ["You ", "have ", "not ", "booked ", "anything ", "yet."]


# --- Crashes -------------------------------------------------------------------------------------


def test_a_booking_that_a_crash_interrupted_counts_once() -> None:
    def check(hotel: Client) -> None:
        hotel.advance(2 * LEASE_SECONDS)
        path = "/agents/desk/runs"
        runs = hotel.get(path, query={"session_id": "first"}).json()
        for run in runs:
            if run["status"] == "PAUSED":
                assert hotel.go_on(run, confirmed=True)["status"] == "COMPLETED"
        assert [run["status"] for run in runs] in ([], ["PAUSED"], ["COMPLETED"])
        assert say(hotel, "What did I book?").count("H-") == len(runs)

    tried = crash_everywhere(open_hotel, book, check)

    assert tried.points > 40


def test_the_example_describes_what_the_demonstration_hosts() -> None:
    environ = {"OPENAI_API_KEY": "none", "HELP_SECRET": CHANNEL_SECRET}
    shown = make_hotel("sqlite://").registry
    described = load_platform(str(ROOT / "examples/hotel.toml"), environ).registry

    for name in ("agents", "teams"):
        for id_, component in getattr(shown, name).items():
            other = getattr(described, name)[id_]
            assert (component.name, component.description, component.mode) == (
                other.name,
                other.description,
                other.mode,
            )
            assert [tool.name for tool in component.tools] == [tool.name for tool in other.tools]
    assert described.channels.keys() == shown.channels.keys()
