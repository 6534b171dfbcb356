"""A second issuer is added to a platform that has data: it changes nobody's."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from legation import Agent, Database, Platform
from legation_testing import Client

from ...callers import Issuer

ISSUER: Final = Issuer()
FIRST: Final = "https://a.test"
SECOND: Final = "https://b.test"
SCOPES: Final = ("agents:run", "agents:read", "sessions:read", "sessions:delete")
# The last two look like the name of an owner of the other issuer, and like one of ours.
NAMES: Final = ("ada", "ada/x|y", "b.test#ada", "~ada")
DATABASES: Final = ("main", "other")


def platform(*issuers: str) -> Platform:
    return Platform(
        authorization=True,
        authorization_config=ISSUER.authorization(issuer=list(issuers) or None),
        databases=[Database(name, "sqlite://") for name in DATABASES],
        agents=[Agent(id=f"agent-{name}", database=name) for name in DATABASES],
    )


def serve(folder: Path, *issuers: str) -> Client:
    """Serve the databases in `folder`, to users of these issuers."""
    return Client(lambda: platform(*issuers), databases=DATABASES, folder=folder)


def token(issuer: str, name: str) -> str:
    return ISSUER.token(*SCOPES, iss=issuer, sub=name)


def ask(client: Client, issuer: str, name: str, method: str, path: str, **more: Any) -> Any:
    answer = client.request(method, path, token=token(issuer, name), **more)
    return answer.status, answer.json() if answer.body else None


def talk(client: Client, issuer: str, name: str, text: str) -> None:
    """Say something in each database, in a session of the same name."""
    for database in DATABASES:
        form = {"message": text, "session_id": "s", "stream": "false"}
        path = f"/agents/agent-{database}/runs"
        assert ask(client, issuer, name, "POST", path, form=form)[0] == 200


def look(client: Client, issuer: str, name: str) -> list[Any]:
    """Return all that a user is shown of both databases."""
    me = ask(client, issuer, name, "GET", "/me")[1]
    paths = ("/sessions", "/sessions/s", "/sessions/s/runs")
    shown = [
        ask(client, issuer, name, "GET", path, query={"db_id": database})
        for path in paths
        for database in DATABASES
    ]
    return [me["sub"], *shown]


def test_a_second_issuer_changes_nobodys_data(tmp_path: Path) -> None:
    with serve(tmp_path, FIRST) as client:
        for name in NAMES:
            talk(client, FIRST, name, f"I am {name}")
        before = {name: look(client, FIRST, name) for name in NAMES}
        assert all(status == 200 for _, *shown in before.values() for status, _ in shown)
        assert ask(client, SECOND, "ada", "GET", "/sessions")[0] == 401

    with serve(tmp_path, FIRST, SECOND) as client:
        assert {name: look(client, FIRST, name) for name in NAMES} == before
        for name in NAMES:
            owner, *lists, one, two, three, four = look(client, SECOND, name)
            assert owner == f"{SECOND}#{name}"
            assert [(status, body["data"]) for status, body in lists] == [(200, []), (200, [])]
            assert [status for status, _ in (one, two, three, four)] == [404] * 4
            talk(client, SECOND, name, "I am somebody else")
        assert {name: look(client, FIRST, name) for name in NAMES} == before
        for database in DATABASES:
            query = {"db_id": database}
            path = "/sessions/s"
            assert ask(client, SECOND, "ada", "DELETE", path, query=query)[0] == 204
        assert {name: look(client, FIRST, name) for name in NAMES} == before

    with serve(tmp_path, FIRST) as client:
        assert {name: look(client, FIRST, name) for name in NAMES} == before


@pytest.mark.parametrize("issuers", [(FIRST, SECOND), (FIRST,), ()], ids=len)
def test_a_first_issuer_that_is_named_changes_nobodys_data(
    tmp_path: Path, issuers: tuple[str, ...]
) -> None:
    """Before it was named, tokens were not asked for their issuer."""
    with serve(tmp_path) as client:
        talk(client, FIRST, "ada", "I am ada")
        before = look(client, FIRST, "ada")
    with serve(tmp_path, *issuers) as client:
        assert look(client, FIRST, "ada") == before
