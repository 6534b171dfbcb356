"""A foreign run as a run of ours: its row, its output, and what it was asked."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any, Final

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from legation.agentos.report import LeftOut, Reason
from legation.agentos.runs import ForeignRun, RunReader, render_run

READER: Final = RunReader("s", "agent", "clerk", "ada", 9_000_000, final=False)
FINAL: Final = evolve(READER, final=True)
PIXEL: Final = b64encode(b"\x89PNG").decode()


def stored(**more: Any) -> dict[str, Any]:
    return {"run_id": "r", "agent_id": "clerk", "status": "COMPLETED", "content": "Hi", **more}


def read(reader: RunReader = READER, **more: Any) -> ForeignRun:
    found = reader.read(stored(**more))
    assert isinstance(found, ForeignRun)
    return found


def test_a_run_with_all_that_it_may_have() -> None:
    run = read(
        agent_name="Clerk",
        created_at=5,
        model="gpt",
        model_provider="OpenAI",
        reasoning_content="Hm",
        metrics={"input_tokens": 4, "output_tokens": 2, "cost": 0.5, "duration": 1.5},
        messages=[{"role": "user", "content": "Hello"}, {"role": "system", "content": "Be brief"}],
        tools=[{"tool_name": "f"}],
        metadata={"from": "test"},
        input={"input_content": "Hello", "images": [{"content": PIXEL}]},
        session_state={"items": [1]},
        references=[{"query": "q"}, 3],
        citations={"raw": 1},
        images=[{"id": "made", "content": PIXEL}],
        response_audio={"content": PIXEL},
        events=[{"event": "RunStarted"}],
        additional_input=[],
    )
    row = run.row
    told = render_run(run, ())

    assert (row.status, row.created_us, row.ended_us) == ("COMPLETED", 5_000_000, 6_500_000)
    assert (row.reason, row.model, row.state) == (None, "gpt", '{"items":[1]}')
    assert json.loads(row.usage or "") == {
        "input_tokens": 4, "output_tokens": 2, "total_tokens": 6, "reasoning_tokens": 0,
        "cache_read_tokens": 0, "cache_write_tokens": 0, "cost_nano": 500_000_000,
    }  # fmt: skip
    assert json.loads(row.input) == {
        "message": "Hello",
        "stream": False,
        "metadata": {"from": "test"},
        "images": [{"size": 4, "content": PIXEL}],
    }
    assert list(told)[:6] == [
        "run_id", "agent_id", "agent_name", "session_id", "user_id", "content",
    ]  # fmt: skip
    assert list(told)[-1] == "session_state"
    assert told["input"] == {"input_content": "Hello", "images": [{"size": 4}]}
    assert told["metadata"] == {"from": "test"}
    assert told["references"] == [{"query": "q"}]
    assert told["images"] == [{"id": "made", "size": 4, "content": PIXEL}]
    assert told["response_audio"] == {"size": 4, "content": PIXEL}
    assert told["citations"] == {"raw": 1}
    assert told["tools"][0]["tool_name"] == "f"
    assert (run.messages, run.files) == (1, 3)
    assert [(one.reason, one.detail) for one in run.left_out] == [
        (Reason.SYSTEM_MESSAGE, ""),
        (Reason.OTHER, "events"),
    ]


def test_a_run_with_next_to_nothing() -> None:
    run = READER.read({"run_id": "r"})
    assert isinstance(run, ForeignRun)

    assert run.row.created_us == run.row.ended_us == 9_000_000
    assert (run.row.usage, run.row.state, run.row.model) == (None, "{}", None)
    assert json.loads(run.row.input) == {"message": "", "stream": False}
    assert render_run(run, ()) == {
        "run_id": "r",
        "agent_id": "clerk",
        "agent_name": "clerk",
        "session_id": "s",
        "user_id": "ada",
        "content": "",
        "content_type": "str",
        "created_at": 9,
        "status": "COMPLETED",
        "metrics": {},
        "input": {"input_content": ""},
        "session_state": {},
    }


def test_the_run_of_a_team_has_those_of_its_members_and_a_member_no_state() -> None:
    team = READER.read({"run_id": "t", "team_id": "desk", "content": {"a": 1}})
    member = read(parent_run_id="t", session_state={"a": 1})
    assert isinstance(team, ForeignRun)

    assert (member.row.parent_run_id, member.row.state) == ("t", "")
    whole = render_run(team, [render_run(member, ())])
    assert whole["member_responses"][0]["parent_run_id"] == "t"
    assert "session_state" not in whole["member_responses"][0]
    assert whole["content_type"] == "dict"


@pytest.mark.parametrize(
    ("content", "named", "kind"),
    [("a", "Booking", "str"), ({}, "Booking", "Booking"), ([1], None, "dict"), (1, "str", "dict")],
)
def test_the_type_of_a_content(content: Any, named: Any, kind: str) -> None:
    assert read(content=content, content_type=named).shown["content_type"] == kind


@pytest.mark.parametrize(
    ("status", "end", "error_type", "content"),
    [
        ("completed", "COMPLETED", None, "Hi"),
        ("", "COMPLETED", None, "Hi"),
        ("CANCELED", "CANCELLED", None, "Hi"),
        ("REGENERATED", "CANCELLED", None, "Hi"),
        ("ERROR", "ERROR", "imported", "Hi"),
        ("PENDING", "ERROR", "interrupted", "Hi"),
        ("RUNNING", "ERROR", "interrupted", "Hi"),
        ("PAUSED", "CANCELLED", None, "Hi"),
    ],
)
def test_states(status: str, end: str, error_type: str | None, content: str) -> None:
    run = read(FINAL, status=status)

    assert (run.row.status, run.row.reason) == (end, error_type)
    assert (run.shown["content"], run.shown.get("error_type")) == (content, error_type)


def test_a_run_that_was_broken_off_says_so() -> None:
    assert "was interrupted" in read(FINAL, status="RUNNING", content=None).shown["content"]


@pytest.mark.parametrize(
    ("run", "reason", "named"),
    [
        (3, Reason.RUN_UNREADABLE, ("", "no object")),
        (stored(status="DREAMING"), Reason.RUN_UNREADABLE, ("r", "DREAMING")),
        (stored(status="RUNNING"), Reason.RUN_UNFINISHED, ("r", "RUNNING")),
        (stored(status="PAUSED"), Reason.RUN_UNFINISHED, ("r", "PAUSED")),
        ({"run_id": "r", "workflow_id": "w"}, Reason.RUN_UNREADABLE, ("r", "a run of a workflow")),
        (stored(run_id="a;b"), Reason.RUN_ID, ("a;b", "")),
        (stored(run_id=None), Reason.RUN_ID, ("", "")),
        (stored(agent_id="a\\b"), Reason.RUN_ID, ("r", "")),
        (stored(content="x" * (16 << 20)), Reason.RUN_TOO_LARGE, ("r", "")),
    ],
)
def test_what_is_left_out(run: Any, reason: Reason, named: tuple[str, str]) -> None:
    assert READER.read(run) == LeftOut(reason, "s", *named)


def test_a_run_that_is_nested_too_deep_is_left_out() -> None:
    deep: Any = "bottom"
    for _ in range(70):
        deep = [deep]
    found = READER.read(stored(content=deep))

    assert isinstance(found, LeftOut)
    assert found.detail == "nested deeper than 64 levels"


def test_a_state_that_is_too_long_is_left_out() -> None:
    run = read(session_state={"a": "x" * (1 << 20)})

    assert run.row.state == "{}"
    assert [one.reason for one in run.left_out] == [Reason.STATE]


def test_the_message_is_that_of_the_user_where_no_input_is_kept() -> None:
    run = read(messages=[{"role": "user", "content": "a"}, {"role": "user", "content": "b"}, 3])

    assert run.shown["input"]["input_content"] == "b"


VALUES: Final = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 1 << 70) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                "role content id tool_calls function name arguments url metrics duration".split()
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)
NAMES: Final = """run_id agent_id team_id status input content messages metrics tools images
    created_at metadata session_state parent_run_id citations response_audio model""".split()


@settings(max_examples=25)
@given(run=st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=8))
def test_any_run_is_read_or_left_out(run: dict[str, Any]) -> None:
    found = READER.read({"run_id": "r", **run})

    assert isinstance(found, ForeignRun | LeftOut)
    if isinstance(found, ForeignRun):
        json.dumps(render_run(found, ()))
        assert found.row.ended_us >= found.row.created_us > 0
