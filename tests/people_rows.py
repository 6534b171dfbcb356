"""Rows of two people in every table of the catalogue, for tests of what deletes or reads them."""

from __future__ import annotations

import json
from typing import Any

from legation.channels.deliveries import IncomingMessage, encode_message

from .one_database import Database

__all__ = [
    "ADA",
    "EVE",
    "fill",
    "put",
    "put_answer",
    "put_message",
    "put_reply",
    "put_run",
    "put_session",
    "put_summary",
    "reply_to",
]

ADA, EVE = "ada", "eve"


def put(database: Database, table: str, **row: Any) -> None:
    names = ", ".join(row)
    places = ", ".join("?" * len(row))
    database.ask(f"insert into {table} ({names}) values ({places})", *row.values())


def put_session(database: Database, owner: str, session_id: str, **row: Any) -> None:
    at = {"created_us": 1, "updated_us": 1, "kind": "agent", "component_id": "a", "bytes": 500}
    put(database, "sessions", owner=owner, session_id=session_id, **(at | row))
    put(
        database,
        "session_states",
        owner=owner,
        session_id=session_id,
        digest="d",
        document="{}",
        first_us=1,
    )


def put_summary(database: Database, owner: str, session_id: str, run_no: int) -> None:
    row = {"summary": f"about {owner}", "run_id": "r", "model": "m", "usage": "{}"}
    key = {"owner": owner, "session_id": session_id, "run_no": run_no}
    put(database, "session_summaries", **key, **row, at_us=1)


def put_run(database: Database, owner: str, session_id: str, run_id: str, **row: Any) -> None:
    ((number,),) = database.ask("select count(*) from runs")
    put(
        database,
        "runs",
        **{
            "owner": owner,
            "session_id": session_id,
            "run_no": number + 1,
            "run_id": run_id,
            "kind": "agent",
            "component_id": "a",
            "status": "COMPLETED",
            "input": "{}",
            "created_us": 1,
        }
        | row,
    )
    put(database, "events", run_id=run_id, seq=1, at_us=1, name="RunStarted", data='{"x":1}')
    put(
        database,
        "steps",
        run_id=run_id,
        place="0",
        kind="start",
        asked="x",
        attempt=1,
        begun_us=1,
    )


def put_message(database: Database, name: str, sender: str, run_id: str | None, state: str) -> None:
    message = IncomingMessage(name, sender, text="words")
    put(
        database,
        "inbox",
        channel="chat",
        message_id=name,
        sender=sender,
        payload=encode_message(message),
        state=state,
        received_us=1,
        ready_us=1,
        run_id=run_id,
    )
    put_reply(database, f"reply-{name}", "far away", message_id=name)


def put_reply(database: Database, key: str, recipient: str, **row: Any) -> None:
    put(
        database,
        "outbox",
        **{
            "channel": "chat",
            "idempotency_key": key,
            "recipient": recipient,
            "payload": "words",
            "created_us": 1,
            "ready_us": 1,
        }
        | row,
    )


def reply_to(name: str, sender: str) -> str:
    place = {"channel": "chat", "message_id": name, "sender": sender, "conversation": sender}
    return json.dumps({"message": "m", "reply_to": place}, separators=(",", ":"))


def put_answer(database: Database, owner: str, key: str, body: bytes | None) -> None:
    put(
        database,
        "idempotency",
        owner=owner,
        route="r",
        key=key,
        fingerprint="f",
        status=200,
        headers="[]",
        body=body,
        created_us=1,
        expires_us=1 << 60,
    )


def put_trail(database: Database, subject: str) -> None:
    """Put one row about `subject` into each table of the audit trail."""
    texts = ("request_id", "operation", "resource", "decision", "scope", "client")
    row: dict[str, Any] = dict.fromkeys((*texts, "hash", "previous"), "x")
    row |= {"writer": subject, "seq": 1, "at_us": 1, "subject": subject, "status": 200}
    put(database, "audit", **row)
    put(database, "trail_kept", kept=1, **row)
    page: dict[str, Any] = dict.fromkeys(("key_id", "root", "previous", "hash", "data"), "x")
    page |= {"writer": subject, "last": 1, "count": 1, "from_us": 1, "to_us": 1}
    put(database, "trail", subject=subject, **page)
    put(database, "trail_subjects", subject=subject, from_us=1, writer=subject, last=1)


def fill() -> Database:
    """Put a row into every table, for ada and for eve; each has two runs in a channel's session."""
    database = Database()
    for number, owner in enumerate((ADA, EVE), start=1):
        session = f"chat:{number}"
        put_session(database, owner, session)
        for run, state in (("a", "done"), ("b", "dead")):
            name = f"m-{owner}-{run}"
            put_run(database, owner, session, f"{owner}-{run}", input=reply_to(name, str(number)))
            put_message(database, name, str(number), f"{owner}-{run}", state)
            answer = f'{{"run_id":"{owner}-{run}","session_id":"{session}","user_id":"{owner}"}}'
            put_answer(database, owner, f"k-{run}", answer.encode())
        put_summary(database, owner, session, 2 * number - 1)
        put(database, "session_counts", owner=owner, kind="agent", until_us=1, sessions=1)
        put(database, "usage", subject=owner, bytes=500, day=1, tokens=1)
        put(database, "usage", subject=f"~agent:a:{owner}", bytes=0, day=1, tokens=1)
        put(database, "channel_optouts", channel="chat", person=str(number), since_us=1)
        put(
            database,
            "incidents",
            incident_id=owner,
            at_us=1,
            node="n",
            error_type="E",
            place="p",
            run_id=f"{owner}-a",
        )
        put_trail(database, owner)
    put(database, "refusals", minute=1, client="c", route="r", status=401, count=1)
    put(database, "channel_states", channel="chat")
    put(database, "channel_chats", channel="chat", conversation="G", moved_to="H")
    put(database, "background", name="b")
    put(
        database,
        "nodes",
        node_id="n",
        started_us=1,
        beat_us=1,
        code_version="1",
        schema_version="1",
    )
    put(
        database,
        "definitions",
        digest="d",
        kind="agent",
        component_id="a",
        document="{}",
        first_us=1,
    )
    return database
