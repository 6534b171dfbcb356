"""What more than one route asks for, as scopes."""

from __future__ import annotations

import pytest

from legation.access.decide import Principal, find_ids
from legation.access.needs import FOLLOW_RUNS, LIST_CHANNELS, READ_DATABASE


@pytest.mark.parametrize("kind", ["agent", "team"])
@pytest.mark.parametrize("action", ["read", "run"])
def test_whoever_may_read_or_run_may_follow(kind: str, action: str) -> None:
    principal = Principal("ada", frozenset({f"{kind}s:a:{action}", f"{kind}s:b:write"}))

    assert find_ids(FOLLOW_RUNS[kind], principal) == {"a"}


def test_the_runs_of_agents_and_of_teams_are_followed_apart() -> None:
    principal = Principal("ada", frozenset({"agents:a:run"}))

    assert FOLLOW_RUNS.keys() == {"agent", "team"}
    assert find_ids(FOLLOW_RUNS["team"], principal) == frozenset()


def test_one_database_is_read_and_channels_are_listed() -> None:
    assert (READ_DATABASE.parameter, READ_DATABASE.listing) == ("db_id", False)
    assert LIST_CHANNELS.listing
    assert READ_DATABASE.actions == LIST_CHANNELS.actions == ("read",)
