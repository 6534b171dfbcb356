"""What a process finds of its engines by itself."""

from __future__ import annotations

from legation.diagnosis.engines import judge_bug, judge_pooler


def test_a_pooler_that_no_url_names_is_told_with_what_to_write() -> None:
    found = judge_pooler("main")

    assert (found.code, found.path) == ("pooler_undeclared", "databases.main")
    assert found.remedy == "Add `pgbouncer=true` to `databases.main.url`."


def test_the_bug_of_sqlite_is_as_grave_as_it_is_said_to_be() -> None:
    assert [judge_bug("main", severity).severity for severity in ("low", "medium")] == [
        "low",
        "medium",
    ]
