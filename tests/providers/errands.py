"""A platform whose agents run errands, and count outside of the process what they have done.

`legation serve tests.providers.errands:platform` serves it.  The environment names the database,
the model's server, the providers of channels and the file: each call appends one line to it in the
middle of its time, so that a kill comes before it as often as behind it.
"""

from __future__ import annotations

import os
import time
from typing import Final

from legation import Agent, Channel, Database, Model, Platform, tool
from legation.config import InDoubt

from .deliveries import ENVIRON, channels
from .model_server import KEY

__all__ = ["platform"]

_SECONDS: Final = float(os.environ["ERRANDS_SECONDS"])


def _carry_out(errand: str, place: str, name: str, key: str = "-") -> str:
    """Append a line, which no other process writes into."""
    time.sleep(_SECONDS / 2)
    file = os.open(os.environ["ERRANDS_FILE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{errand} {place} {name} {key}\n".encode())
    os.close(file)
    time.sleep(_SECONDS / 2)
    return f"{name} {place}"


def note(errand: str, place: str) -> str:
    """Do what must not be done twice."""
    return _carry_out(errand, place, "note")


@tool(again="key")
def book(errand: str, place: str, idempotency_key: str) -> str:
    """Do what is done once for each key."""
    return _carry_out(errand, place, "book", idempotency_key)


@tool(again="safe")
def look(errand: str, place: str) -> str:
    """Do what may be done any number of times."""
    return _carry_out(errand, place, "look")


def _agent(agent_id: str, in_doubt: InDoubt) -> Agent:
    return Agent(id=agent_id, model="errands", tools=[note, book, look], in_doubt=in_doubt)


def _channels() -> list[Channel]:
    base = os.environ.get("ERRANDS_PROVIDER", "http://127.0.0.1:9")
    return [channel for channel in channels(base, "teller") if channel.id == "whatsapp"]


platform = Platform(
    databases=[Database("main", os.environ["ERRANDS_URL"], auto_migrate=True)],
    models=[
        Model(
            "errands",
            "openai",
            id="gpt-test",
            base_url=f"{os.environ['ERRANDS_MODEL']}/v1",
            api_key_env="ERRANDS_KEY",
        )
    ],
    agents=[_agent("teller", "tell"), _agent("asker", "ask")],
    channels=_channels(),
    environ={**ENVIRON, "ERRANDS_KEY": KEY},
)
