"""No token, no secret and no message reaches the audit trail or the log of a running platform."""

from __future__ import annotations

import hashlib
import hmac
import io
import json
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import frozen

from legation import Database
from legation.http.messages import Answer, Request, Streamed
from legation.store.audit import PAGE_COLUMNS
from legation.store.audit_pages import Page
from legation.store.failures import StatementFailed, StoreFailure
from legation.store.units import Dialect, Sql, Statements, Unit
from legation_host import Host, open_log
from legation_host.databases import open_database
from legation_host.hosting import open_platform

from ..callers import ENVIRON, Issuer, demo
from ..trail_pages import entries_in
from .host_units import BACKENDS, run

CANARY: Final = "canary-5d1e"
JSON: Final = (b"content-type", b"application/json")
FORM: Final = (b"content-type", b"application/x-www-form-urlencoded")
DELIVERY: Final = json.dumps(
    {
        "object": "whatsapp_business_account",
        "entry": [
            {
                "id": "1",
                "changes": [
                    {
                        "field": "messages",
                        "value": {
                            "messaging_product": "whatsapp",
                            "metadata": {"phone_number_id": "100"},
                            "messages": [
                                {
                                    "from": "4915",
                                    "id": "wamid.1",
                                    "timestamp": "1767225600",
                                    "type": "text",
                                    "text": {"body": f"hello {CANARY}"},
                                }
                            ],
                        },
                    }
                ],
            }
        ],
    }
).encode()


@frozen
class Content:
    data: bytes

    async def read(self, limit: int) -> bytes | None:
        return self.data if len(self.data) <= limit else None


class Nowhere:
    async def send(self, data: bytes) -> None:
        """Drop it."""


def signed(body: bytes) -> bytes:
    digest = hmac.new(ENVIRON["CHAT_APP_SECRET"].encode(), body, hashlib.sha256).hexdigest()
    return f"sha256={digest}".encode()


def requests(token: str) -> list[tuple[Request, bytes]]:
    """Return requests with the canary in every place that a caller can reach."""
    bearer = (b"authorization", f"Bearer {token}".encode())
    odd = f"{CANARY}%0d%0a%1b%5b31m".encode()

    def sent(
        method: str, target: str, *headers: tuple[bytes, bytes], body: bytes = b""
    ) -> tuple[Request, bytes]:
        return Request(method, target, headers, "192.0.2.1"), body

    message = f"message={CANARY}&stream=false&session_id=s1".encode()
    hook = (b"x-hub-signature-256", signed(DELIVERY))
    return [
        sent("POST", "/agents/alpha/runs", bearer, FORM, body=message),
        sent("POST", "/agents/alpha/runs", bearer, FORM, body=message + b"&stream=" + odd),
        sent("POST", "/agents/alpha/runs", bearer, FORM, body=b"message=x&stream=true&" + odd),
        sent("POST", "/agents/alpha/runs", bearer, JSON, body=b'{"' + CANARY.encode()),
        sent("GET", f"/sessions?session_name={CANARY}", bearer),
        sent("GET", f"/sessions?{CANARY}=1", bearer),
        sent("GET", "/sessions", (b"authorization", b"Bearer " + CANARY.encode())),
        sent("GET", "/sessions", (b"authorization", b"Basic " + CANARY.encode())),
        sent("GET", "/sessions", bearer, (b"x-request-id", odd)),
        sent("GET", "/sessions", bearer, (b"cookie", CANARY.encode())),
        sent(
            "POST",
            "/sessions/s1/rename",
            bearer,
            JSON,
            body=json.dumps({"session_name": CANARY}).encode(),
        ),
        sent("POST", "/chat/webhook", hook, JSON, body=DELIVERY),
        sent("POST", "/chat/webhook", (b"x-hub-signature-256", b"x" + CANARY.encode()), body=b"{}"),
        sent("GET", f"/chat/webhook?hub.mode=subscribe&hub.verify_token={CANARY}&hub.challenge=1"),
    ]


async def answered(host: Host, program: Any, body: bytes) -> int:
    answer: Answer = await host.run(program, body=Content(body))
    if isinstance(answer, Streamed):
        await host.run(answer.body, sink=Nowhere())
    return answer.status


@BACKENDS
def test_whatever_is_sent_stays_out_of_the_trail_and_the_log(
    backend: str, tmp_path: Path, figures: Callable[[str], None]
) -> None:
    issuer, stream = Issuer(), io.StringIO()
    file = tmp_path / "main.db"
    platform = demo(issuer, databases=(Database("main", f"sqlite:///{file}"),))
    scopes = ("agents:alpha:run", "sessions:read", "sessions:write")
    token = issuer.token(*scopes, jti=CANARY, exp=1 << 40)
    asked = requests(token)

    async def main() -> None:
        log = open_log("json", level="debug", stream=stream)
        async with open_platform(platform, log=log) as host:
            for request, body in asked:
                assert await answered(host, platform.answer(request), body) < 500

    run(backend, main)

    with closing(sqlite3.connect(file)) as connection:
        pages = [Page(*row) for row in connection.execute(f"select {PAGE_COLUMNS} from trail")]
        (kept,) = connection.execute("select count(*) from inbox").fetchone()
        counted = connection.execute("select * from refusals").fetchall()
    rows = entries_in(pages)
    unknown = sum(count for *_, count in counted)
    assert len(rows) == len(asked) - 1 - unknown  # a delivery is nobody's request
    assert unknown > 2
    assert kept == 1
    lines = stream.getvalue().splitlines()
    assert all(isinstance(json.loads(line), dict) for line in lines)
    told = f"{rows} {lines} {counted}"
    for secret in (CANARY, token, token.rpartition(".")[2], *ENVIRON.values()):
        assert secret not in told
    figures(f"audit: a canary in {len(asked)} requests, in none of {len(rows)} rows, nor the log")


# --- What the driver says -------------------------------------------------------------------------

CAST: Final = Sql("select cast(cast(:value as text) as integer)", registered=False)


@frozen
class Cast(Unit[None]):
    value: str

    def statements(self, dialect: Dialect) -> Statements[None]:
        yield CAST(value=self.value)


@pytest.mark.parametrize("value", [CANARY, f"{CANARY}\ud800", f"{CANARY}\0"], ids=ascii)
def test_an_error_of_the_database_is_logged_without_the_value(postgres: str, value: str) -> None:
    lines: list[tuple[str, Mapping[str, Any]]] = []

    def hear(_: str, event: str, fields: Mapping[str, Any]) -> None:
        lines.append((event, fields))

    async def main() -> None:
        database = open_database("main", postgres, hear)
        try:
            with pytest.raises(StoreFailure) as failed:
                await database.run(Cast(value))
            assert isinstance(failed.value, StatementFailed)
        finally:
            await database.aclose()

    run("trio", main)

    ((event, fields),) = lines
    assert event == "store_failed"
    assert CANARY not in str(fields)
    assert fields["error"]
