"""The scene of a storm: what the nodes host, and the world outside of them, which counts.

The model does what the message says, so that what comes of a run is known before it begins, and
who asks again gets the same answer.  Tools, functions, the model and the people who get replies
note what was asked of them, and when: that cannot be undone, whatever becomes of the nodes.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from attrs import define, field, frozen

from legation import Agent, Channel, Database, Model, Platform, Team
from legation.channels.signatures import sign_standard, standard_key
from legation.config import Mode
from legation.effects import Fetch, FetchReply, OpenStream, Unreachable
from legation.tools import Tool, tool

from ..clock import Clock
from ..performing import Delayed
from ..streams import Chunks

__all__ = [
    "BY_HAND",
    "CHANNELS",
    "COMPONENTS",
    "DATABASES",
    "ENDS_IN_DOUBT",
    "FUNCTIONS",
    "RESULTS",
    "Scene",
    "Script",
    "SentReply",
    "contents_of",
    "sign",
]

DATABASES: Final = ("main", "second")
COMPONENTS: Final[Mapping[str, tuple[str, str]]] = {
    "clerk": ("agents", "main"),
    "porter": ("agents", "second"),
    "guard": ("agents", "main"),
    "form": ("agents", "main"),
    "worker": ("agents", "main"),
    "steady": ("agents", "second"),
    "desk": ("teams", "main"),
    "window": ("teams", "main"),
    "panel": ("teams", "main"),
    "house": ("teams", "main"),
}
"""What runs are asked of: the path of its kind, and its database."""

ENDS_IN_DOUBT: Final = ("guard",)
"""The agents whose runs end where it is in doubt whether a tool was carried out."""

BY_HAND: Final = "done by hand"
"""The result that a person says a call had, of which it was in doubt."""

RESULTS: Final = {"use": "done", "permit": "done", "look": "seen", "book": "booked"}
"""The tools, and what they return."""

FUNCTIONS: Final = ("worker", "steady")
"""The agents that are functions: one may be called again, and one may not."""

CHANNELS: Final = {"letters": "clerk", "slips": "worker"}
"""The channels, with the agents that answer there."""

_MEMBERS: Final = ("helper", "aide")
_TEAMS: Final[Mapping[str, tuple[Mode, tuple[str, ...]]]] = {
    "desk": ("coordinate", _MEMBERS),
    "window": ("route", _MEMBERS),
    "panel": ("collaborate", _MEMBERS),
    "house": ("coordinate", ("desk", "window", "panel", "helper")),
}
"""The teams: their modes and their members."""

_SCHEMA: Final = {
    "type": "object",
    "properties": {"said": {"type": "string"}},
    "required": ["said"],
    "additionalProperties": False,
}
_SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105  of nobody
_KEY: Final = standard_key(_SECRET)
_ENVIRON: Final = {"STORM_SECRET": _SECRET, "STORM_KEY": "key"}
_MODEL: Final = "http://model.invalid"
_HEAD_SECONDS: Final = 0.25
_PIECE_SECONDS: Final = 0.5
_SILENT: Final = Delayed(math.inf, Unreachable("timeout"))
_STREAM: Final = {"content-type": "text/event-stream"}
_NONSENSE: Final = FetchReply(200, {"content-type": "application/json"}, b'{"colour": "green"}')

Answer: TypeAlias = FetchReply | Chunks | Unreachable | Delayed


@frozen
class Script:
    """The script of a run, one step for each answer of the model: `#name step step …`.

    `use:1.5` calls a tool that takes so long, and `use:1+look:0` two side by side.  `use` may not
    be called again, `look` may, and `book` under the same key; `permit` is one that a person has to
    confirm.  `helper(use:1,say:2)` gives a member of the team this script.  `say:3` answers in so
    many pieces, and is the end; without it the answer is one piece.  `botch` answers in a shape
    that was not asked for.  `each(use:1)`, the first, is for the members of a team that asks all.
    """

    name: str
    steps: tuple[str, ...]

    @classmethod
    def of(cls, text: str, component: str = "") -> Script:
        """Return the script in `text`, as it is for `component`."""
        name, *steps = text[text.index("#") + 1 :].split()
        if component in _MEMBERS and steps and steps[0].startswith("each("):
            return cls(f"{name}/0.{component}", _divide(_inner(steps[0]), ","))
        return cls(name, tuple(steps))

    @property
    def top(self) -> str:
        """The name of the run that this is a part of."""
        return self.name.partition("/")[0]

    def step(self, number: int) -> str:
        """Return the step of this number; `say:1` behind the last."""
        return self.steps[number] if number < len(self.steps) else "say:1"

    def calls(self, number: int) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the calls of a step: the name of the tool, and its arguments."""
        for index, call in enumerate(_divide(self.step(number), "+")):
            place = f"{number}.{index}"
            if call.endswith(")"):
                steps = " ".join(_divide(_inner(call), ","))
                task = f"#{self.name}/{place} {steps}"
                member = call.partition("(")[0]
                yield "delegate_task_to_member", {"member_id": member, "task": task}
            else:
                kind, _, seconds = call.partition(":")
                arguments = {"name": self.name, "place": place, "seconds": float(seconds)}
                yield kind, arguments

    @property
    def pieces(self) -> tuple[str, ...]:
        """The pieces of its last answer."""
        kind, _, size = self.step(max(0, len(self.steps) - 1)).partition(":")
        return (
            (self.name, *(f" {n}" for n in range(1, int(size)))) if kind == "say" else (self.name,)
        )

    @property
    def seconds(self) -> float:
        """The seconds that a function takes for it: those of all of its calls, and to begin."""
        calls = [call for number in range(len(self.steps)) for call in self._wait_seconds(number)]
        return _HEAD_SECONDS + sum(calls)

    def _wait_seconds(self, number: int) -> Iterator[float]:
        if not self.step(number).startswith(("say", "botch")):
            yield from (arguments.get("seconds", 0.0) for _, arguments in self.calls(number))


