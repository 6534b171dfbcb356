"""The list of nodes of every database, and what is unsafe in the configuration."""

from __future__ import annotations

from typing import Any, Final

import pytest

from legation import Database
from legation.access.posture import posture
from legation.version import VERSION
from legation_testing import Client

from ....callers import Issuer, demo
from ....two_databases import IN_MEMORY

ISSUER: Final = Issuer()
BEAT: Final = 6
HOSTS: Final = ["agent:alpha", "agent:beta", "team:crew"]


def nodes(client: Client) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get("/nodes").expect_success().json()["data"]
    return found


def test_each_node_is_listed_once_for_each_database_it_lives_in() -> None:
    with Client(demo(None, databases=IN_MEMORY)) as client:
        with client.peer(demo(None, databases=IN_MEMORY[:1])) as peer:
            client.advance(BEAT)
            found = nodes(client)

            names = [client.node.name, peer.node.name]
            assert [(one["db_id"], one["node"]) for one in found] == [
                *(("main", name) for name in sorted(names)),
                ("second", client.node.name),
            ]
            by_name = {one["node"]: one for one in found if one["db_id"] == "main"}
            this, other = by_name[client.node.name], by_name[peer.node.name]
            assert [this["this"], other["this"]] == [True, False]
            assert [this["draining"], other["draining"]] == [False, None]
            assert this["release"] == other["release"] == VERSION
            assert this["schema"] == other["schema"]
            assert this["since"] == "2026-01-01T00:00:00Z"
            assert this["hosts"] == other["hosts"] == HOSTS
            assert 0 <= this["beat_seconds"] <= BEAT
            assert 0 <= other["beat_seconds"] <= 2 * BEAT
        client.advance(BEAT)
        assert [one["node"] for one in nodes(client)] == [client.node.name] * 2


def test_a_process_that_is_about_to_end_says_so() -> None:
    platform = demo(None)
    with Client(platform) as client:
        platform.context.draining = True

        assert [one["draining"] for one in nodes(client)] == [True]


def test_a_database_without_a_beat_is_named_and_none_is_asked() -> None:
    databases = [Database("main", "sqlite://"), Database("new", "sqlite://", auto_migrate=False)]
    with Client(demo(None, databases=databases)) as client:
        answer = client.get("/nodes").expect_success().json()

        assert {one["db_id"] for one in answer["data"]} == {"main"}
        assert answer["meta"] == {"absent": ["new"]}


@pytest.mark.parametrize(
    ("path", "scope"),
    [
        ("/nodes", "nodes:read"),
        ("/posture", "config:read"),
        ("/posture", "system:read"),
        ("/nodes", "platform:admin"),
    ],
)
def test_each_has_its_scope(path: str, scope: str) -> None:
    with Client(demo(ISSUER)) as client:
        assert client.get(path, token=ISSUER.token(scope)).status == 200
        assert client.get(path, token=ISSUER.token("databases:read", "agents:read")).status == 403
        assert client.get(path).status == 401


def test_the_posture_is_what_the_check_finds() -> None:
    platform = demo(None, cors_allowed_origins=["http://a.test"])
    with Client(platform) as client:
        found = client.get("/posture").expect_success().json()["data"]

    assert found == [one.as_json() for one in posture(platform.config)]
    assert [one["path"] for one in found] == [
        "platform.authorization",
        "platform.cors_allowed_origins[0]",
    ]


def test_a_careful_configuration_has_nothing_to_say() -> None:
    with Client(demo(ISSUER), token=ISSUER.token("config:read")) as client:
        found = client.get("/posture").json()["data"]

    assert [one["path"] for one in found if one["severity"] != "low"] == []
