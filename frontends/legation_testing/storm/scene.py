"""The scene of a storm: what the nodes host, and the world outside of them, which counts.

The model does what the message says, so that what comes of a run is known before it begins, and
who asks again gets the same answer.  Tools, the model and the people who get replies note what was
asked of them, and when: that cannot be undone, whatever becomes of the nodes.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from attrs import define, field, frozen

from legation import Agent, Channel, Database, Model, Platform, Team
from legation.channels.signatures import sign_standard, standard_key
from legation.effects import Fetch, FetchReply, OpenStream, Unreachable
from legation.tools import tool

from ..clock import Clock
from ..performing import Delayed
from ..streams import Chunks

__all__ = ["CHANNEL", "COMPONENTS", "DATABASES", "Scene", "Script", "SentReply", "sign"]

DATABASES: Final = ("main", "second")
COMPONENTS: Final[Mapping[str, tuple[str, str]]] = {
    "clerk": ("agents", "main"),
    "porter": ("agents", "second"),
    "desk": ("teams", "main"),
}
"""What runs are asked of: the path of its kind, and its database."""

CHANNEL: Final = "letters"

_SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105  of nobody
_KEY: Final = standard_key(_SECRET)
_ENVIRON: Final = {"STORM_SECRET": _SECRET, "STORM_KEY": "key"}
_MODEL: Final = "http://model.invalid"
_MEMBER: Final = "helper"
_HEAD_SECONDS: Final = 0.25
_PIECE_SECONDS: Final = 0.5
_SILENT: Final = Delayed(math.inf, Unreachable("timeout"))
_STREAM: Final = {"content-type": "text/event-stream"}
_NONSENSE: Final = FetchReply(200, {"content-type": "application/json"}, b'{"colour": "green"}')

Answer: TypeAlias = FetchReply | Chunks | Unreachable | Delayed


@frozen
class Script:
    """The script of a run, one step for each answer of the model: `#name step step …`.

    `use:1.5` calls a tool that takes so long, `use:1+0` two side by side; `permit:1` one that a
    person has to confirm; `member:use:1,say:2` gives a member of the team this script.  `say:3`
    answers in so many pieces, and is the end; without it the answer is one piece.
    """

    name: str
    steps: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> Script:
        """Return the script in `text`."""
        name, *steps = text[text.index("#") + 1 :].split()
        return cls(name, tuple(steps))

    def step(self, number: int) -> tuple[str, str]:
        """Return the kind of the step of this number, and its argument; `say` behind the last."""
        step = self.steps[number] if number < len(self.steps) else "say:1"
        kind, _, argument = step.partition(":")
        return kind, argument

    @property
    def pieces(self) -> tuple[str, ...]:
        """The pieces of its last answer."""
        kind, size = self.step(max(0, len(self.steps) - 1))
        return (
            (self.name, *(f" {n}" for n in range(1, int(size)))) if kind == "say" else (self.name,)
        )


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
        carried_out: How often each call of a tool was carried out, by its script and place.
        last: The time at which the model or a tool was last asked, by the script.
        seen: The replies that people saw: one for each key, in order.
        repeats: How many replies came under a key that was there.
        reached: The states that the scene itself saw, see `sometimes`.
    """

    clock: Clock
    troubles: dict[str, list[str]] = field(factory=dict[str, list[str]])
    carried_out: Counter[tuple[str, str]] = field(factory=Counter[tuple[str, str]])
    last: dict[str, float] = field(factory=dict[str, float])
    seen: dict[str, SentReply] = field(factory=dict[str, SentReply])
    repeats: int = 0

    def platform(self, lease_seconds: float) -> Platform:
        """Return what a node hosts, with nothing in its memory."""

        def use(name: str, place: str, seconds: float) -> str:
            """Use a thing."""
            self.carry_out(name, place)
            return "done"

        @tool(requires_confirmation=True)
        def permit(name: str, place: str, seconds: float) -> str:
            """Use a thing that not everybody may use."""
            self.carry_out(name, place)
            return "done"

        model = Model(
            "model", "openai", id="m", base_url=_MODEL, api_key_env="STORM_KEY",
            timeout_seconds=4.0, idle_seconds=3.0, retries=2,
        )  # fmt: skip
        same: dict[str, Any] = {"model": "model", "history_runs": 1, "tools": (use, permit),
                                "tool_timeout_seconds": 5.0}  # fmt: skip
        clerk, helper = Agent(id="clerk", **same), Agent(id=_MEMBER, **same)
        porter = Agent(id="porter", database="second", **same)
        letters = Channel(
            id=CHANNEL,
            kind="standard",
            agent="clerk",
            secret_env="STORM_SECRET",  # noqa: S106  the name of a variable
            reply_url="http://people.invalid/letters",
        )
        return Platform(
            environ=_ENVIRON,
            databases=[Database(name, "sqlite://") for name in DATABASES],
            models=[model],
            agents=[clerk, helper, porter],
            teams=[Team(id="desk", members=[_MEMBER], **same)],
            channels=[letters],
            lease_seconds=lease_seconds,
        )

    def carry_out(self, name: str, place: str) -> None:
        """Count a call of a tool."""
        self.carried_out[name, place] += 1
        self.last[name] = self.clock.elapsed

    def take_trouble(self, who: str) -> str:
        """Return how `who` misbehaves now; empty where it does not."""
        waiting = self.troubles.get(who)
        return waiting.pop(0) if waiting else ""

    def fetch(self, effect: Fetch | OpenStream) -> Answer:
        """Be the network."""
        if effect.url.startswith(_MODEL):
            return _answer_as(self.take_trouble("model"), self._ask_model(effect))
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

    def _ask_model(self, effect: Fetch | OpenStream) -> Chunks:
        messages: list[dict[str, Any]] = json.loads(effect.body)["messages"]
        last = max(at for at, message in enumerate(messages) if message["role"] == "user")
        script = Script.of(messages[last]["content"])
        self.last[script.name] = self.clock.elapsed
        number = sum(message["role"] == "assistant" for message in messages[last:])
        kind, argument = script.step(number)
        if kind == "say":
            return _say(script.pieces)
        return _call(_calls(script, number, kind, argument))


def _calls(
    script: Script, number: int, kind: str, argument: str
) -> Sequence[tuple[str, dict[str, Any]]]:
    """Return the calls of a step: the name of the tool, and its arguments."""
    if kind == "member":
        task = f"#{script.name}/{number} {argument.replace(',', ' ')}"
        return [("delegate_task_to_member", {"member_id": _MEMBER, "task": task})]
    return [
        (kind, {"name": script.name, "place": f"{number}.{index}", "seconds": float(seconds)})
        for index, seconds in enumerate(argument.split("+"))
    ]


def _say(pieces: Sequence[str]) -> Chunks:
    return _stream([_chunk({"content": piece}) for piece in pieces], "stop")


def _call(calls: Sequence[tuple[str, dict[str, Any]]]) -> Chunks:
    made = [
        {"index": index, "id": f"call-{index}", "type": "function",
         "function": {"name": name, "arguments": json.dumps(arguments)}}
        for index, (name, arguments) in enumerate(calls)
    ]  # fmt: skip
    return _stream([_chunk({"tool_calls": made})], "tool_calls")


def _stream(chunks: list[bytes], finish: str) -> Chunks:
    chunks = [*chunks, _chunk({}, finish) + b"data: [DONE]\n\n"]
    return Chunks(200, _STREAM, chunks, [_HEAD_SECONDS, *[_PIECE_SECONDS] * (len(chunks) - 1)])


def _chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


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