def _inner(call: str) -> str:
    """Return what stands between the outer parentheses."""
    return call[call.index("(") + 1 : -1]


def _divide(text: str, separator: str) -> tuple[str, ...]:
    """Return the parts of `text` between the separators that stand in no parentheses."""
    parts, depth = [""], 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == separator and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return tuple(parts)


def contents_of(component: str, text: str) -> tuple[Any, ...]:
    """Return what a complete run of `component` may have answered to the message `text`."""
    script = Script.of(text, component)
    said = "".join(script.pieces)
    if component == "form":
        return ({"said": said},)
    if component in FUNCTIONS:
        return said, BY_HAND
    mode, _ = _TEAMS.get(component, (None, ()))
    if mode != "route":
        return (said,)
    # Where the member failed, the leader answers.
    chosen = [(a["member_id"], a["task"]) for _, a in script.calls(0) if "task" in a]
    return (said, *(one for call in chosen for one in contents_of(*call)))


def sign(message_id: str, now_us: int, body: bytes) -> tuple[tuple[str, str], ...]:
    """Return the header fields of a delivery of `body`."""
    seconds = str(now_us // 1_000_000)
    (signature,) = sign_standard((_KEY,), message_id.encode(), seconds.encode(), body)
    return (
        ("webhook-id", message_id),
        ("webhook-timestamp", seconds),
        ("webhook-signature", signature.decode()),
        ("content-type", "application/json"),
    )


@frozen
class SentReply:
    """A reply as it came: in answer to which message, under which key."""

    recipient: str
    message: str
    key: str
    text: str


@define(eq=False)
class Scene:
    """The world outside, by a clock that nobody sets.

    Attributes:
        troubles: The kinds of what misbehaves next, by who does.
        carried_out: How often each call of a tool, or of a function, was carried out: by the kind,
            its script and its place.
        keys: The keys under which each call of a tool that takes one was carried out.
        asked: How often the model was asked for each answer and gave it, by script and number.
        last: The time at which the model or a tool was last asked, by the script at the top.
        seen: The replies that people saw: one for each key, in order.
        repeats: How many replies came under a key that was there.
    """

    clock: Clock
    troubles: dict[str, list[str]] = field(factory=dict[str, list[str]])
    carried_out: Counter[tuple[str, str, str]] = field(factory=Counter[tuple[str, str, str]])
    keys: dict[tuple[str, str], set[str]] = field(factory=dict[tuple[str, str], set[str]])
    asked: Counter[tuple[str, int]] = field(factory=Counter[tuple[str, int]])
    last: dict[str, float] = field(factory=dict[str, float])
    seen: dict[str, SentReply] = field(factory=dict[str, SentReply])
    repeats: int = 0
    _tools: tuple[Tool, ...] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._tools = self._make_tools()

    def platform(self, lease_seconds: float) -> Platform:
        """Return what a node hosts, with nothing in its memory."""
        agents = [
            self._agent("clerk"),
            self._agent("porter", database="second", in_doubt="tell"),
            self._agent("guard", in_doubt="end"),
            self._agent("form", output_schema=_SCHEMA),
            *(self._agent(name) for name in _MEMBERS),
            Agent(id="worker", run=self._work("worker")),
            Agent(id="steady", run=self._work("steady"), database="second", again="safe"),
        ]
        teams = [
            Team(id=name, mode=mode, members=members, **self._settings(name))
            for name, (mode, members) in _TEAMS.items()
        ]
        return Platform(
            environ=_ENVIRON,
            databases=[Database(name, "sqlite://") for name in DATABASES],
            models=[
                Model(
                    name, "openai", id=name, base_url=_MODEL, api_key_env="STORM_KEY",
                    timeout_seconds=4.0, idle_seconds=3.0, retries=2,
                )
                for name in (*(one.id for one in agents if one.run is None), *_TEAMS)
            ],
            agents=agents,
            teams=teams,
            channels=[_channel(name, agent) for name, agent in CHANNELS.items()],
            lease_seconds=lease_seconds,
        )  # fmt: skip

    def _agent(self, name: str, **options: Any) -> Agent:
        return Agent(id=name, **self._settings(name), **options)

    def _settings(self, name: str) -> dict[str, Any]:
        """Return the settings that all agents with a model have, and all teams."""
        tools = self._tools
        return {"model": name, "history_runs": 1, "tools": tools, "tool_timeout_seconds": 5.0}

    def _make_tools(self) -> tuple[Tool, ...]:
        @tool
        def use(name: str, place: str, seconds: float) -> str:
            """Use a thing."""
            self.carry_out("use", name, place)
            return RESULTS["use"]

        @tool(requires_confirmation=True)
        def permit(name: str, place: str, seconds: float) -> str:
            """Use a thing that not everybody may use."""
            self.carry_out("permit", name, place)
            return RESULTS["permit"]

        @tool(again="safe")
        def look(name: str, place: str, seconds: float) -> str:
            """Look at a thing."""
            self.carry_out("look", name, place)
            return RESULTS["look"]

        @tool(again="key")
        def book(name: str, place: str, seconds: float, idempotency_key: str) -> str:
            """Book a thing, once for each key."""
            self.carry_out("book", name, place)
            self.keys.setdefault((name, place), set()).add(idempotency_key)
            return RESULTS["book"]

        return use, permit, look, book

    def _work(self, component: str) -> Callable[[str], str]:
        def work(message: str) -> str:
            script = Script.of(message)
            self.carry_out(component, script.name, "")
            return "".join(script.pieces)

        return work

    def carry_out(self, kind: str, name: str, place: str) -> None:
        """Count a call of a tool."""
        self.carried_out[kind, name, place] += 1
        self.last[name.partition("/")[0]] = self.clock.elapsed

    def take_trouble(self, who: str) -> str:
        """Return how `who` misbehaves now; empty where it does not."""
        waiting = self.troubles.get(who)
        return waiting.pop(0) if waiting else ""

    def fetch(self, effect: Fetch | OpenStream) -> Answer:
        """Be the network."""
        if effect.url.startswith(_MODEL):
            trouble = self.take_trouble("model")
            return _answer_as(trouble, self._ask_model(effect, counts=not trouble))
        trouble = self.take_trouble("people")
        if trouble in ("", "cut"):
            self._take_reply(effect)
        return _answer_as(trouble, FetchReply(200, {}, b""))

    def _take_reply(self, effect: Fetch | OpenStream) -> None:
        data = json.loads(effect.body)["data"]
        key = dict(effect.headers)["webhook-id"]
        self.repeats += key in self.seen
        reply = SentReply(data["recipient"], data["in_reply_to"], key, data["text"])
        self.seen.setdefault(key, reply)

    def _ask_model(self, effect: Fetch | OpenStream, *, counts: bool) -> Chunks:
        """Answer as the script says; no two answers cost the same."""
        body: dict[str, Any] = json.loads(effect.body)
        messages: list[dict[str, Any]] = body["messages"]
        last = max(at for at, message in enumerate(messages) if _is_asked(message))
        script = Script.of(messages[last]["content"], body["model"])
        self.last[script.top] = self.clock.elapsed
        number = sum(message["role"] == "assistant" for message in messages[last:])
        self.asked[script.name, number] += counts
        tokens = {"prompt_tokens": self.asked.total() + 100, "completion_tokens": number + 1}
        step = script.step(number)
        if step == "botch":
            return _say(("nothing",), tokens)
        if not step.startswith("say"):
            return _call(tuple(script.calls(number)), tokens)
        pieces = script.pieces
        if body["model"] == "form":
            pieces = ('{"said": "', *pieces, '"}')
        return _say(pieces, tokens)


def _channel(name: str, agent: str) -> Channel:
    return Channel(
        id=name,
        kind="standard",
        agent=agent,
        secret_env="STORM_SECRET",  # noqa: S106  the name of a variable
        reply_url=f"http://people.invalid/{name}",
    )


def _is_asked(message: Mapping[str, Any]) -> bool:
    """Tell whether this is what a user asked, and not what is wrong with an answer."""
    return message["role"] == "user" and str(message["content"]).startswith("#")


def _say(pieces: Sequence[str], tokens: Mapping[str, int]) -> Chunks:
    return _stream([_chunk({"content": piece}) for piece in pieces], "stop", tokens)


def _call(calls: Sequence[tuple[str, dict[str, Any]]], tokens: Mapping[str, int]) -> Chunks:
    made = [
        {"index": index, "id": f"call-{index}", "type": "function",
         "function": {"name": name, "arguments": json.dumps(arguments)}}
        for index, (name, arguments) in enumerate(calls)
    ]  # fmt: skip
    return _stream([_chunk({"tool_calls": made})], "tool_calls", tokens)


def _stream(chunks: list[bytes], finish: str, tokens: Mapping[str, int]) -> Chunks:
    chunks = [*chunks, _chunk({}, finish, tokens) + b"data: [DONE]\n\n"]
    return Chunks(200, _STREAM, chunks, [_HEAD_SECONDS, *[_PIECE_SECONDS] * (len(chunks) - 1)])


def _chunk(
    delta: dict[str, Any], finish: str | None = None, tokens: Mapping[str, int] | None = None
) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    data = {"choices": [choice], "usage": tokens}
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def _answer_as(trouble: str, answer: Answer) -> Answer:
    """Return what comes of `answer` with this trouble."""
    match trouble:
        case "refuses":
            return Delayed(_HEAD_SECONDS, Unreachable("connect"))
        case "overloaded":
            return Delayed(_HEAD_SECONDS, FetchReply(503, {"retry-after": "1"}, b""))
        case "silent":
            return _SILENT
        case "nonsense":
            return Delayed(_HEAD_SECONDS, _NONSENSE)
        case "cut" if isinstance(answer, Chunks):
            half = len(answer.chunks) // 2
            chunks = (*answer.chunks[:half], answer.chunks[half][:20])
            return Chunks(200, _STREAM, chunks, answer.delays, Unreachable("protocol"))
        case "cut":
            return Delayed(_HEAD_SECONDS, Unreachable("timeout"))
        case _:
            return answer
