"""A mistake in a test is named by a sentence that says what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

from legation import Agent, Platform
from legation.effects import Asks, Now, Program
from legation_testing import (
    Client,
    Misuse,
    Simulation,
    close_at_every_effect,
    effects_of,
    play,
)


def moment() -> Program[int]:
    """Ask the clock."""
    return (yield from Now())


async def later() -> int:
    """Return too late."""
    return 1


def agent() -> Platform:
    """Return a platform with one agent."""
    return Platform(agents=[Agent(id="a")])


def close_one(program: Any) -> Any:
    """Close what `program` is, when it is made."""
    return close_at_every_effect(lambda: program, [])


TAKERS: dict[str, Callable[[Any], Any]] = {
    "play": lambda program: play(program, [(Now(), 1)]),
    "effects_of": lambda program: effects_of(program, lambda _: 1),
    "close_at_every_effect": close_one,
    "Simulation.start": lambda program: Simulation().run(program),
}


@pytest.mark.parametrize("taker", TAKERS)
def test_what_is_no_program_is_named(taker: str) -> None:
    take = TAKERS[taker]
    coroutine = later()
    cases: list[tuple[Any, str]] = [
        (moment, rf"{taker} takes a program; moment is what makes one: call it, {taker}\(moment\("),
        (agent, r"agent is what makes one"),
        (coroutine, "without `async`"),
        (Now(), r"Now is an effect, and a program yields it: iter\(Now\(…\)\)"),
        (None, "None is none"),
        ("x" * 1000, "'xxx.* is none"),
    ]
    for value, sentence in cases:
        with pytest.raises(Misuse, match=sentence):
            take(value)
    coroutine.close()


@pytest.mark.parametrize("value", [None, 3, moment], ids=["none", "number", "program"])
def test_what_makes_no_program_is_named(value: Any) -> None:
    given: Any = value() if callable(value) else value

    with pytest.raises(Misuse, match="takes a function that makes a program"):
        close_at_every_effect(given, [(Now(), 1)])


@frozen
class SendMail(Asks[None]):
    """An effect that no host knows."""


@pytest.mark.parametrize("effect", [3, None, SendMail(), Now], ids=repr)
def test_what_is_no_effect_is_named(effect: Any) -> None:
    def program() -> Program[None]:
        yield effect

    for take in (
        lambda: play(program(), [(effect, None)]),
        lambda: effects_of(program(), lambda _: None),
        lambda: close_at_every_effect(program, [(effect, None)]),
    ):
        with pytest.raises(
            Misuse, match=r"yields .*, which is not an effect of legation.effects: "
        ):
            take()


# --- clients -------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["agents.toml", 3, object(), list], ids=["text", "3", "o", "l"])
def test_what_cannot_answer_is_no_platform(given: Any) -> None:
    with pytest.raises(Misuse, match=r"Client takes a Platform, .* has no answer\(\)"):
        Client(given)


def test_client_says_that_it_is_not_open() -> None:
    client = Client(agent)

    for send in (lambda: client.get("/ready"), lambda: client.run("a", "hello")):
        with pytest.raises(Misuse, match="not open: write `with Client"):
            send()
    with client:
        assert client.get("/ready").status == 200
        peer = client.peer()
        with pytest.raises(Misuse, match="not open"):
            peer.get("/ready")


def test_client_says_that_it_is_closed() -> None:
    with Client(agent) as client:
        assert client.get("/ready").status == 200

    with pytest.raises(Misuse, match="is closed"):
        client.get("/ready")
    with pytest.raises(Misuse, match="make another one"):
        client.open()


def test_client_says_that_its_process_was_killed() -> None:
    with Client(agent) as client:
        client.crash()
        with pytest.raises(Misuse, match=r"was killed: restart\(\)"):
            client.get("/ready")
        client.restart()

        assert client.get("/ready").status == 200


def test_nothing_is_written_where_one_happens_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Client(agent) as client:
        client.run("a", "hello", session_id="first")
        client.restart()
        assert client.get("/sessions/first").status == 200
        with client.peer() as peer:
            assert peer.get("/sessions/first").status == 200
    with Simulation() as simulation:
        simulation.run(moment())

    assert list(tmp_path.iterdir()) == []
