"""Legation in a test: no network, no event loop, no waiting.

* `play` runs one program against a script of its effects.
* `Simulation` runs many, on a real SQLite, in virtual time, with faults and crashes.
* `Client` puts a whole platform on a simulation and sends it requests.
"""

from __future__ import annotations

from .client import Client
from .clock import NEW_YEAR_2026, Clock
from .event_stream import NotAnEventStream, ServerSentEvent, parse_events
from .everywhere import Tried, crash_everywhere, fail_everywhere
from .exchange import BadResponse, ClientResponse, Exchange, Refused
from .faults import Crashed, Fault, Performed
from .matching import Expected
from .node import Node
from .performing import Delayed, Fetcher, Misuse, nothing_listens
from .scheduling import Deadlock, Endless, Task, Unfinished
from .scripts import OffScript, Script, close_at_every_effect, effects_of, play
from .simulation import Simulation
from .unwinding import YieldedWhileUnwinding, unwind
from .watchers import Watcher, watching

__all__ = [
    "NEW_YEAR_2026",
    "BadResponse",
    "Client",
    "ClientResponse",
    "Clock",
    "Crashed",
    "Deadlock",
    "Delayed",
    "Endless",
    "Exchange",
    "Expected",
    "Fault",
    "Fetcher",
    "Misuse",
    "Node",
    "NotAnEventStream",
    "OffScript",
    "Performed",
    "Refused",
    "Script",
    "ServerSentEvent",
    "Simulation",
    "Task",
    "Tried",
    "Unfinished",
    "Watcher",
    "YieldedWhileUnwinding",
    "close_at_every_effect",
    "crash_everywhere",
    "effects_of",
    "fail_everywhere",
    "nothing_listens",
    "parse_events",
    "play",
    "unwind",
    "watching",
]
