"""A mebibyte of one repeated character, in every text field of the interface: soon an answer.

The core reads them, so this is run on the newest Python alone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, cast

import pytest
from attrs import frozen

from legation import Platform, Team
from legation_testing import Client

from ..providers.deliveries import Delivery, platform, signed, slack, standard, telegram, whatsapp

pytestmark = pytest.mark.newest

LENGTH: Final = 1 << 20
SECONDS: Final = 1.0
"""Of CPU on the thread that answers: what others of the machine do is not counted."""

CHARACTERS: Final = (
    ("space", " "),
    ("letter", "a"),
    ("quotation mark", '"'),
    ("backslash", "\\"),
    ("parenthesis", "("),
    ("brace", "{"),
    ("percent sign", "%"),
    ("line end", "\n"),
    ("nothing", "\0"),
    ("beyond the basic plane", "\U0001f600"),
)
HOSTED: Final = {
    "agent_id": "concierge",
    "team_id": "crew",
    "session_id": "s",
    "run_id": "r",
    "db_id": "main",
    "channel": "chat",
}
JSON: Final = "application/json"
FORMS: Final = ("application/x-www-form-urlencoded", "multipart/form-data")
NOW_US: Final = 1_767_225_600_000_000


@frozen
class Field:
    """A place for a text: `where` is path, query, header, form or json."""

    method: str
    path: str
    where: str
    name: str
    others: tuple[tuple[str, Any], ...] = ()

    def send(self, client: Client, text: str) -> int:
        """Send `text` in this place, and return the status of the answer."""
        options: dict[str, Any] = {}
        path = self.path
        given = {**dict(self.others), self.name: text}
        if self.where == "path":
            path = path.replace(f"{{{self.name}}}", _escaped(text))
        for name, value in HOSTED.items():
            path = path.replace(f"{{{name}}}", value)
        if self.where == "query":
            options["query"] = {self.name: text}
        elif self.where == "header":
            options["headers"] = ((self.name.lower(), text.encode("ascii", "replace").decode()),)
        elif self.where in ("form", "json"):
            options[self.where] = given
        return client.request(self.method, path, **options).status


def _escaped(text: str) -> str:
    """Return as much of `text` as fits into the same bytes."""
    one = "".join(f"%{byte:02X}" for byte in text[0].encode())
    return one * (len(text.encode()) // len(one))


def resolved(document: Any, schema: Any) -> dict[str, Any]:
    """Return what a reference stands for; a schema that is no object says nothing."""
    if not isinstance(schema, dict):
        return {}
    found = cast(dict[str, Any], schema)
    if "$ref" not in found:
        return found
    place = document
    for name in str(found["$ref"]).removeprefix("#/").split("/"):
        place = place[name]
    return resolved(document, place)


def takes_text(document: Any, schema: Any) -> bool:
    found = resolved(document, schema)
    kinds: list[str] = found.get("type", ["string"])
    more: list[Any] = [each for name in ("anyOf", "oneOf") for each in found.get(name, ())]
    return "string" in kinds or any(takes_text(document, each) for each in more)


def fields_of(document: Any) -> Iterator[Field]:
    for path, methods in document["paths"].items():
        for method, found in methods.items():
            operation = resolved(document, found)  # empty for what is no operation
            for parameter in (resolved(document, p) for p in operation.get("parameters", ())):
                if takes_text(document, parameter.get("schema", {})):
                    yield Field(method.upper(), path, parameter["in"], parameter["name"])
            content = resolved(document, operation.get("requestBody", {})).get("content", {})
            for media, where in ((JSON, "json"), *((form, "form") for form in FORMS)):
                schema = resolved(document, content.get(media, {}).get("schema", {}))
                members = schema.get("properties", {})
                needed = tuple((name, "a") for name in schema.get("required", ()))
                for name, member in members.items():
                    if takes_text(document, member):
                        yield Field(method.upper(), path, where, name, needed)
                if where == "form" and members:
                    break


def hosting() -> Platform:
    return platform(teams=[Team(id="crew", members=["concierge"])])


def fields() -> list[Field]:
    """Return each field once, by its place and name, with the longest path that has it."""
    document = json.loads(bytes(hosting().documentation.document.body))
    return list({(each.where, each.name): each for each in fields_of(document)}.values())


FIELDS: Final = fields()
SHARED: Final = 8
"""Parts of the table, each a test."""


def cost_of(call: Callable[[], int]) -> tuple[int, float]:
    begun = time.thread_time()
    status = call()
    return status, time.thread_time() - begun


@pytest.mark.parametrize("part", range(SHARED))
def test_every_text_field_answers_a_long_text_soon(part: int) -> None:
    slow: list[tuple[object, ...]] = []
    with Client(hosting) as client:
        client.run("concierge", "hello", session_id="s")
        for number, one in list(enumerate(FIELDS))[part::SHARED]:
            for step in (0, 3):  # all of them in turn: a field that is read alike has the others
                name, character = CHARACTERS[(number + step) % len(CHARACTERS)]
                text = character * (LENGTH // len(character.encode()))
                status, seconds = cost_of(partial(one.send, client, text))
                if seconds > SECONDS or status >= 500:
                    slow.append((one, name, status, seconds))

    assert len(FIELDS) > 100
    assert slow == []


@pytest.mark.parametrize(("name", "character"), CHARACTERS, ids=[name for name, _ in CHARACTERS])
def test_an_agent_answers_a_long_message(name: str, character: str) -> None:
    text = character * (LENGTH // len(character.encode()))
    form = {"message": text, "stream": True, "session_id": "s"}
    with Client(hosting) as client:
        status, seconds = cost_of(lambda: client.post("/agents/concierge/runs", json=form).status)
        runs: list[Any] = (
            client.get("/sessions/s/runs", query={"db_id": "main"}).json() if status == 200 else []
        )

    assert status == (400 if name == "nothing" else 200)
    assert seconds < 3 * SECONDS  # the run itself, and every event of it
    assert [(run["status"], run["content"]) for run in runs] == [("COMPLETED", text)] * bool(runs)


KINDS: Final[dict[str, Callable[[str], Delivery]]] = {
    "whatsapp": lambda text: whatsapp(("4911", "m", text), now_us=NOW_US),
    "telegram": lambda text: telegram(7, 1, text, NOW_US),
    "slack": lambda text: slack("U1", "1.1", text, NOW_US),
    "standard": lambda text: standard("ada", "m", text, NOW_US),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_channel_answers_a_long_delivery(kind: str) -> None:
    slow: list[tuple[object, ...]] = []
    with Client(hosting) as client:
        for name, character in CHARACTERS:
            text = character * (LENGTH // len(character.encode()))
            for sent in (KINDS[kind](text), signed(kind, text.encode(), NOW_US)):
                options = {"headers": sent.headers, "body": sent.body}
                answer: Callable[[], int] = partial(status_of, client, sent.target, options)
                status, seconds = cost_of(answer)
                if seconds > SECONDS or status >= 500:
                    slow.append((name, status, seconds))

    assert slow == []


def status_of(client: Client, path: str, options: dict[str, Any]) -> int:
    return client.post(path, **options).status
