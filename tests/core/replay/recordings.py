"""Recordings for the tests of replay: one of an agent with a tool, and one of a team."""

from __future__ import annotations

import hashlib
from typing import Any

from legation.http.messages import compact_json
from legation.replay.recording import (
    RecordedDefinition,
    RecordedRun,
    RecordedStep,
    Recording,
)

__all__ = ["BOOKING", "TEAM", "define"]


def define(kind: str, component: str, document: dict[str, Any]) -> RecordedDefinition:
    """Return a definition by its digest."""
    text = compact_json(document)
    digest = hashlib.sha256(f"{kind}:{component}:{text}".encode()).hexdigest()
    return RecordedDefinition(digest, kind, component, document)


_SHOP = define("agent", "shop", {"name": "Shop", "instructions": "Book for ann@example.com."})
_DESK = define("team", "desk", {"name": "Desk", "instructions": None})
_ARGUMENTS = {"room": 7, "mail": "ann@example.com"}

BOOKING = Recording(
    run=RecordedRun(
        "agent", "shop", "r1", "s1", {"message": "A room"}, {"card": "4242-4242"}, _SHOP.digest
    ),
    steps=(
        RecordedStep(
            "1",
            "model",
            "gpt",
            {
                "calls": [["c1", "book", compact_json(_ARGUMENTS), "due"]],
                "thoughts": [["gpt", {"type": "thought"}, 4, ["c1"]]],
                "usage": [7, 3, 0, 0, 0],
                "seconds": 0.1,
            },
            seconds=1.9,
        ),
        RecordedStep("1.1", "call", "book", {"result": "Booked for ann@example.com"}, _ARGUMENTS),
        RecordedStep("2", "model", "gpt", {"content": "Done", "usage": [1, 1, 0, 0, 0]}),
    ),
    end="COMPLETED",
    output={"content": "Done"},
    definitions=(_SHOP,),
    history=(
        {"role": "user", "content": "Hello", "calls": [["c0", "book", '{"room":7}']]},
        {"role": "assistant", "content": "I am with ann@example.com"},
    ),
)

TEAM = Recording(
    run=RecordedRun("team", "desk", "r2", "s1", {"message": "A room"}, {}, _DESK.digest),
    steps=(
        RecordedStep("0", "start", "desk", {"calls": [["d1", "delegate", "{}", "member"]]}),
        RecordedStep("0.1", "member", "shop", {"result": "Done", "run": "r3"}, {"task": "Book"}),
        RecordedStep(
            "0.1/0",
            "start",
            "shop",
            {"definition": _SHOP.digest, "kind": "agent", "name": "Shop", "instructions": None},
        ),
        RecordedStep("0.1/1", "model", "gpt", {"content": "Done", "usage": [1, 1, 0, 0, 0]}),
        RecordedStep("1", "model", "gpt", None),
    ),
    end="ERROR",
    output={"content": "It broke"},
    definitions=(_DESK, _SHOP),
)
