"""The export of a person, streamed from two databases."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any, Final

import pytest

from legation import Agent, Channel, Database, Platform
from legation.effects import Transact
from legation.store.failures import Unavailable
from legation.store.person_export import ReadTable, TablePage
from legation_testing import BadResponse, Client

SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def make() -> Platform:
    return Platform(
        databases=[Database(name, "sqlite:///:memory:") for name in ("main", "other")],
        agents=[Agent(id="a", database="main"), Agent(id="b", database="other")],
        channels=[
            Channel(
                id="chat",
                kind="standard",
                agent="a",
                secret_env="S",
                reply_url="http://127.0.0.1:9/",
                subjects={"49": "ada"},
            )
        ],
        environ={"S": SECRET},
    )


@pytest.fixture
def client() -> Generator[Client]:
    with Client(make) as made:
        yield made


def say(client: Client, agent: str, user: str, text: str) -> None:
    form = {"message": text, "stream": False, "session_id": f"s-{user}", "user_id": user}
    client.post(f"/agents/{agent}/runs", form=form).expect_success()


def lines(client: Client, user: str) -> list[dict[str, Any]]:
    answer = client.get(f"/users/{user}/export")
    assert answer.header("content-type") == "application/x-ndjson"
    return [json.loads(line) for line in answer.body.splitlines()]


def test_all_of_a_person_is_exported_and_nothing_of_others(client: Client) -> None:
    for user in ("ada", "bob"):
        for agent in ("a", "b"):
            say(client, agent, user, f"{user} to {agent}")
    client.post("/channels/chat/send", json={"recipient": "49", "text": "first"}).expect_success()
    *rows, end = lines(client, "ada")

    assert {row["db"] for row in rows} == {"main", "other"}
    counts = end["end"]
    assert counts["sessions"] == counts["runs"] == 2
    assert counts["outbox"] == 1
    assert sum(counts.values()) == len(rows)
    text = json.dumps(rows)
    assert "ada to a" in text
    assert "ada to b" in text
    assert "first" in text
    assert "bob" not in text
    events = [row["row"] for row in rows if row["table"] == "events"]
    assert [one["data"]["event"] for one in events if one["seq"] == 1] == ["RunStarted"] * 2


def test_one_of_whom_nothing_is_stored_gets_an_end(client: Client) -> None:
    assert lines(client, "nobody") == [{"end": {}}]


def test_a_long_row_is_sent_in_pieces(client: Client) -> None:
    say(client, "a", "ada", "x" * 200_000)

    assert len([one for one in lines(client, "ada") if one.get("table") == "runs"]) == 1


def test_many_rows_are_read_page_by_page(client: Client) -> None:
    for number in range(12):
        body = {"session_id": f"s{number}", "user_id": "ada", "agent_id": "a"}
        client.post("/sessions?db_id=main", json=body).expect_success()
    for _ in range(51):
        client.post("/channels/chat/send", json={"recipient": "49", "text": "x"})

    counts = lines(client, "ada")[-1]["end"]
    assert (counts["sessions"], counts["outbox"]) == (12, 51)


def test_the_steps_of_a_run_are_read_page_by_page(client: Client) -> None:
    say(client, "a", "ada", "hello")
    (run,) = [one for one in lines(client, "ada") if one.get("table") == "runs"]
    run_id = run["row"]["run_id"]
    page = TablePage(('{"place":"0"}',), ("0",))
    client.fail_at(Transact("main", ReadTable("steps", "ada", None, run_id)), page)

    (step,) = [one for one in lines(client, "ada") if one.get("table") == "steps"]
    assert step["row"] == {"run_id": run_id, "place": "0"}


def test_an_export_whose_database_fails_has_no_end(client: Client) -> None:
    client.fail_at(ReadTable, Unavailable(), times=None)
    with pytest.raises(BadResponse, match="not whole"):
        client.get("/users/ada/export")
