"""Questions with buttons: the data of a button, and the replies that a press is owed."""

from __future__ import annotations

import pytest

from legation.channels.deliveries import IncomingMessage, Press
from legation.channels.presses import buttons, is_approval, owe, read_press
from legation.channels.replies import Reply

RUN = "0198c5f2-7d3a-7b11-9a53-1c5d2f6a8e90"


def test_buttons_say_yes_and_no_and_fit_the_shortest_place_for_data() -> None:
    yes, no = buttons(f"{RUN}.{10**17}")

    assert (yes.label, yes.approves, no.label, no.approves) == ("Approve", True, "Reject", False)
    assert max(len(yes.data), len(no.data)) <= 64


@pytest.mark.parametrize("approves", [True, False])
def test_the_data_of_a_button_is_read_as_it_was_written(approves: bool) -> None:
    button = buttons(f"{RUN}.12")[0 if approves else 1]

    read = read_press(button.data, token="t", prompt="7", shown="May I?")

    assert read == Press(f"{RUN}.12", approves, token="t", prompt="7", shown="May I?")


@pytest.mark.parametrize(
    "data",
    [
        "",
        "approve",
        "approve:",
        "approve:none",
        "approve:none.",
        "approve:none.01",
        "approve:.1",
        "approve:a b.1",
        "approve:\u00e4.1",
        "approve:a.1\n",
        "APPROVE:a.1",
        "approved:a.1",
        "answer:yes",
        "approve:" + "a" * 10_000 + ".1",
        "approve:a." + "1" * 10_000,
        "approve:a.\u0661",
        "\ud800",
    ],
)
def test_other_data_is_no_press(data: str) -> None:
    assert read_press(data) is None


@pytest.mark.parametrize(("text", "expected"), [("a.0", True), ("a.b.3", True), ("a", False)])
def test_an_approval_is_a_run_and_a_number(text: str, expected: bool) -> None:
    assert is_approval(text) is expected


def test_what_a_press_is_owed_goes_where_it_came_from_as_plain_text() -> None:
    press = Press("a.1", approves=True, token="t", prompt="7")
    message = IncomingMessage("m", "ada", conversation="c", thread="5", press=press)

    assert owe(message, "close", "*done*", 9) == Reply(
        "close-m",
        "c",
        "*done*",
        thread="5",
        created_us=9,
        spans=(),
        message_id="m",
        purpose="close",
        token="t",
        prompt="7",
    )


def test_a_message_without_a_press_is_owed_nothing_that_names_one() -> None:
    owed = owe(IncomingMessage("m", "ada"), "acknowledge", "", 9)

    assert (owed.token, owed.prompt) == ("", "")
