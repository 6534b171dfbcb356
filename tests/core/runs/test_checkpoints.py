"""Checkpoints as a function of messages and steps; over HTTP they are those of the handlers."""

from __future__ import annotations

from typing import Any, Final

from legation.runs.checkpoints import list_checkpoints, take_snapshot
from legation.runs.forking import read_trail

from .test_forking import STEPS, due, ended, model, row

SAID: Final = [
    {"id": "r.1", "role": "user", "content": "go " * 100, "created_at": 1},
    {
        "id": "r.2",
        "role": "assistant",
        "content": "I look\nfor it",
        "created_at": 1,
        "tool_calls": [{"id": "a", "function": {"name": "tool"}}],
    },
    {"id": "r.3", "role": "tool", "content": "found", "created_at": 2},
    {"id": "r.4", "role": "assistant", "content": "done", "created_at": 3},
]
TOOLS: Final = [{"tool_call_id": "a", "tool_call_error": False, "result": "found"}]
OUTPUT: Final[dict[str, Any]] = {
    "messages": SAID,
    "tools": TOOLS,
    "content": "done",
    "status": "COMPLETED",
    "session_state": {"a": 1},
}
TRAIL: Final = read_trail(row(output=OUTPUT), (STEPS[0], model("1", due("a")), ended("1.1")))


def test_there_is_one_before_each_answer_and_one_at_the_end() -> None:
    entries = list_checkpoints(TRAIL, forkable=True)

    assert [(one["message_index"], one["place"], one["is_latest"]) for one in entries] == [
        (1, "1", False),
        (3, "2", False),
        (4, None, True),
    ]
    assert entries[1]["calls"] == [{"place": "1.1", "tool_call_id": "a", "tool_name": "tool"}]
    assert len(entries[0]["message_preview"]) == 122


def test_what_cannot_be_forked_has_no_places() -> None:
    entries = list_checkpoints(TRAIL, forkable=False)

    assert {one["place"] for one in entries} == {None}
    assert entries[1]["calls"][0]["place"] is None


def test_a_run_without_an_output_is_made_of_its_steps() -> None:
    trail = read_trail(row("RUNNING"), STEPS)
    entries = list_checkpoints(trail, forkable=True)

    assert [(one["message_index"], one["place"]) for one in entries] == [
        (1, "1"),
        (4, "2"),
        (7, "3"),
    ]


def test_a_snapshot_ends_where_no_call_waits_for_its_result() -> None:
    entries = list_checkpoints(TRAIL, forkable=True)
    looks = [take_snapshot(TRAIL, index, entries) for index in range(6)]

    assert looks[5] is None
    kept = [None if look is None else look["snapshot"]["messages"] for look in looks[:5]]
    assert kept == [[], SAID[:1], SAID[:1], SAID[:3], SAID]
    assert looks[3] is not None
    assert (looks[3]["snapshot"]["content"], looks[3]["checkpoint"]["place"]) == (
        "I look\nfor it",
        "2",
    )
    assert looks[4] is not None
    assert looks[4]["snapshot"]["session_state"] == {"a": 1}
    assert looks[0] is not None
    assert (looks[0]["snapshot"]["content"], looks[0]["checkpoint"]["message_id"]) == ("", None)
    assert "session_state" not in looks[0]["snapshot"]
