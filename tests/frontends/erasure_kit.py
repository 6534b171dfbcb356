"""People with content in every table and of every kind of data, each text marked with whose it is.

One scenario for every engine and every way to reach a platform: it only asks.  `plant` leaves data
of one person behind, in two databases; what it returns are the texts to look for.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol
from urllib.parse import quote

from attrs import frozen

from legation import Agent, Channel, Database, Platform, Team, tool
from legation.channels.deliveries import IncomingMessage, encode_message
from legation.models.conversation import Prompt, ToolCall
from legation.store.units import Dialect, Sql, Statements, Unit
from legation_testing import ScriptedModel, call

__all__ = [
    "ENVIRON",
    "PEOPLE",
    "Ask",
    "Letters",
    "Planted",
    "deliver",
    "make",
    "plant",
    "user_path",
]

SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ENVIRON: Final = {"SECRET": SECRET}
PEOPLE: Final = {"4911": "ada|1/x; \\", "4922": "eve%é"}
"""The users by their numbers in the channel; no name is easy."""


class Ask(Protocol):
    """Sends a request; returns the status, and the JSON or the text of the answer."""

    def __call__(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, key: str = ""
    ) -> tuple[int, Any]:
        """Ask, with `body` as JSON, under the idempotency key `key`."""
        ...


@tool
def look(note: str) -> str:
    """Look something up."""
    return f"{note}-found"


@tool(requires_confirmation=True)
def pay(note: str) -> str:
    """Pay."""
    return f"{note}-paid"


def _answer(prompt: Prompt) -> str | ToolCall | list[ToolCall]:
    """Do what the last message says: `look X`, `pay X`, `ask X`, or anything."""
    last = prompt.messages[-1]
    said = next(m.content or "" for m in reversed(prompt.messages) if m.role == "user")
    if last.role == "tool":
        return f"{said.split()[-1]}-answered"
    verb, _, words = str(said).partition(" ")
    if verb in ("look", "pay"):
        return call(verb, note=words)
    if verb == "ask":
        return call("delegate_task_to_member", member_id="helper", task=words)
    return f"{said}-said"


def make(databases: Mapping[str, str]) -> Platform:
    """Return a platform on databases `main` and `other`."""

    def model() -> ScriptedModel:
        return ScriptedModel([_answer] * 500)

    clerk = Agent(id="clerk", database="main", model=model(), tools=[look, pay])
    helper = Agent(id="helper", database="main", model=model())
    filer = Agent(id="filer", database="other", model=model(), tools=[look, pay])
    return Platform(
        databases=[Database(name, url, auto_migrate=True) for name, url in databases.items()],
        agents=[clerk, helper, filer],
        teams=[Team(id="crew", members=["helper"], database="main", model=model())],
        channels=[
            Channel(
                id="desk",
                kind="standard",
                agent="clerk",
                secret_env="SECRET",
                reply_url="http://127.0.0.1:9/replies",
                subjects=PEOPLE,
                approve=["sender"],
            )
        ],
        environ=ENVIRON,
    )


@frozen
class Planted:
    """The texts of one person."""

    user: str
    texts: tuple[str, ...]


def user_path(user: str) -> str:
    """Return how a path names a user."""
    if set(user) & set(";\\"):
        return "~base64url:" + b64encode(user.encode(), b"-_").decode().rstrip("=")
    return quote(user, safe="")


INSERT_MESSAGE: Final = Sql(
    """insert into inbox (channel, message_id, sender, payload, state, received_us, ready_us)
    values ('desk', :message_id, :sender, :payload, :state, 1, :ready_us)""",
    registered=False,
)
INSERT_REPLY: Final = Sql(
    """insert into outbox (channel, idempotency_key, recipient, payload, state, created_us,
        ready_us, message_id)
    values ('desk', :key, :recipient, :payload, :state, 1, :ready_us, :message_id)""",
    registered=False,
)
INSERT_SUMMARY: Final = Sql(
    """insert into session_summaries (owner, session_id, run_no, summary, run_id, model, at_us)
    select owner, session_id, 1, :summary, 'r', 'm', 1 from sessions where session_id = :session""",
    registered=False,
)


@frozen
class Letters(Unit[None]):
    """Letters of one person in states that are hard to reach: waiting, dead, first, notices.

    With them a summary of a session.
    """

    sender: str
    user: str
    mark: str

    def statements(self, dialect: Dialect) -> Statements[None]:
        """Insert them."""
        far_us = 1 << 60
        for state in ("ready", "dead"):
            name = f"{self.mark}-message-{state}"
            message = IncomingMessage(name, self.sender, text=f"{self.mark}-{state}-text")
            yield INSERT_MESSAGE(
                message_id=f"id-{self.sender}-{state}",
                sender=self.sender,
                payload=encode_message(message),
                state=state,
                ready_us=far_us,
            )
            yield INSERT_REPLY(
                key=f"reply-{self.sender}-{state}",
                recipient="somewhere",
                payload=json.dumps({"text": f"{self.mark}-{state}-reply"}),
                state=state,
                ready_us=far_us,
                message_id=f"id-{self.sender}-{state}",
            )
        yield INSERT_REPLY(
            key=f"first-{self.sender}",
            recipient=self.sender,
            payload=json.dumps({"text": f"{self.mark}-first-reply"}),
            state="sent",
            ready_us=far_us,
            message_id=None,
        )
        inner = json.dumps(
            {"user_id": self.user, "x": f"{self.mark}-notice"}, separators=(",", ":")
        )
        yield INSERT_REPLY(
            key=f"notify-{self.sender}",
            recipient="some run",
            payload=json.dumps({"text": inner}, ensure_ascii=False),
            state="dead",
            ready_us=far_us,
            message_id=None,
        )
        session = f"s-{self.mark.lower()}-clerk"
        yield INSERT_SUMMARY(session=session, summary=f"{self.mark}-session-summary")

    @property
    def texts(self) -> tuple[str, ...]:
        """What is in them."""
        kinds = ("ready-text", "ready-reply", "dead-text", "dead-reply", "first-reply", "notice")
        return tuple(f"{self.mark}-{kind}" for kind in (*kinds, "session-summary"))


def deliver(ask: Callable[[str, bytes], int], sender: str, mark: str) -> None:
    """Deliver a message to the channel; `ask` posts a signed delivery of this id."""
    body = {"type": "message", "data": {"sender": sender, "text": f"{mark}-channel"}}
    assert ask(f"m-{sender}", json.dumps(body).encode()) == 200


def plant(ask: Ask, user: str, mark: str) -> Planted:
    """Leave content of `user` behind; every text begins with `mark`."""
    texts: list[str] = []

    def new(kind: str, *endings: str) -> str:
        texts.append(f"{mark}-{kind}")
        texts.extend(f"{mark}-{kind}-{ending}" for ending in endings)
        return f"{mark}-{kind}"

    def run(component: str, message: str, session: str, key: str = "", **more: Any) -> Any:
        form = {"message": message, "stream": False, "session_id": session, "user_id": user}
        status, answer = ask("POST", f"/{component}/runs", {**form, **more}, key)
        assert status == 200, answer
        return answer

    base = f"s-{mark.lower()}"
    whose = f"user_id={quote(user, safe='')}"
    for agent, database in (("clerk", "main"), ("filer", "other")):
        session = f"{base}-{agent}"
        place = f"{whose}&db_id={database}"
        long = new(f"{agent}-long") + " x" * 2000
        run(
            f"agents/{agent}",
            long,
            session,
            key=f"{base}-{agent}-key",
            session_state={new(f"{agent}-statekey"): new(f"{agent}-statevalue")},
            dependencies={"d": new(f"{agent}-dependency")},
            metadata={"m": new(f"{agent}-runmetadata")},
        )
        run(f"agents/{agent}", "look " + new(f"{agent}-look", "found", "answered"), session)
        paused = run(f"agents/{agent}", "pay " + new(f"{agent}-pay"), session)
        calls = [one["tool_execution"] for one in paused["requirements"]]
        note = new(f"{agent}-note")
        tools = [{**one, "confirmed": False, "confirmation_note": note} for one in calls]
        form = {"tools": json.dumps(tools), "stream": False, "session_id": session, "user_id": user}
        path = f"/agents/{agent}/runs/{paused['run_id']}/continue"
        status, answer = ask("POST", path, form, f"{base}-{agent}-continue")
        assert status == 200, answer
        file = {
            "filename": f"{new(f'{agent}-filename')}.txt",
            "mime_type": "text/plain",
            "content": b64encode(f"{mark}-{agent}-file".encode()).decode(),
        }
        run(f"agents/{agent}", "pay " + new(f"{agent}-waits"), f"{session}-2", files=[file])
        change = {
            "session_name": new(f"{agent}-name"),
            "metadata": {"m": new(f"{agent}-metadata")},
            "summary": {"s": new(f"{agent}-summary")},
        }
        status, answer = ask("PATCH", f"/sessions/{session}?{place}", change)
        assert status == 200, answer
        status, answer = ask("POST", f"/sessions/{session}/fork?{place}", {}, f"{base}{agent}-fork")
        assert status == 201, answer
        made = {
            "session_id": f"{session}-made",
            "session_state": {"x": new(f"{agent}-made")},
            "user_id": user,
            f"{'agent'}_id": agent,
        }
        status, answer = ask("POST", f"/sessions?{place}", made, f"{base}-{agent}-made")
        assert status == 201, answer
    run("agents/clerk", new("kept", "said"), f"{base}-kept", key=f"{base}-kept")
    run("teams/crew", "ask " + new("task", "said", "answered"), f"{base}-crew")
    return Planted(user, tuple(dict.fromkeys(texts)))
