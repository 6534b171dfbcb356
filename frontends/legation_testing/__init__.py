"""Legation in a test: no network, no event loop, no waiting.

* `play` runs one program against a script of its effects.
* `Simulation` runs many, on a real SQLite, in virtual time, with faults and crashes.
* `Client` puts a whole platform on a simulation and sends it requests.
* `ScriptedModel` is a model that says what the test wrote down for it.
* `storm` lets a test of yours stand a crash at every point, and reports on it by tool.
* `Recording` takes a run of production once more, as a test.
* `Storm` lets seeds choose what befalls several nodes of a whole platform, and judges it.
* `check_host` holds a host of your own to its contract.
"""

from __future__ import annotations

from .cached_model import CachedModel
from .client import Answers, Client
from .clock import NEW_YEAR_2026, Clock
from .event_stream import NotAnEventStream, ServerSentEvent, parse_events
from .everywhere import Trials, crash_everywhere, fail_everywhere
from .exchange import BadResponse, ClientResponse, Exchange, Refused
from .faults import Crashed, Performed, PlannedFault
from .host_kit import (
    AsyncHost,
    BrokenHost,
    BrokenRule,
    Case,
    HostSetup,
    HostUnderTest,
    MakeHost,
    Report,
    check_host,
    host_cases,
    portal_host,
)
from .matching import Expected
from .misuse import Misuse
from .node import Node
from .performing import Delayed, Fetcher, refuse_connections
from .points import Point
from .replaying import Divergence, NotARecording, Recording, Replayed
from .run_events import (
    ModelRequestCompleted,
    ModelRequestStarted,
    PostHookCompleted,
    PostHookStarted,
    PreHookCompleted,
    PreHookStarted,
    RunCancelled,
    RunCompleted,
    RunContent,
    RunContentCompleted,
    RunContinued,
    RunError,
    RunEvent,
    RunPaused,
    RunStarted,
    ToolCallCompleted,
    ToolCallError,
    ToolCallStarted,
)
from .run_results import RunFields, RunMetrics, RunRequirement, RunResult, RunStatus, ToolExecution
from .scheduling import Deadlock, Endless, NoResult, Task
from .scripted_model import Says, ScriptedModel, call
from .scripts import Each, OffScript, Script, close_at_every_effect, effects_of, play
from .simulation import Simulation
from .streams import Chunks
from .swarm import PromiseBroken, Storm
from .tool_storm import (
    MODEL_FAULTS,
    ModelFault,
    StormEnds,
    StormOptions,
    StormWorld,
    ToolStormReport,
    ToolTally,
    WithinTally,
    storm,
    try_storm,
)
from .unwinding import YieldedWhileUnwinding, unwind
from .watchers import Watcher, watch_responses

__all__ = [
    "MODEL_FAULTS",
    "NEW_YEAR_2026",
    "Answers",
    "AsyncHost",
    "BadResponse",
    "BrokenHost",
    "BrokenRule",
    "CachedModel",
    "Case",
    "Chunks",
    "Client",
    "ClientResponse",
    "Clock",
    "Crashed",
    "Deadlock",
    "Delayed",
    "Divergence",
    "Each",
    "Endless",
    "Exchange",
    "Expected",
    "Fetcher",
    "HostSetup",
    "HostUnderTest",
    "MakeHost",
    "Misuse",
    "ModelFault",
    "ModelRequestCompleted",
    "ModelRequestStarted",
    "NoResult",
    "Node",
    "NotARecording",
    "NotAnEventStream",
    "OffScript",
    "Performed",
    "PlannedFault",
    "Point",
    "PostHookCompleted",
    "PostHookStarted",
    "PreHookCompleted",
    "PreHookStarted",
    "PromiseBroken",
    "Recording",
    "Refused",
    "Replayed",
    "Report",
    "RunCancelled",
    "RunCompleted",
    "RunContent",
    "RunContentCompleted",
    "RunContinued",
    "RunError",
    "RunEvent",
    "RunFields",
    "RunMetrics",
    "RunPaused",
    "RunRequirement",
    "RunResult",
    "RunStarted",
    "RunStatus",
    "Says",
    "Script",
    "ScriptedModel",
    "ServerSentEvent",
    "Simulation",
    "Storm",
    "StormEnds",
    "StormOptions",
    "StormWorld",
    "Task",
    "ToolCallCompleted",
    "ToolCallError",
    "ToolCallStarted",
    "ToolExecution",
    "ToolStormReport",
    "ToolTally",
    "Trials",
    "Watcher",
    "WithinTally",
    "YieldedWhileUnwinding",
    "call",
    "check_host",
    "close_at_every_effect",
    "crash_everywhere",
    "effects_of",
    "fail_everywhere",
    "host_cases",
    "parse_events",
    "play",
    "portal_host",
    "refuse_connections",
    "storm",
    "try_storm",
    "unwind",
    "watch_responses",
]
