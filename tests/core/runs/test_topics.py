"""No two databases, and no two runs, share a topic."""

from __future__ import annotations

from legation.runs.topics import cancel_topic, runs_topic


def test_each_run_of_each_database_has_a_topic_of_its_own() -> None:
    pairs = [("main", "r1"), ("main", "r2"), ("second", "r1")]

    assert len({cancel_topic(*pair) for pair in pairs}) == 3


def test_each_database_has_a_topic_of_its_own() -> None:
    assert runs_topic("main") != runs_topic("second")
    assert runs_topic("main") != cancel_topic("main", "")
