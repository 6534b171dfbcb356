"""Faults in how programs are run, and in the effects of a request and of the log."""

from __future__ import annotations

import random
from contextlib import suppress
from itertools import count
from typing import Any, Final, TypeVar, cast

from attrs import evolve

from legation.effects import (
    Emit,
    Interruptible,
    Log,
    Now,
    Program,
    RandomBytes,
    ReadBody,
    Record,
    Sleep,
    ThisNode,
)
from legation.programs import Handlers, intercept
from legation_testing import HostUnderTest

from .planting import Emitter, Fault, ask, effects_of, jobs_of, leave_open, running

__all__ = ["FAULTS"]

R = TypeVar("R")


@running("program.result")
def result_as_text(host: HostUnderTest, program: Program[R], body: bytes, emit: Emitter) -> R:
    return cast(R, str(host.run(program, body=body, emit=emit)))


@running("program.nothing_asked")
def result_lost(host: HostUnderTest, program: Program[R], body: bytes, emit: Emitter) -> R:
    host.run(program, body=body, emit=emit)
    return cast(R, None)


@running("program.own_error")
def errors_in_a_group(host: HostUnderTest, program: Program[R], body: bytes, emit: Emitter) -> R:
    try:
        return host.run(program, body=body, emit=emit)
    except Exception as error:
        raise ExceptionGroup("of a task group", [error]) from error


@running("program.own_error")
def error_swallowed(host: HostUnderTest, program: Program[R], body: bytes, emit: Emitter) -> R:
    with suppress(Exception):
        return host.run(program, body=body, emit=emit)
    return cast(R, None)


@running("program.many_effects")
def many_effects_end_it(host: HostUnderTest, program: Program[R], body: bytes, emit: Emitter) -> R:
    def run_a_part() -> Program[R]:
        answer: Any = None
        for _ in range(5_000):
            try:
                answer = yield program.send(answer)
            except StopIteration as stop:
                return cast(R, stop.value)
        raise RecursionError

    return host.run(run_a_part(), body=body, emit=emit)


_TIMES: Final = count(1)


@running("program.one_after_another")
def every_hundredth_program_refused(
    host: HostUnderTest, program: Program[R], body: bytes, emit: Emitter
) -> R:
    if next(_TIMES) % 100 == 0:
        raise OSError("no place for another program")
    return host.run(program, body=body, emit=emit)


@effects_of("ReadBody.whole")
def body_without_its_last_byte() -> Handlers:
    def read(effect: ReadBody) -> Program[bytes | None]:
        body: bytes | None = yield effect
        return body and body[:-1]

    return {ReadBody: read}


@effects_of("ReadBody.limit_of_nothing")
def limit_of_nothing_is_none() -> Handlers:
    return {ReadBody: lambda effect: ask(ReadBody(effect.limit or 1 << 30))}


@effects_of("host.opened_twice")
def node_name_comes_again() -> Handlers:
    def this_node(_: ThisNode) -> Program[str]:
        yield from ()
        return "node-1"

    return {ThisNode: this_node}


@jobs_of("host.end_closes_jobs")
def end_leaves_jobs(program: Program[object]) -> Program[object]:
    return leave_open(program)


