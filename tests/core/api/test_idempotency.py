from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from legation import Platform
from legation.config import Agent, Database, Model
from legation.effects import Transact
from legation.store.failures import Busy, StoreFailure, Unavailable
from legation.store.idempotency import ReleaseKey, SettleKey
from legation.store.runs import StartRun
from legation.store.sessions import DeleteSessions
from legation_testing import Client

KEY = {"idempotency-key": "k1"}
FORM = {"message": "x", "stream": False, "session_id": "s"}


def platform() -> Platform:
    return Platform(
        models=(Model("slow", "echo", delay_seconds=5.0),), agents=(Agent(id="a", model="slow"),)
    )


@pytest.fixture
def client() -> Generator[Client]:
    with Client(platform) as client:
        yield client


def ask(client: Client, headers: dict[str, str] | None = None, **form: Any) -> Any:
    return client.post("/agents/a/runs", form={**FORM, **form}, headers=headers or KEY)


def runs(client: Client) -> list[str]:
    return [run["status"] for run in client.get("/sessions/s/runs").json()]


def test_the_same_request_is_answered_the_same_and_done_once(client: Client) -> None:
    first = ask(client)
    client.restart()
    again = ask(client)

    assert (again.status, again.body) == (first.status, first.body)
    assert again.header("content-type") == first.header("content-type")
    assert runs(client) == ["COMPLETED"]


def test_another_request_under_the_key_is_refused(client: Client) -> None:
    ask(client)

    assert ask(client, message="y").status == 422
    assert ask(client, headers={"idempotency-key": "k2"}).status == 200
    assert len(runs(client)) == 2


def test_the_same_request_while_the_first_is_under_way_is_a_conflict(client: Client) -> None:
    first = client.begin("POST", "/agents/a/runs", form=FORM, headers=KEY)
    client.settle()

    assert ask(client).status == 409
    assert first.response().status == 200


def test_a_request_sent_again_after_a_crash_finds_the_run_of_the_first(client: Client) -> None:
    client.begin("POST", "/agents/a/runs", form=FORM, headers=KEY)
    client.settle()
    client.restart()
    client.advance(16)

    assert ask(client).json()["status"] == "COMPLETED"
    assert runs(client) == ["COMPLETED"]


def test_a_stream_is_read_again_from_its_first_event(client: Client) -> None:
    first, again = (ask(client, stream=True).events() for _ in range(2))

    assert first == again
    assert len(runs(client)) == 1


def test_what_is_accepted_for_later_is_accepted_once(client: Client) -> None:
    first, again = (ask(client, background=True) for _ in range(2))

    assert (first.status, first.body) == (again.status, again.body)
    assert len(runs(client)) == 1


def test_what_failed_may_be_tried_again_under_its_key(client: Client) -> None:
    assert client.post("/agents/a/runs", form={"x": 1}, headers=KEY).status == 422
    assert ask(client).status == 200


def test_a_created_session_is_created_once(client: Client) -> None:
    first, again = (client.post("/sessions", json={}, headers=KEY) for _ in range(2))

    assert (first.status, first.body) == (again.status, again.body)
    assert client.get("/sessions").json()["meta"]["total_count"] == 1


def test_the_boundary_of_a_multipart_body_does_not_count(client: Client) -> None:
    def sent(boundary: str) -> Any:
        body = (
            f'--{boundary}\r\ncontent-disposition: form-data; name="message"\r\n\r\nx\r\n'
            f'--{boundary}\r\ncontent-disposition: form-data; name="stream"\r\n\r\nfalse\r\n'
            f"--{boundary}--\r\n"
        )
        headers = {"content-type": f"multipart/form-data; boundary={boundary}", **KEY}
        return client.post("/agents/a/runs", body=body.encode(), headers=headers)

    assert sent("b1").body == sent("b22").body


@pytest.mark.parametrize("value", ["", "a b", "x" * 256, "é"])
def test_a_key_that_is_none_is_refused(client: Client, value: str) -> None:
    assert ask(client, headers={"idempotency-key": value}).status == 422


def test_two_keys_are_refused(client: Client) -> None:
    headers = [("idempotency-key", "a"), ("idempotency-key", "b")]

    assert client.post("/agents/a/runs", form=FORM, headers=headers).status == 422


def test_a_body_that_is_too_long_is_refused(client: Client) -> None:
    assert client.post("/agents/a/runs", body=b"x" * (11 << 20), headers=KEY).status == 413


def test_a_migration_needs_no_key(client: Client) -> None:
    for _ in range(2):
        assert client.post("/databases/main/migrate", headers=KEY).status == 200


@pytest.mark.parametrize("unit", [SettleKey, ReleaseKey])
def test_an_answer_that_cannot_be_kept_is_given_all_the_same(
    client: Client, unit: type[Any]
) -> None:
    client.fail_at(unit, Busy("locked"), times=None)

    assert ask(client, message="x" if unit is SettleKey else "").status in (200, 422)


def test_a_failure_of_the_database_is_for_whoever_asked_for_it(client: Client) -> None:
    client.fail_at(StartRun, StoreFailure("broken"))

    assert ask(client).status == 503
    client.advance(20)
    assert ask(client).status == 200


# --- deleted sessions and runs -------------------------------------------------------------------


def two_databases() -> Platform:
    """Return a platform with an agent in each of two databases; the first keeps the answers."""
    databases = (Database("main", "sqlite://"), Database("other", "sqlite://"))
    return Platform(databases=databases, agents=(Agent(id="a"), Agent(id="b", database="other")))


def count_begun(client: Client) -> int:
    """Return how many runs were begun; an id is that of the key, each time."""
    units = (done.effect.unit for done in client.effects if isinstance(done.effect, Transact))
    return sum(isinstance(getattr(one, "unit", None), StartRun) for one in units)


@pytest.mark.parametrize(("agent", "database"), [("a", "main"), ("b", "other")])
@pytest.mark.parametrize("whole", [True, False], ids=["session", "run"])
def test_what_was_deleted_does_not_come_back_by_its_key(
    agent: str, database: str, *, whole: bool
) -> None:
    with Client(two_databases) as client:
        path, form = f"/agents/{agent}/runs", {**FORM, "session_id": "s1"}
        first = client.post(path, form=form, headers=KEY).json()["run_id"]
        kept = client.post(
            path, form={**form, "session_id": "s2"}, headers={"idempotency-key": "2"}
        )
        run = "" if whole else f"/runs/{first}"
        client.delete(f"/sessions/s1{run}?db_id={database}").expect_success()

        client.post(path, form=form, headers=KEY).expect_success()
        assert count_begun(client) == 3
        again = client.post(
            path, form={**form, "session_id": "s2"}, headers={"idempotency-key": "2"}
        )
        assert again.body == kept.body


def test_a_deletion_broken_off_behind_the_answers_is_completed_when_it_is_repeated() -> None:
    with Client(two_databases) as client:
        form = {**FORM, "session_id": "s1"}
        client.post("/agents/b/runs", form=form, headers=KEY).expect_success()
        fault = client.fail_at(DeleteSessions, Unavailable(), times=None)

        assert client.delete("/sessions/s1?db_id=other").status == 503
        assert client.get("/sessions/s1?db_id=other").status == 200
        fault.disarm()
        client.delete("/sessions/s1?db_id=other").expect_success()
        client.post("/agents/b/runs", form=form, headers=KEY).expect_success()
        assert count_begun(client) == 2
