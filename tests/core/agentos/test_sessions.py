"""A foreign session as a session of ours: its owner, its runs in order, its values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import pytest
from attrs import evolve

from legation.agentos.report import LeftOut, Reason
from legation.agentos.sessions import ForeignSession, Options, SessionPlan, read_session
from legation.store.imports import ImportedSession

ROW: Final = ForeignSession("s", "agent", "clerk", None, "ada", created_at=5, updated_at=6)
NO_OPTIONS: Final = Options()


def run(run_id: str, parent: str | None = None, **more: Any) -> dict[str, Any]:
    shown = {"run_id": run_id, "agent_id": "clerk", "content": run_id, **more}
    return shown if parent is None else {**shown, "parent_run_id": parent}


def team(run_id: str, **more: Any) -> dict[str, Any]:
    return {"run_id": run_id, "team_id": "desk", "content": run_id, **more}


def plan(*runs: Any, options: Options = NO_OPTIONS, **more: Any) -> SessionPlan:
    given: dict[str, Any] = {"runs": json.dumps(runs), **more}
    found = read_session(evolve(ROW, **given), options)
    assert isinstance(found, SessionPlan)
    return found


def outputs(found: SessionPlan) -> dict[str, Any]:
    return {one.run_id: json.loads(one.output) for one in found.runs}


def reasons(found: SessionPlan) -> list[tuple[str, str]]:
    return [(one.reason.value, one.run_id or one.detail) for one in found.left_out]


def test_a_session_and_its_values() -> None:
    found = plan(
        run("r", input={"input_content": "Hello\nthere"}, messages=[{"role": "user"}]),
        session_data=json.dumps({"session_state": {"a": 1}, "session_metrics": {}}),
        metadata=json.dumps(json.dumps({"b": 2})),
        summary=json.dumps({"summary": "They met."}),
    )

    assert found.session == ImportedSession(
        "ada", "s", "agent", "clerk", "Hello there", '{"a":1}', '{"b":2}',
        '{"summary":"They met."}', 5_000_000, 6_000_000,
    )  # fmt: skip
    assert (found.component, found.has_user, found.left_out) == ("agent:clerk", True, ())
    assert found.counts == {"r": (1, 0)}
    assert (found.summary, found.summary_run) == ("", "")
    assert outputs(found)["r"]["user_id"] == "ada"


def test_a_session_without_anything() -> None:
    found = read_session(ForeignSession("s", "team"), NO_OPTIONS)
    assert isinstance(found, SessionPlan)

    assert found.session == ImportedSession("", "s", "team", "", None, "{}", None, None, 0, 0)
    assert (found.component, found.has_user, found.runs) == ("", False, ())


@pytest.mark.parametrize(
    ("change", "reason", "named"),
    [
        ({"session_type": "workflow"}, Reason.WORKFLOW, "s"),
        ({"session_type": None}, Reason.WORKFLOW, "s"),
        ({"session_id": "a;b"}, Reason.SESSION_ID, "a;b"),
        ({"session_id": "x" * 1_000_000}, Reason.SESSION_ID, "x" * 1_000_000),
        ({"session_id": b"\xff"}, Reason.SESSION_ID, "b'\\xff'"),
        ({"user_id": "~channel:chat:1"}, Reason.USER_ID, "s"),
        ({"user_id": "~nobody:1"}, Reason.USER_ID, "s"),
        ({"user_id": "u" * 256}, Reason.USER_ID, "s"),
        ({"user_id": "a\nb"}, Reason.USER_ID, "s"),
        ({"user_id": "\ud800"}, Reason.USER_ID, "s"),
        ({"user_id": 7}, Reason.USER_ID, "s"),
        ({"agent_id": ";"}, Reason.COMPONENT_ID, "s"),
        ({"agent_id": 7}, Reason.COMPONENT_ID, "s"),
        ({"runs": "{"}, Reason.SESSION_UNREADABLE, "s"),
        ({"runs": '{"a": 1}'}, Reason.SESSION_UNREADABLE, "s"),
        ({"runs": "[" * 100_000}, Reason.SESSION_UNREADABLE, "s"),
    ],
)
def test_sessions_that_are_left_out(change: Mapping[str, Any], reason: Reason, named: str) -> None:
    found = read_session(evolve(ROW, **change), NO_OPTIONS)

    assert isinstance(found, LeftOut)
    assert (found.reason, found.session_id) == (reason, named)


@pytest.mark.parametrize(
    ("user_id", "user", "owner"),
    [("ada", None, "ada"), ("ada", "eve", "ada"), (None, "eve", "eve"), (None, None, ""),
     ("~ada", None, "~~ada"), ("", "eve", "eve")],
)  # fmt: skip
def test_owners(user_id: str | None, user: str | None, owner: str) -> None:
    assert plan(user_id=user_id, options=Options(user)).session.owner == owner


def test_a_team_comes_before_its_members() -> None:
    found = plan(
        run("a", "t"), run("deep", "n"), team("n", parent_run_id="t"), team("t"), run("b", "t"),
        team("u"), session_type="team", team_id="desk",
    )  # fmt: skip
    shown = outputs(found)

    assert [one.run_id for one in found.runs] == ["t", "a", "n", "deep", "b", "u"]
    assert [one["run_id"] for one in shown["t"]["member_responses"]] == ["a", "n", "b"]
    assert shown["n"]["member_responses"][0]["run_id"] == "deep"
    assert shown["u"]["member_responses"] == []
    assert found.session.name is None


def test_members_without_a_run_of_a_team_stand_alone() -> None:
    found = plan(run("a", "gone"), run("self", "self"), run("x", "y"), run("y", "x"))

    assert [one.run_id for one in found.runs] == ["a", "self", "x", "y"]
    assert {one.parent_run_id for one in found.runs} == {None}
    assert "parent_run_id" not in outputs(found)["a"]
    assert reasons(found) == [("team_run_absent", one) for one in ("a", "self", "x", "y")]


def test_members_of_a_run_that_is_left_out_go_with_it() -> None:
    found = plan(run("a", "n"), team("n", parent_run_id="t"), team("t", status="PAUSED"), run("z"))

    assert [one.run_id for one in found.runs] == ["z"]
    assert reasons(found) == [("run_unfinished", "t"), ("member", "a"), ("member", "n")]


def test_a_ring_below_a_run_that_is_left_out_ends() -> None:
    found = plan(run("x", "t"), run("x2", "x"), team("t", status="PAUSED"), 7)

    assert found.runs == ()
    assert [reason for reason, _ in reasons(found)] == [
        "run_unfinished", "run_unreadable", "member", "member",
    ]  # fmt: skip


def test_members_are_nested_so_deep_and_no_deeper() -> None:
    chain = [team(f"t{n}", parent_run_id=f"t{n - 1}") if n else team("t0") for n in range(300)]
    found = plan(*chain)
    shown, depth = outputs(found)["t280"], 0
    while shown["member_responses"]:
        shown, depth = shown["member_responses"][0], depth + 1

    assert len(found.runs) == 300
    assert depth <= 8
    assert max(len(one.output) for one in found.runs) < 5_000


def test_members_do_not_make_the_run_of_a_team_too_large() -> None:
    found = plan(team("t"), *(run(f"m{n}", "t", content="x" * (6 << 20)) for n in range(3)))

    assert len(found.runs) == 4
    assert outputs(found)["t"]["member_responses"] == []


def test_a_run_in_a_row_of_its_own_counts_before_that_of_the_session() -> None:
    rows = (json.dumps(run("a", content="new")), json.dumps(json.dumps(run("c"))), None, "{")
    found = plan(run("a"), run("b"), rows=rows)

    assert [one.run_id for one in found.runs] == ["a", "b", "c"]
    assert outputs(found)["a"]["content"] == "new"
    assert reasons(found) == [
        ("run_unreadable", "no object"),
        ("run_unreadable", "not JSON at line 1, column 2"),
    ]


def test_values_that_are_no_objects_are_left_out() -> None:
    found = plan(session_data="[1]", metadata="{", summary='{"a":' * 70 + "1" + "}" * 70)

    assert found.session.state == "{}"
    assert (found.session.metadata, found.session.summary) == (None, None)
    assert [one.detail.partition(":")[0] for one in found.left_out] == [
        "session_data", "metadata", "summary",
    ]  # fmt: skip


def test_a_state_that_is_too_long_is_left_out() -> None:
    found = plan(session_data=json.dumps({"session_state": {"a": "x" * (1 << 20)}}))

    assert found.session.state == "{}"
    assert reasons(found) == [("state", "")]


def test_a_name_of_its_own_counts_first() -> None:
    found = plan(run("r"), session_data=json.dumps({"session_name": "n" * 600}))

    assert found.session.name == "n" * 500


@pytest.mark.parametrize(
    ("summary", "runs", "told"),
    [
        ({"summary": "They met."}, 5, ("They met.", "r1")),
        ({"summary": "They met."}, 3, ("", "")),
        ({"summary": ""}, 5, ("", "")),
        ({"summary": 7}, 5, ("", "")),
        (None, 5, ("", "")),
    ],
)
def test_a_summary_covers_all_but_the_newest_runs(
    summary: Any, runs: int, told: tuple[str, str]
) -> None:
    failed = run("failed", status="ERROR")
    found = plan(*(run(f"r{n}") for n in range(runs)), failed, summary=json.dumps(summary))

    assert (found.summary, found.summary_run) == told
