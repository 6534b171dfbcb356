"""The erasure of a user over HTTP, on two databases."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final
from urllib.parse import quote

import pytest

from legation import Agent, Database, Platform
from legation.erasure.receipt import verify_receipt
from legation.models.conversation import Prompt
from legation.store.audit_pages import KeyRing, SigningKey
from legation.store.erasure import EraseSession, ListOwned
from legation.store.failures import CommitLost, Unavailable
from legation_testing import Client, Says, ScriptedModel

from ....callers import Issuer

ISSUER: Final = Issuer()
TWO: Final = {"main": "ada", "other": "eve"}
KEY: Final = {"idempotency-key": "k"}


def answer(prompt: Prompt) -> Says | str:
    """Take a minute where that is asked for."""
    said = str(prompt.messages[-1].content)
    return Says(said, after_seconds=60.0) if said.startswith("slow") else said


def make() -> Platform:
    return Platform(
        authorization=True,
        authorization_config=ISSUER.authorization(),
        databases=[Database(name, "sqlite:///:memory:") for name in TWO],
        agents=[
            Agent(id=f"on-{name}", database=name, model=ScriptedModel([answer] * 50))
            for name in TWO
        ],
    )


@pytest.fixture
def client() -> Generator[Client]:
    with Client(make) as made:
        yield made


def token(subject: str, *scopes: str, **claims: Any) -> str:
    return ISSUER.token(*scopes, sub=subject, **claims)


ROOT: Final = "platform:admin"


def say(client: Client, subject: str, text: str, **more: Any) -> Any:
    held = token(subject, "agents:run", "sessions:read", "sessions:delete")
    database = more.pop("database", "main")
    form = {"message": text, "stream": False, "session_id": f"s-{subject}"}
    key = {"idempotency-key": f"k-{database}"}
    return client.post(f"/agents/on-{database}/runs", form=form | more, token=held, headers=key)


def erase(client: Client, name: str, query: str = "", scope: str = "users:erase") -> Any:
    path = f"/users/{quote(name, safe='')}{query}"
    return client.request("DELETE", path, token=token("officer", scope))


def rows(client: Client, subject: str) -> list[int]:
    held = token("root", ROOT)
    return [
        client.get(f"/sessions?user_id={quote(subject)}&db_id={name}", token=held).json()["meta"][
            "total_count"
        ]
        for name in TWO
    ]


def test_a_user_is_erased_in_every_database_and_nobody_else(client: Client) -> None:
    for subject in ("ada", "eve"):
        for database in TWO:
            say(client, subject, "hello", database=database)
    counted = erase(client, "ada", "?dry_run=true").json()
    assert rows(client, "ada") == [1, 1]
    receipt = erase(client, "ada").json()

    assert (rows(client, "ada"), rows(client, "eve")) == ([0, 0], [1, 1])
    assert counted["counts"] == receipt["counts"]
    assert (counted["dry_run"], receipt["dry_run"]) == (True, False)
    assert receipt["erased_by"] == "officer"
    assert receipt["counts"]["sessions"] == 2
    assert {one["sessions"] for one in receipt["databases"].values()} == {1}
    assert set(erase(client, "ada").json()["counts"].values()) == {0}


@pytest.mark.parametrize("name", ["a/b|c", "50%", "~ada", "é#ü", "https://x.test/#ada", "x" * 256])
def test_any_name_can_be_erased(client: Client, name: str) -> None:
    say(client, name, "hello", session_id="s")

    assert erase(client, name).json()["counts"]["sessions"] == 1


def test_the_same_request_after_an_erasure_does_not_bring_the_answer_back(client: Client) -> None:
    first = say(client, "ada", "hello").json()
    assert say(client, "ada", "hello").json() == first
    erase(client, "ada")
    again = say(client, "ada", "hello")

    assert again.status == 200
    assert len(client.get("/sessions/s-ada/runs?db_id=main", token=token("root", ROOT)).json()) == 1


def test_a_kept_answer_of_somebody_who_acted_for_the_user_goes_too(client: Client) -> None:
    held = token("robot", ROOT)
    form = {"message": "of ada", "stream": False, "user_id": "ada", "session_id": "s"}
    client.post("/agents/on-main/runs", form=form, token=held, headers=KEY).expect_success()

    assert erase(client, "ada", "?dry_run=true").json()["counts"]["answers"] == 1
    assert erase(client, "ada").json()["counts"]["answers"] == 1


def test_runs_under_way_are_cancelled_first(client: Client) -> None:
    asked = client.begin(
        "POST",
        "/agents/on-main/runs",
        form={"message": "slow", "stream": False, "session_id": "s", "background": False},
        token=token("ada", "agents:run"),
    )
    for number in range(2):
        client.begin(
            "POST",
            "/agents/on-main/runs",
            form={"message": f"slow {number}", "stream": False, "session_id": "s"},
            token=token("ada", "agents:run"),
        )
    client.settle()
    receipt = erase(client, "ada").json()

    assert receipt["counts"]["runs"] == 3
    assert rows(client, "ada") == [0, 0]
    assert asked.response().status in (200, 404)
    client.advance(120)
    assert set(erase(client, "ada", "?dry_run=true").json()["counts"].values()) <= {0, 1, 2, 3}


@pytest.mark.parametrize("name", ["~nobody:x", "~channel:desk:4911"])
def test_an_owner_of_the_platform_is_refused(client: Client, name: str) -> None:
    refused = erase(client, name)

    assert refused.status == 400
    assert "no user" in refused.json()["detail"]


def test_what_is_no_name_is_refused(client: Client) -> None:
    assert erase(client, "~base64url:_w").status == 400


@pytest.mark.parametrize("scope", ["users:read", "sessions:delete", "users:*:erase"])
def test_another_scope_erases_nobody(client: Client, scope: str) -> None:
    assert erase(client, "ada", scope=scope).status == 403


def test_a_token_for_one_session_erases_and_exports_nobody(client: Client) -> None:
    held = token("ada", "users:erase", "users:read", session_id="s-ada")

    assert client.request("DELETE", "/users/ada", token=held).status == 403
    assert client.get("/users/ada/export", token=held).status == 403


@pytest.mark.parametrize(
    ("subject", "scopes", "status"),
    [
        ("ada", (), 200),
        ("~ada", (), 403),
        ("eve", (), 403),
        ("eve", ("users:erase", "sessions:read"), 403),
        ("eve", ("users:read",), 200),
        ("eve", (ROOT,), 200),
        (None, (), 403),
    ],
)
def test_a_user_is_exported_to_itself_and_by_a_scope(
    client: Client, subject: str | None, scopes: tuple[str, ...], status: int
) -> None:
    answer = client.get("/users/ada/export", token=ISSUER.token(*scopes, sub=subject))

    assert answer.status == status
    assert (b'"end"' in answer.body) == (status == 200)


def test_an_export_from_a_database_that_is_away_does_not_begin(client: Client) -> None:
    client.fail_at(ListOwned, Unavailable(), skip=1)

    assert client.get("/users/ada/export", token=token("ada")).status == 503


def test_an_erasure_is_in_the_trail_of_each_database_and_a_rehearsal_apart(client: Client) -> None:
    erase(client, "ada", "?dry_run=true")
    erase(client, "ada")
    rows = client.get("/audit?operation=erase_user", token=token("root", ROOT)).json()["data"]

    kept = sorted((row["db_id"], row["resource"], row["subject"], row["status"]) for row in rows)
    assert kept == [
        ("main", "ada", "officer", 200),
        ("main", "ada/dry_run", "officer", 200),
        ("other", "ada", "officer", 200),
    ]


def test_a_receipt_is_signed_where_there_is_a_key(client: Client) -> None:
    key = SigningKey("k1", b"s" * 32)
    assert isinstance(client.platform, Platform)
    client.platform.context.cluster.trail_keys = KeyRing((key,))
    receipt = erase(client, "ada").json()

    assert receipt["signature"]["key_id"] == "k1"
    assert verify_receipt(receipt, key)


def test_an_erasure_that_lost_its_database_is_completed_by_the_next(client: Client) -> None:
    say(client, "ada", "hello")
    fault = client.fail_at(EraseSession, Unavailable(), times=None)
    assert erase(client, "ada").status == 503
    fault.disarm()

    assert erase(client, "ada").status == 200
    assert rows(client, "ada") == [0, 0]


def test_a_commit_whose_answer_was_lost_is_found(client: Client) -> None:
    say(client, "ada", "hello")
    client.fail_at(EraseSession, CommitLost(), after=True)

    assert erase(client, "ada").status == 200
    assert rows(client, "ada") == [0, 0]


@pytest.mark.parametrize(
    ("path", "scopes", "allowed"),
    [
        ("/users/ada/export", (), True),
        ("/users/eve/export", (), False),
        ("/users/eve/export", ("users:read",), True),
        ("/users/~base64url:_w/export", (), True),  # names nobody, whoever asks
    ],
)
def test_the_explanation_knows_whose_export_it_is(
    client: Client, path: str, scopes: tuple[str, ...], *, allowed: bool
) -> None:
    held = token("ada", *scopes)
    told = client.post("/me/explain", json={"method": "GET", "path": path}, token=held).json()

    assert told["allowed"] == allowed
    assert told.get("missing") == (None if allowed else "users:read")
    assert (client.get(path, token=held).status == 403) == (not allowed)


def test_the_explanation_knows_that_a_token_for_one_session_erases_nobody(client: Client) -> None:
    held = token("ada", "users:erase", session_id="s")
    asked = {"method": "DELETE", "path": "/users/ada"}
    told = client.post("/me/explain", json=asked, token=held).json()

    assert (told["allowed"], told["missing"]) == (False, "users:erase")
