"""The report of an import: sums, and the first ids of each reason."""

from __future__ import annotations

import json

from legation.agentos.report import SENTENCES, Imported, LeftOut, Reason, Report


def test_each_reason_has_a_sentence() -> None:
    assert set(SENTENCES) == set(Reason)


def test_sums() -> None:
    report = Report()
    lost = LeftOut(Reason.MEDIA, "s", "r" * 200, "a.png: too large")
    one = Imported("agent:a", "main", True, True, 3, 1, 2, 5, 1, (lost,))
    report.add(one)
    report.add(Imported("agent:b", "main", has_user=False), hosted=False)
    report.add(Imported("", "main"), hosted=False)
    report.add(Imported(left_out=tuple(LeftOut(Reason.WORKFLOW, f"w{n}") for n in range(5))))
    report.leave_out([LeftOut(Reason.WORKFLOW, "w0")])
    report.tables["agno_memories"] = 4
    told = json.loads(json.dumps(report.describe()))

    assert told == {
        "sessions": 3,
        "new_sessions": 1,
        "sessions_without_user": 1,
        "runs": 3,
        "runs_of_members": 1,
        "runs_known": 2,
        "messages": 5,
        "files": 1,
        "databases": {"main": 3},
        "unhosted": {"agent:b": 1},
        "left_out": {
            "workflow": {
                "count": 6,
                "what": SENTENCES[Reason.WORKFLOW],
                "first": ["w0", "w1", "w2"],
            },
            "media": {"count": 1, "what": SENTENCES[Reason.MEDIA], "first": ["r" * 80]},
        },
        "tables": {"agno_memories": 4},
    }


def test_an_id_of_any_length_is_shown_short() -> None:
    assert LeftOut(Reason.SESSION_ID, "s" * 1_000_000).describe() == {
        "reason": "session_id",
        "session_id": "s" * 80,
    }
    assert LeftOut(Reason.CALL, "s", "r", "d").describe() == {
        "reason": "call",
        "session_id": "s",
        "run_id": "r",
        "detail": "d",
    }
