"""The recorder of a run, which stores what a framework does before it is done.

From an attempt before it gives back what is stored.  All of it is called on the framework's loop.
A framework has to do the same things in the same order when it is given the same answers: answers
of models are found by their key and order, and calls by their ids.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Final, TypeAlias

from attrs import define, field, frozen

from legation import CallStep, FinalAnswer, ModelStep, Run, ToolError
from legation.models.conversation import Usage

from .crossing import Crossing
from .loop_thread import LOOP_THREAD

__all__ = ["Approval", "Asked", "Record", "Recorder", "ToolFailed", "Usage", "host"]

_FAILED: Final = "The tool failed ({})"
_TICKS: Final = 8  # of the loop, for questions that are asked side by side to gather


class ToolFailed(Exception):
    """A tool failed, now or in an attempt before; the text is for the model."""


@frozen
class Approval:
    """The answer of a person: whether a call may be made, and what was said about it.

    Attributes:
        result: What came of a call that the client makes.
    """

    confirmed: bool
    note: str | None = None
    result: Any = None


@frozen
class Asked:
    """A call that a person is asked about, or that the client makes: one that is `external`."""

    call_id: str
    name: str
    arguments: dict[str, Any]
    idempotent: bool = False
    external: bool = False


_ABOVE: ContextVar[tuple[object, ...]] = ContextVar("calls that this one is part of", default=())


@define(eq=False)
class Recorder:
    """Records what the framework of one run does.

    Attributes:
        message: The message of the run.
        history: The conversation of the session so far, each with `role` and `content`.
        state: The state of the session; changes are stored with the end of the run.
        run: All else that is known of the run.
    """

    message: str
    history: list[dict[str, str]]
    state: dict[str, Any]
    run: Run
    crossing: Crossing
    _working: set[object] = field(factory=set[object], init=False)
    _blocked: set[object] = field(factory=set[object], init=False)
    _asking: list[tuple[CallStep, asyncio.Future[None]]] = field(
        factory=list[tuple[CallStep, "asyncio.Future[None]"]], init=False
    )
    _changed: asyncio.Event = field(factory=asyncio.Event, init=False)
    _gathering: asyncio.Task[None] | None = field(default=None, init=False)
    _approved: dict[str, list[CallStep]] = field(factory=dict[str, list[CallStep]], init=False)

    @property
    def user_id(self) -> str | None:
        """The user who asks; None where nobody has a name."""
        return self.run.user_id

    @property
    def session_id(self) -> str:
        """The session of the run."""
        return self.run.session_id

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self.run.run_id

    def hear(self, text: str) -> None:
        """Stream a piece of the answer."""
        self.crossing.hear(text)

    async def model(
        self,
        name: str,
        ask: Callable[[], Awaitable[Any]],
        *,
        usage: Callable[[Any], Usage],
        provider: str = "",
        key: str = "",
    ) -> Any:
        """Return the answer of a model: that which is recorded, else what `ask` returns.

        Args:
            name: The id of the model.
            ask: Asks the model; its answer has to be JSON, and may be heard meanwhile.
            usage: Returns what an answer cost.
            provider: Whose model it is.
            key: What asks, where several ask side by side, such as the members of a team.
        """
        step = ModelStep(name, provider, key)
        with self._at_work():
            await self._send(step)
            if not step.done:
                answer = await ask()
                await self._send(step.answered(answer, usage(answer)))
        return step.answer

    async def tool(
        self,
        call_id: str,
        name: str,
        arguments: dict[str, Any],
        call: Callable[[], Awaitable[Any]],
        *,
        idempotent: bool = False,
    ) -> Any:
        """Return what a tool returned: as it is recorded, else what `call` returns.

        Args:
            call_id: The id of the call, as the model gave it.
            name: The name of the tool.
            arguments: JSON.
            call: Makes the call; what it returns has to be JSON, or dataclasses and the like.
            idempotent: It may be made again after a crash, as a delegation may, whose own calls
                are recorded.

        Raises:
            ToolFailed: The tool failed; `ToolFailed` of `call` says why in words for the model.
        """
        step = self._take_approved(call_id)
        with self._at_work():
            if step is None:
                step = _make_step(Asked(call_id, name, arguments, idempotent))
                await self._send(step)
            if not step.done:
                await self._make(step, call)
        if step.failed:
            raise ToolFailed(step.result)
        return step.result

    async def _make(self, step: CallStep, call: Callable[[], Awaitable[Any]]) -> None:
        """Make a call, and record what comes of it."""
        try:
            result = await call()
        except Exception as error:
            words = error.args[:1] if isinstance(error, ToolFailed | ToolError) else ()
            sentence = str(words[0]) if words else _FAILED.format(type(error).__name__)
            await self._send(step.raised(sentence))
            raise ToolFailed(step.result) from error
        await self._send(step.returned(result))

    async def approve(
        self, call_id: str, name: str, arguments: dict[str, Any], *, idempotent: bool = False
    ) -> Approval:
        """Return what a person said about a call; the run pauses until there is an answer.

        The answer does not come back then: this coroutine is cancelled, and its function is called
        anew.  A call that is approved is made by `tool`, with the same id.  Whatever is under way
        beside it comes to its end first, and is recorded.
        """
        (approval,) = await self.approve_all([Asked(call_id, name, arguments, idempotent)])
        return approval

    async def approve_all(self, asked: Sequence[Asked]) -> list[Approval]:
        """Return what a person said about several calls, in their order; as `approve`."""
        steps = [_make_step(one, confirm=True) for one in asked]
        waiting = [(step, asyncio.get_running_loop().create_future()) for step in steps]
        above = _ABOVE.get()
        self._blocked.update(above)
        self._asking += waiting
        self._changed.set()
        if self._gathering is None:
            self._gathering = asyncio.create_task(self._gather())
        await asyncio.gather(*(future for _, future in waiting))
        self._blocked.difference_update(above)
        return [self._approval(one, step) for one, step in zip(asked, steps, strict=True)]

    def close(self) -> None:
        """Ask nobody any more."""
        if self._gathering is not None:
            self._gathering.cancel()

    def _approval(self, asked: Asked, step: CallStep) -> Approval:
        if asked.external:
            return Approval(confirmed=not step.failed, note=step.note, result=step.result)
        if step.confirmed is False and step.failed:
            return Approval(confirmed=False, note=step.note)
        self._approved.setdefault(asked.call_id, []).append(step)
        return Approval(confirmed=True, note=step.note)

    def _take_approved(self, call_id: str) -> CallStep | None:
        steps = self._approved.get(call_id)
        return steps.pop(0) if steps else None

    async def _gather(self) -> None:
        """Ask people, as soon as nothing else is under way."""
        try:
            while self._asking:
                for _ in range(_TICKS):
                    await asyncio.sleep(0)
                if self._working - self._blocked:
                    self._changed.clear()
                    await self._changed.wait()
                    continue
                asking, self._asking = self._asking, []
                await self._send(tuple(step for step, _ in asking))
                for _, future in asking:
                    if not future.done():
                        future.set_result(None)
        finally:
            self._gathering = None

    @contextmanager
    def _at_work(self) -> Any:
        """Count what is under way: a person is asked when it is over."""
        mine = object()
        above = _ABOVE.set((*_ABOVE.get(), mine))
        self._working.add(mine)
        try:
            yield
        finally:
            self._working.discard(mine)
            self._changed.set()
            with suppress(ValueError):  # of a run that nobody closed, somewhere else
                _ABOVE.reset(above)

    async def _send(self, piece: Any) -> None:
        await self.crossing.send(piece)


def _make_step(asked: Asked, *, confirm: bool = False) -> CallStep:
    return CallStep(
        asked.name,
        asked.arguments,
        asked.call_id,
        again="safe" if asked.idempotent else "never",
        requires_confirmation=confirm and not asked.external,
        external_execution=asked.external,
    )


Record: TypeAlias = Callable[[Recorder], Awaitable[Any]]
"""What runs an agent of a framework; its result is the answer of the run."""


def host(function: Record) -> Callable[..., AsyncIterator[Any]]:
    """Return `function` as the `run` of an agent, which may be called again: `again="safe"`."""

    async def run_framework(
        run: Run, message: str, history: list[dict[str, str]], session_state: dict[str, Any]
    ) -> AsyncIterator[Any]:
        crossing = Crossing(LOOP_THREAD.loop())

        async def work() -> None:
            recorder = Recorder(message, history, session_state, run, crossing)
            try:
                answer = await function(recorder)
            finally:
                recorder.close()
            await crossing.send(FinalAnswer(answer))

        crossing.start(work)
        try:
            while (piece := await crossing.next()) is not None:
                yield piece
                crossing.taken()
        finally:
            await crossing.close()

    return run_framework
