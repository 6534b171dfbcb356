"""The steps of one hosted run of agno: by which key and which id each is found again.

Members of a team ask their models side by side, in no order that would be the same again.  So the
key of an answer says which delegations led to it, whose it is and what for.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Final

from attrs import define, field

from .recorder import Recorder, Usage

__all__ = ["PATH", "STEPS", "Flow", "Steps", "plain"]

PATH: Final[ContextVar[tuple[str, ...]]] = ContextVar("agno_path", default=())
"""The ids of the delegations that are under way, outermost first."""
_AHEAD: Final = 64
"""How many pieces a step may be ahead of who takes them."""
_END: Final = object()


def plain(value: Any) -> Any:
    """Return `value` as JSON; what has no form in JSON is its text."""
    return json.loads(json.dumps(value, default=_plain))


def _plain(value: Any) -> Any:
    for name in ("to_dict", "model_dump"):
        if callable(made := getattr(value, name, None)):
            return made()
    return str(value)


@define(eq=False)
class Steps:
    """The steps of one attempt at a run.

    Attributes:
        recorder: Records them.
        ids: Of the agents that have the same one in every attempt.
        gates: By identity of a call, what a person has to do before it.
        flows: Steps that are taken in tasks of their own.
        failure: What the model raised that failed last.
    """

    recorder: Recorder
    ids: frozenset[str]
    gates: dict[int, str] = field(factory=dict[int, str], init=False)
    flows: set[asyncio.Future[Any]] = field(factory=set[asyncio.Future[Any]], init=False)
    failure: Exception | None = field(default=None, init=False)

    async def model(
        self, model: Any, run: Any, ask: Callable[[], Awaitable[Any]], usage: Callable[[Any], Usage]
    ) -> Any:
        """Return the recorded answer of a model, or that of `ask`, which is recorded.

        Args:
            model: Of agno.
            run: agno's run of the agent or the team that asks; None if something else does.
            ask: Asks it, and returns the answer.
            usage: Reads the tokens of an answer.
        """
        whose = getattr(run, "agent_id", None) or getattr(run, "team_id", None)
        asks = model.recorded_purpose or model.model_type.value
        key = "/".join((*PATH.get(), whose if whose in self.ids else "", asks))

        async def answer() -> Any:
            try:
                return plain(await ask())
            except Exception as error:
                self.failure = error
                raise

        return await self.recorder.model(
            model.id, answer, usage=usage, provider=model.provider or "", key=key
        )

    def name_call(self, member: str, call_id: str | None) -> str:
        """Return the id of a call of a tool.

        Providers number them anew for each request, and members ask side by side: that of a
        member's call begins with the delegation's and the id of the member.
        """
        path = PATH.get()
        return ".".join((*path, *([member] if path else []), call_id or "call"))

    async def close(self, *tasks: asyncio.Future[Any]) -> None:
        """Cancel `tasks` and what is under way; return when they have ended."""
        doomed = {*tasks, *self.flows}
        for one in doomed:
            one.cancel()
        await asyncio.gather(*doomed, return_exceptions=True)


STEPS: Final[ContextVar[Steps | None]] = ContextVar("agno_steps", default=None)
"""The steps of the run that is under way; None outside of a hosted run."""


@define(eq=False)
class Flow:
    """A step whose pieces are taken while it is.

    Attributes:
        steps: Of the run.
        result: Of the step, after its last piece.
    """

    steps: Steps
    result: Any = field(default=None, init=False)
    _pieces: asyncio.Queue[Any] = field(factory=asyncio.Queue[Any], init=False)
    _room: asyncio.Semaphore = field(factory=lambda: asyncio.Semaphore(_AHEAD), init=False)

    async def put(self, piece: Any) -> None:
        """Give a piece, as soon as there is room for it."""
        await self._room.acquire()
        self._pieces.put_nowait(piece)

    async def take(self, step: Callable[[], Awaitable[Any]]) -> AsyncGenerator[Any]:
        """Take the step in a task of its own, and yield each piece."""
        task = asyncio.ensure_future(self._take(step))
        self.steps.flows.add(task)
        task.add_done_callback(self.steps.flows.discard)
        try:
            while (piece := await self._pieces.get()) is not _END:
                self._room.release()
                yield piece
            self.result = await task
        finally:
            task.cancel()

    async def _take(self, step: Callable[[], Awaitable[Any]]) -> Any:
        try:
            return await step()
        finally:
            self._pieces.put_nowait(_END)