@effects_of("Now.microseconds")
def now_in_seconds() -> Handlers:
    def now(effect: Now) -> Program[int]:
        return int((yield effect) // 1_000_000)

    return {Now: now}


@effects_of("Now.microseconds")
def now_as_float() -> Handlers:
    def now(effect: Now) -> Program[float]:
        return float((yield effect))

    return {Now: now}


@effects_of("Now.forward")
def now_goes_back() -> Handlers:
    def now(effect: Now) -> Program[int]:
        chance: int = (yield RandomBytes(1))[0]
        return int((yield effect)) - 1_000_000 * (chance % 2)

    return {Now: now}


@effects_of("Now.with_waits")
def now_stands_still() -> Handlers:
    started: list[int] = []

    def now(effect: Now) -> Program[int]:
        started.append((yield effect))
        return started[0]

    return {Now: now}


@effects_of("RandomBytes.unpredictable")
def random_bytes_constant() -> Handlers:
    def draw(effect: RandomBytes) -> Program[bytes]:
        yield from ()
        return random.Random(7).randbytes(effect.size)

    return {RandomBytes: draw}


@effects_of("RandomBytes.unpredictable")
def random_bytes_of_hex_digits() -> Handlers:
    def draw(effect: RandomBytes) -> Program[bytes]:
        data: bytes = yield effect
        return data.hex().encode()[: effect.size]

    return {RandomBytes: draw}


@effects_of("RandomBytes.size")
def random_bytes_one_too_few() -> Handlers:
    def draw(effect: RandomBytes) -> Program[bytes]:
        return ((yield effect) or b" ")[1:]

    return {RandomBytes: draw}


@effects_of("ThisNode.constant")
def node_named_for_each_program() -> Handlers:
    def this_node(effect: ThisNode) -> Program[str]:
        suffix: bytes = yield RandomBytes(4)
        return f"{(yield effect)}-{suffix.hex()}"

    return {ThisNode: this_node}


@effects_of("Sleep.lasts")
def sleep_ends_at_once() -> Handlers:
    def sleep(_: Sleep) -> Program[None]:
        yield Sleep(0.0)

    return {Sleep: sleep}


@effects_of("Sleep.lasts")
def sleep_in_minutes() -> Handlers:
    def sleep(effect: Sleep) -> Program[None]:
        yield Sleep(effect.seconds * 600)

    return {Sleep: sleep}


@effects_of("Sleep.nothing")
def sleep_refuses_nothing() -> Handlers:
    def sleep(effect: Sleep) -> Program[None]:
        if effect.seconds < 0:
            raise ValueError("sleep length must be non-negative")
        yield effect

    return {Sleep: sleep}


@effects_of("ReadBody.over_the_limit")
def body_limit_one_too_high() -> Handlers:
    return {ReadBody: lambda effect: ask(ReadBody(effect.limit + 1))}


@effects_of("ReadBody.at_the_limit")
def body_limit_one_too_low() -> Handlers:
    return {ReadBody: lambda effect: ask(ReadBody(effect.limit - 1))}


@effects_of("ReadBody.far_over")
def body_cut_at_the_limit() -> Handlers:
    def read(effect: ReadBody) -> Program[bytes]:
        body: bytes = yield ReadBody(1 << 30)
        return body[: effect.limit]

    return {ReadBody: read}


@effects_of("ReadBody.empty")
def empty_body_is_none() -> Handlers:
    def read(effect: ReadBody) -> Program[bytes | None]:
        return (yield effect) or None

    return {ReadBody: read}


@effects_of("ReadBody.large")
def body_read_in_one_piece() -> Handlers:
    def read(effect: ReadBody) -> Program[bytes | None]:
        body: bytes | None = yield effect
        return body and body[:65_536]

    return {ReadBody: read}


@effects_of("ReadBody.within")
def inner_program_has_no_body() -> Handlers:
    def interruptible(effect: Interruptible[Any]) -> Program[Any]:
        without: Handlers = {ReadBody: lambda _: ask(Sleep(0.0))}
        return (yield evolve(effect, program=intercept(effect.program, without)))

    return {Interruptible: interruptible}


@running("Emit.at_the_end")
def last_part_lost(host: HostUnderTest, program: Program[R], body: bytes, emit: Emitter) -> R:
    held: list[bytes] = []

    def hold(data: bytes) -> None:
        if held:
            emit(held.pop())
        held.append(data)

    return host.run(program, body=body, emit=hold)


@running("Emit.order")
def parts_out_of_order(host: HostUnderTest, program: Program[R], body: bytes, emit: Emitter) -> R:
    held: list[bytes] = []

    def swap(data: bytes) -> None:
        held.append(data)
        while len(held) > 1:
            emit(held.pop())

    result = host.run(program, body=body, emit=swap)
    for data in held:
        emit(data)
    return result


@running("Emit.before_waits")
def parts_sent_at_the_end(
    host: HostUnderTest, program: Program[R], body: bytes, emit: Emitter
) -> R:
    parts: list[bytes] = []
    result = host.run(program, body=body, emit=parts.append)
    emit(b"".join(parts))
    return result


@running("Emit.order")
def empty_parts_sent(host: HostUnderTest, program: Program[R], body: bytes, emit: Emitter) -> R:
    result = host.run(program, body=body, emit=emit)
    emit(b"")
    return result


@effects_of("Emit.gathered")
def parts_not_gathered() -> Handlers:
    def emit(effect: Emit) -> Program[None]:
        yield effect
        yield Sleep(0.0)

    return {Emit: emit}


@effects_of("Emit.large")
def large_parts_cut() -> Handlers:
    return {Emit: lambda effect: ask(Emit(effect.data[: 1 << 20]))}


@effects_of("Emit.within")
def inner_parts_lost() -> Handlers:
    def interruptible(effect: Interruptible[Any]) -> Program[Any]:
        without: Handlers = {Emit: lambda _: ask(Now())}
        return (yield evolve(effect, program=intercept(effect.program, without)))

    return {Interruptible: interruptible}


@running("Emit.reader_gone")
def reader_gone_unnoticed(
    host: HostUnderTest, program: Program[R], body: bytes, emit: Emitter
) -> R:
    def try_to_emit(data: bytes) -> None:
        with suppress(Exception):
            emit(data)

    return host.run(program, body=body, emit=try_to_emit)


@running("Emit.reader_gone")
def program_left_open(host: HostUnderTest, program: Program[R], body: bytes, emit: Emitter) -> R:
    return host.run(leave_open(program), body=body, emit=emit)


@effects_of("Record.stored")
def records_lost() -> Handlers:
    recorded: list[Any] = []

    def record(effect: Record) -> Program[None]:
        recorded.append(effect)
        if len(recorded) % 256:
            yield effect

    return {Record: record}


@effects_of("Log.written")
def log_fields_lost() -> Handlers:
    return {Log: lambda effect: ask(Log(effect.level, effect.event))}


@effects_of("Log.written")
def debug_lines_lost() -> Handlers:
    def log(effect: Log) -> Program[None]:
        if effect.level != "debug":
            yield effect

    return {Log: log}


FAULTS: Final = tuple(value for value in tuple(globals().values()) if isinstance(value, Fault))
