"""A platform for the tests of the console: it calls tools, asks people, and delegates."""

from __future__ import annotations

import json
import time
from typing import Any, Literal

from legation import Agent, Database, Platform, Team, tool
from legation.effects import Program, Sleep
from legation.models.conversation import Listener, Prompt, Reply, ToolCall, Usage

from ..callers import Issuer

__all__ = ["ANSWER", "HOSTILE", "bearer", "site"]

ANSWER = "It rains in Oslo, at 12 degrees.\n\nTake a coat."
HOSTILE = '<img src=x onerror="window.ran=1"><script>window.ran=1</script>{{1+1}}\u202e'


def weather(city: str, unit: Literal["C", "F"] = "C") -> str:
    """Return the weather in a city, as the station there measured it last."""
    return f"Rain in {city}, 12 {unit} {HOSTILE}"


@tool(requires_confirmation=True)
def refund(order: str, amount: float, reason: str = "") -> str:
    """Pay an order back to whoever placed it."""
    return f"Paid back {amount} for {order}"


@tool(external_execution=True)
def scan(badge: str) -> str:
    """Scan a badge at the desk."""
    raise NotImplementedError(badge)


_CALLS: dict[str, dict[str, Any]] = {
    "refund": {"order": "A-1009", "amount": 49.9, "reason": HOSTILE},
    "scan": {"badge": "77"},
    "weather": {"city": "Oslo"},
}


class Desk:
    """A model that calls the tool which the message names, and then says something about it."""

    name, provider, id, accepts, document_urls = "Desk", "Legation", "desk-1", ("*/*",), True

    def respond(self, prompt: Prompt, listener: Listener) -> Program[Reply]:
        last = prompt.messages[-1]
        offered = {one.name: one for one in prompt.tools}
        if last.role == "user":
            if "delegate_task_to_member" in offered:
                arguments = {"member_id": "concierge", "task": last.content}
                return self._call(prompt, "delegate_task_to_member", arguments)
            for name, arguments in _CALLS.items():
                if name in last.content and name in offered:
                    return self._call(prompt, name, arguments)
        text = ANSWER if last.role == "tool" else f"You said: {last.content}"
        pieces = [f"{word} " for word in text.split(" ")]
        for piece in pieces:
            listener.hear(piece)
            if "slowly" in last.content:
                yield from listener.settle()
                yield from Sleep(0.2)
        return Reply("".join(pieces), Usage(120, len(pieces)))

    def _call(self, prompt: Prompt, name: str, arguments: dict[str, Any]) -> Reply:
        made = ToolCall(f"call-{len(prompt.messages)}", name, json.dumps(arguments))
        return Reply("", Usage(30, 8), (made,))


def site(issuer: Issuer | None, name: str = "Acme Support", **more: Any) -> Platform:
    """Return the platform; without an issuer authorization is off."""
    if issuer is not None:
        more = {"authorization": True, "authorization_config": issuer.authorization(), **more}
    desk = Desk()
    return Platform(
        id="acme",
        agents=[
            Agent(
                id="concierge",
                name="Concierge",
                description=f"Answers guests. {HOSTILE}",
                instructions="Answer briefly.",
                model=desk,
                tools=[weather, refund, scan],
            ),
            Agent(id="long", name="A name without an end " * 500, model="echo"),
        ],
        teams=[Team(id="front", name="Front desk", model=desk, members=["concierge"])],
        databases=[Database("main", "sqlite://")],
        name=name,
        **more,
    )


def bearer(issuer: Issuer, *scopes: str, seconds: int = 3600, **claims: Any) -> str:
    """Return a token that is good from now on, for so long."""
    now = int(time.time())
    return issuer.token(*scopes, iat=now, exp=now + seconds, **claims)
