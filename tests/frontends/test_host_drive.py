from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Generator
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any, get_args, get_origin

import anyio
import anyio.lowlevel
import pytest
from attrs import field, frozen

from legation.effects import (
    Asks,
    AwaitNudge,
    AwaitOutcome,
    CallFunction,
    CloseStream,
    Concurrently,
    Effect,
    Emit,
    Fetch,
    FindDead,
    HoldName,
    Inspect,
    Interrupted,
    Interruptible,
    Job,
    Log,
    NextChunk,
    NextEvents,
    NextPiece,
    Now,
    Nudge,
    OpenStream,
    Outcome,
    Piece,
    Program,
    Publish,
    RandomBytes,
    ReadBody,
    Record,
    Returned,
    Sleep,
    Spawn,
    ThisNode,
    Transact,
    Unreachable,
    Yielding,
)
from legation.migrations.schema_guard import SchemaGuard
from legation.store.audit import AuditEntry
from legation.store.failures import Busy, Conflict, StoreFailure, WrongSchema
from legation.store.run_rows import StoredEvent
from legation.store.units import Unit
from legation_host import Host, open_host
from legation_host.drive import GATHERED_BYTES, PERFORMERS, TURN
from legation_host.errors import LifeMisuse, Misuse

from .host_units import BACKENDS, All, Count, Create, Get, Lines, Missing, Put, run

ENTRY = AuditEntry(1, "r", "ada", None, "agents.read", "agents/a", "allow", "agents:read", 200, "")
EVENTS = (StoredEvent(1, "RunStarted", "{}"), StoredEvent(2, "RunCompleted", "{}"))


class Foreign(Asks[None]):
    """An effect that no host has."""


@frozen
class Nothing:
    def program(self) -> Program[None]:
        yield from Now()


def divmod_of(a: int, b: int) -> tuple[int, int]:
    return divmod(a, b)


async def items() -> AsyncGenerator[str]:
    yield "a"
    await anyio.lowlevel.checkpoint()
    yield "b"


class Body:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.limits: list[int] = []

    async def read(self, limit: int) -> bytes | None:
        self.limits.append(limit)
        await anyio.lowlevel.checkpoint()
        return self.data if len(self.data) <= limit else None


class Sent:
    def __init__(self) -> None:
        self.chunks: list[bytes] = []

    async def send(self, data: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        self.chunks.append(data)


class Gone:
    async def send(self, data: bytes) -> None:
        raise anyio.BrokenResourceError


def test_every_effect_is_performed() -> None:
    effects = {get_origin(member) or member for member in get_args(Effect)}

    assert effects == set(PERFORMERS)


def test_what_is_not_immediate_is_awaited() -> None:
    awaited = {kind for kind, perform in PERFORMERS.items() if iscoroutinefunction(perform)}

    assert awaited == {kind for kind in PERFORMERS if not kind.immediate}


def performed(backend: str, program: Program[Any], **more: Any) -> Any:
    """Return the result of `program`, run by a host whose world stands still."""

    async def main() -> Any:
        async with open_host(
            {"main": "sqlite://"}, clock=lambda: 1_000, entropy=lambda n: b"e" * n, node="n1"
        ) as host:
            await host.databases["main"].run(Create())
            return await host.run(program, **more)

    return run(backend, main)


def answers(*effects: Effect) -> Program[list[Any]]:
    """Yield `effects` and return what came back."""
    got: list[Any] = []
    for effect in effects:
        got.append((yield effect))
    return got


@BACKENDS
@pytest.mark.parametrize(
    ("effect", "answer"),
    [
        (Now(), 1_000),
        (RandomBytes(3), b"eee"),
        (ThisNode(), "n1"),
        (ReadBody(10), b""),
        (Transact("main", Count()), 0),
        (Transact("main", Put("ada")), None),
        (Sleep(0.001), None),
        (Sleep(-1.0), None),
        (Spawn(Nothing()), None),
        (Publish("r", EVENTS), None),
        (NextEvents("r", 0, 0.001), None),
        (Nudge("inbox"), None),
        (AwaitNudge("inbox", 0.001), None),
        (AwaitOutcome(Outcome(over=True, result="done")), "done"),
        (Record(ENTRY), None),
        (Log("info", "said", (("n", 1),)), None),
        (OpenStream("GET", "http://127.0.0.1:1/"), Unreachable("connect")),
        (CallFunction(divmod_of, {"a": 7, "b": 2}, 1.0), Returned((3, 1))),
        (Concurrently(()), ()),
    ],
    ids=lambda value: re.sub(" at 0x[0-9a-f]+", "", str(value)),
)
def test_an_effect_has_its_answer(backend: str, effect: Effect, answer: object) -> None:
    assert performed(backend, answers(effect)) == [answer]


@BACKENDS
def test_nobody_listening_is_a_value(backend: str) -> None:
    assert performed(backend, answers(Fetch("GET", "http://127.0.0.1:1/"))) == [
        Unreachable("connect")
    ]


@BACKENDS
@pytest.mark.parametrize(("limit", "answer"), [(4, b"body"), (3, None)])
def test_the_body_is_read_when_it_is_asked_for(
    backend: str, limit: int, answer: bytes | None
) -> None:
    body = Body(b"body")

    assert performed(backend, answers(ReadBody(limit)), body=body) == [answer]
    assert body.limits == [limit]


@BACKENDS
def test_a_failure_of_a_database_is_thrown_in_where_it_was_asked(backend: str) -> None:
    def program() -> Program[list[str]]:
        seen: list[str] = []
        yield from Transact("main", Put("ada"))
        for unit in (Put("ada"), Missing()):
            try:
                yield from Transact("main", unit)
            except (Conflict, WrongSchema) as failure:
                seen.append(type(failure).__name__)
                yield from Now()
        return seen

    assert performed(backend, program()) == ["Conflict", "WrongSchema"]


class Guarding(SchemaGuard):
    """A guard whose looks find what the test says, by asking for nothing but the time."""

    def __init__(self, found: str | None) -> None:
        super().__init__(("main",))
        self.found = found

    def lesson(self, effect: Transact[Any], trouble: BaseException | None) -> Program[None] | None:
        return self.look_again(effect) if isinstance(trouble, WrongSchema) else None

    def look_again(self, effect: Transact[Any]) -> Program[None]:
        yield from Now()
        if self.found is not None:
            self.reasons["main"] = self.found
        self.refuse(effect)


def tried(*units: Unit[Any]) -> Program[list[str]]:
    """Run `units`, and return how each failed."""
    seen: list[str] = []
    for unit in units:
        try:
            yield from Interruptible(iter(Transact("main", unit)), "never", 5.0)
            seen.append("done")
        except StoreFailure as failure:
            seen.append(f"{type(failure).__name__} {failure}".partition(" incident")[0])
    return seen


@BACKENDS
@pytest.mark.parametrize("file", [True, False], ids=["on the loop", "in the writer"])
@pytest.mark.parametrize("found", [None, "too old"])
def test_the_guard_is_asked_at_each_unit(
    backend: str, file: bool, found: str | None, tmp_path: Path
) -> None:
    async def main() -> list[str]:
        url = f"sqlite:///{tmp_path}/{backend}.db" if file else "sqlite://"
        async with open_host({"main": url}) as host:
            await host.databases["main"].run(Create())
            host.guard = Guarding(found)
            return await host.run(tried(Count(), Missing(), Count(), Put("ada")))

    expected = ["done", "WrongSchema", "done", "done"]
    if found is not None:
        expected = ["done", *(3 * ["NotServed too old"])]
    assert run(backend, main) == expected


@BACKENDS
def test_a_failure_that_a_program_does_not_catch_ends_it(backend: str) -> None:
    with pytest.raises(WrongSchema):
        performed(backend, answers(Transact("main", Missing())))


@BACKENDS
def test_an_error_in_the_body_of_a_host_comes_out_as_it_is(backend: str) -> None:
    async def main() -> None:
        async with open_host():
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(backend, main)


@BACKENDS
def test_a_cancelled_host_still_closes_what_it_opened(backend: str, tmp_path: Path) -> None:
    async def main() -> None:
        hosts: list[Host] = []
        with anyio.CancelScope() as scope:
            async with open_host({"main": f"sqlite:///{tmp_path}/a.db"}) as host:
                hosts.append(host)
                await host.run(answers(Transact("main", Create())))
                scope.cancel()
                await anyio.sleep(9)
        assert scope.cancelled_caught
        with pytest.raises(LifeMisuse, match="the host is over"):
            await hosts[0].run(answers(Transact("main", Put("late"))))

    run(backend, main)

    assert not (tmp_path / "a.db-wal").exists()


@BACKENDS
def test_an_unknown_database_is_a_fault(backend: str) -> None:
    program = answers(Transact("other", Count()))
    with pytest.raises(Misuse, match="asks for database 'other'; there is main"):
        performed(backend, program)
    assert is_closed(program)
    with pytest.raises(Misuse, match="'other'; there is main"):
        performed(backend, answers(Inspect("other")))


@BACKENDS
@pytest.mark.parametrize("nested", [False, True], ids=["alone", "awaited"])
@pytest.mark.parametrize(
    ("yielded", "name"),
    [(3, "int"), (None, "NoneType"), (Foreign(), r"\S+test_host_drive\.Foreign")],
    ids=["a number", "nothing", "an effect of one's own"],
)
def test_what_is_no_effect_is_a_fault_with_its_place(
    backend: str, yielded: Any, name: str, nested: bool
) -> None:
    caught: list[Exception] = []

    def faulty() -> Program[None]:
        try:
            yield yielded
        except Exception as error:  # noqa: BLE001 (must not come here)
            caught.append(error)

    program = answers(Interruptible(faulty(), "stop", 9.0)) if nested else faulty()
    sentence = rf"test_host_drive\.py:\d+ .*faulty yields {name}, which is not an effect"
    with pytest.raises(Misuse, match=sentence):
        performed(backend, program)

    assert is_closed(program)
    assert caught == []


@BACKENDS
def test_what_is_emitted_is_gathered_until_the_program_waits_and_at_its_end(backend: str) -> None:
    sink = Sent()
    performed(
        backend,
        answers(
            *(Emit(b"a"), Now(), Emit(b"b"), Nudge("x"), Emit(b"")),
            Sleep(0),
            *(Emit(b"c"), Emit(b"d")),
        ),
        sink=sink,
    )

    assert sink.chunks == [b"ab", b"cd"]


@BACKENDS
def test_what_is_emitted_is_sent_when_it_has_grown(backend: str) -> None:
    sink = Sent()
    quarter = bytes(GATHERED_BYTES // 4)
    performed(backend, answers(*(Emit(quarter) for _ in range(10))), sink=sink)

    assert [len(chunk) // len(quarter) for chunk in sink.chunks] == [4, 4, 2]


@BACKENDS
def test_a_reader_that_has_gone_ends_the_stream(backend: str) -> None:
    program = answers(Emit(b"a"), Sleep(0))

    with pytest.raises(anyio.BrokenResourceError):
        performed(backend, program, sink=Gone())
    assert is_closed(program)


def is_closed(program: Generator[Any, Any, Any]) -> bool:
    return program.gi_frame is None  # type: ignore[attr-defined]


@BACKENDS
def test_emitting_without_a_stream_is_a_fault(backend: str) -> None:
    with pytest.raises(Misuse):
        performed(backend, answers(Emit(b"a")))


@BACKENDS
def test_a_program_that_waits_for_nothing_lets_others_have_their_turn(backend: str) -> None:
    turns: list[str] = []

    def busy(name: str) -> Program[None]:
        for _ in range(3 * TURN):
            yield from Now()
            turns.append(name)

    async def main() -> None:
        async with open_host() as host, anyio.create_task_group() as tasks:
            tasks.start_soon(host.run, busy("one"))
            tasks.start_soon(host.run, busy("other"))

    run(backend, main)

    assert len(set(turns[: 2 * TURN + 2])) == 2


@BACKENDS
@pytest.mark.parametrize("effect", [NextEvents("r", 0, 9.0), ReadBody(1)], ids=["events", "body"])
def test_waits_that_end_at_once_let_others_have_their_turn(backend: str, effect: Effect) -> None:
    async def main() -> None:
        async with open_host() as host:
            await host.run(answers(Publish("r", EVENTS)))
            with anyio.CancelScope() as scope:
                scope.cancel()
                await host.run(answers(*[effect] * (TURN + 2)))
            assert scope.cancelled_caught

    run(backend, main)


@BACKENDS
def test_reads_of_a_file_are_answered_without_leaving_the_turn(
    backend: str, tmp_path: Path
) -> None:
    async def main() -> None:
        async with open_host({"main": f"sqlite:///{tmp_path}/a.db"}) as host:
            await host.run(answers(Transact("main", Create()), Transact("main", Put("ada", 3))))
            turns = 0

            async def count() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await anyio.lowlevel.checkpoint()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(count)
                await anyio.sleep(0.01)
                before = turns
                assert await host.run(answers(*[Transact("main", Get("ada"))] * 9)) == [3] * 9
                assert turns == before
                tasks.cancel_scope.cancel()

    run(backend, main)


class Again(Generator[Effect, Any, None]):
    """A program that rests once, and can be driven as often as one likes."""

    def __init__(self) -> None:
        self.rested = True

    def send(self, _: Any) -> Effect:
        self.rested = not self.rested
        if self.rested:
            raise StopIteration
        return Sleep(0.0)

    def throw(self, *_: Any) -> Effect:
        self.rested = True
        raise GeneratorExit


# Every kind of effect, in an order in which each takes place.
SCRIPT: tuple[Effect, ...] = (
    Now(),
    RandomBytes(3),
    ThisNode(),
    ReadBody(10),
    Transact("main", Put("ada")),
    Transact("main", All()),
    Inspect("main"),
    HoldName("main", "node"),
    FindDead("main", ("node",)),
    Fetch("GET", "http://127.0.0.1:1/"),
    Sleep(0.0),
    Spawn(Nothing()),
    NextEvents("r", 0, 0.001),
    Publish("r", EVENTS),
    AwaitNudge("inbox", 0.001),
    Nudge("inbox"),
    AwaitOutcome(Outcome[str](over=True)),
    Interruptible(Again(), "stop", 1.0),
    Concurrently((Again(), Again())),
    OpenStream("GET", "http://127.0.0.1:1/"),
    CallFunction(items, {}, 1.0),
    NextPiece(1, 1.0),
    CallFunction(divmod_of, {"a": 7, "b": 2}, 1.0),
    CloseStream(1),
    NextChunk(1, 1.0),  # of what is closed: its end
    Emit(b"a"),
    Record(ENTRY),
    Log("debug", "said"),
)


NAMES: list[str] = [f"{n} {type(effect).__name__}" for n, effect in enumerate(SCRIPT)]


def test_the_script_has_every_effect() -> None:
    assert {type(effect) for effect in SCRIPT} == set(PERFORMERS)


@BACKENDS
@pytest.mark.parametrize("stop", range(len(SCRIPT)), ids=NAMES.__getitem__)
def test_a_program_cancelled_at_an_effect_is_closed_there(backend: str, stop: int) -> None:
    left: list[int] = []

    def program(scope: anyio.CancelScope) -> Program[None]:
        for index, effect in enumerate(SCRIPT):
            try:
                if index == stop:
                    scope.cancel()
                yield effect
            except GeneratorExit:
                left.append(index)
                raise
        yield from Sleep(1.0)

    async def main() -> None:
        async with open_host({"main": "sqlite://"}) as host:
            await host.databases["main"].run(Create())
            scope = anyio.CancelScope()
            running = program(scope)
            with scope:
                await host.run(running, body=Body(b""), sink=Sent())
            assert scope.cancelled_caught
            assert is_closed(running)

    run(backend, main)

    # An immediate effect is performed all the same; the next that waits is the last.
    waits = [n for n, effect in enumerate(SCRIPT) if not effect.immediate and n >= stop]
    assert left == [waits[0]] if waits else left == []


@BACKENDS
@pytest.mark.parametrize("stop", range(len(SCRIPT)), ids=NAMES.__getitem__)
def test_a_program_closed_at_an_effect_never_yields_again(backend: str, stop: int) -> None:
    program = answers(*SCRIPT)
    for _ in range(stop + 1):
        program.send(None)

    program.close()

    assert is_closed(program)


@frozen
class Failing:
    def program(self) -> Program[None]:
        yield from Now()
        raise ZeroDivisionError("the reason")


@frozen(eq=False)
class Telling:
    done: anyio.Event = field(factory=anyio.Event)

    def program(self) -> Program[None]:
        yield from Sleep(0)
        self.done.set()


@BACKENDS
def test_a_job_that_raises_is_logged_and_harms_nobody(backend: str) -> None:
    lines = Lines()

    async def main() -> None:
        async with open_host(log=lines.write) as host:
            telling = Telling()
            await host.run(answers(Spawn(Failing()), Spawn(telling)))
            await telling.done.wait()
            assert await host.run(answers(ThisNode())) == [host.node]

    run(backend, main)

    ((level, event, fields),) = lines
    assert (level, event, fields["job"]) == ("error", "job_failed", "Failing")
    assert len(fields["incident"]) == 8
    assert "ZeroDivisionError in Failing.program" in fields["error"]
    assert "the reason" not in str(fields)  # it may quote what a user sent
    assert isinstance(Failing(), Job)


@BACKENDS
def test_a_job_outlives_the_program_that_asked_and_ends_with_its_host(backend: str) -> None:
    ended: list[str] = []

    @frozen
    class Endless:
        def program(self) -> Program[None]:
            try:
                while True:
                    yield from Sleep(60)
            finally:
                ended.append("closed")

    async def main() -> None:
        async with open_host() as host:
            await host.run(answers(Spawn(Endless())))
            await anyio.wait_all_tasks_blocked()
            assert not ended

    run(backend, main)

    assert ended == ["closed"]


@BACKENDS
def test_a_follower_hears_of_events_as_they_are_published(backend: str) -> None:
    def follow() -> Program[list[StoredEvent]]:
        seen: list[StoredEvent] = []
        while len(seen) < 6:
            seen += (yield from NextEvents("r", len(seen), 5.0)) or ()
        return seen

    def publish() -> Program[None]:
        for seq in range(1, 7, 2):
            pair = (StoredEvent(seq, "a", "{}"), StoredEvent(seq + 1, "b", "{}"))
            yield from Publish("r", pair)
            yield from Sleep(0)

    async def main() -> None:
        async with open_host() as host, anyio.create_task_group() as tasks:
            tasks.start_soon(host.run, publish())
            seen = await host.run(follow())
            assert [event.seq for event in seen] == [1, 2, 3, 4, 5, 6]

    run(backend, main)


@BACKENDS
def test_a_nudge_between_two_waits_is_not_lost_and_ends_one_wait(backend: str) -> None:
    def program() -> Program[list[int]]:
        waited: list[int] = []
        yield from Nudge("inbox")
        for seconds in (60.0, 0.02):
            before = yield from Now()
            yield from AwaitNudge("inbox", seconds)
            after = yield from Now()
            waited.append(after - before)
        return waited

    async def main() -> None:
        async with open_host() as host:
            first, second = await host.run(program())
            assert first < 10_000_000
            assert second >= 15_000

    run(backend, main)


@BACKENDS
def test_a_nudge_wakes_all_who_wait(backend: str) -> None:
    woken: list[int] = []

    async def main() -> None:
        async with open_host() as host, anyio.create_task_group() as tasks:

            async def wait(number: int) -> None:
                await host.run(answers(AwaitNudge("inbox", 20.0)))
                woken.append(number)

            for number in range(5):
                tasks.start_soon(wait, number)
            await anyio.wait_all_tasks_blocked()
            await host.run(answers(Nudge("inbox")))

    run(backend, main)

    assert sorted(woken) == [0, 1, 2, 3, 4]


@BACKENDS
def test_names_of_nodes_are_never_the_same(backend: str) -> None:
    async def main() -> set[str]:
        names: set[str] = set()
        for _ in range(3):
            async with open_host() as host:
                names.add(host.node)
        return names

    assert len(run(backend, main)) == 3


@BACKENDS
def test_clock_and_entropy_of_the_system_are_the_defaults(backend: str) -> None:
    async def main() -> None:
        async with open_host() as host:
            now, one, other = await host.run(answers(Now(), RandomBytes(16), RandomBytes(16)))
            assert now > 1_700_000_000_000_000
            assert one != other
            assert len(one) == 16

    run(backend, main)


class Stop(Job):
    """Nudges after a while."""

    def program(self) -> Program[None]:
        yield from Sleep(0.01)
        yield from Nudge("stop")


def resting(seconds: float, left: list[float]) -> Program[str]:
    try:
        yield from Sleep(seconds)
    except GeneratorExit:
        left.append(seconds)
        raise
    return "rested"


@BACKENDS
@pytest.mark.parametrize(
    ("seconds", "patience", "answer", "closed"),
    [
        (0.001, 20.0, "rested", []),
        (20.0, 0.005, Interrupted("timeout"), [20.0]),
        (20.0, 20.0, Interrupted("nudge"), [20.0]),
    ],
    ids=["its end", "the time", "a nudge"],
)
def test_an_interruptible_program_ends_by_itself_by_time_or_by_a_nudge(
    backend: str, seconds: float, patience: float, answer: object, closed: list[float]
) -> None:
    left: list[float] = []

    async def main() -> None:
        async with open_host() as host:
            if answer == Interrupted("nudge"):
                host.spawn(Stop())
            asked = Interruptible(resting(seconds, left), "stop", patience)
            assert await host.run(answers(asked)) == [answer]
            assert left == closed
            host.hub.nudge("stop")  # nobody is called any more

    run(backend, main)


@BACKENDS
def test_a_nudge_since_the_program_began_interrupts_at_once(backend: str) -> None:
    left: list[float] = []

    async def main() -> None:
        async with open_host() as host:
            asked = Interruptible(resting(20.0, left), "stop", 20.0)
            assert await host.run(answers(Nudge("stop"), asked)) == [None, Interrupted("nudge")]

    run(backend, main)


@BACKENDS
def test_a_failure_that_the_inner_program_does_not_catch_is_thrown_into_the_outer(
    backend: str,
) -> None:
    def inner() -> Program[None]:
        yield from Now()
        raise Busy("locked")

    def outer() -> Program[str]:
        try:
            yield from Interruptible(inner(), "stop", 1.0)
        except Busy as failure:
            return str(failure)
        return "nothing"

    async def main() -> None:
        async with open_host() as host:
            assert await host.run(outer()) == "locked"

    run(backend, main)


# --- programs side by side


def asking(*effects: Effect, left: list[str]) -> Program[list[Any]]:
    try:
        return (yield from answers(*effects))
    except GeneratorExit:
        left.append("closed")
        raise


@BACKENDS
def test_programs_are_driven_side_by_side_and_their_results_are_in_their_order(
    backend: str,
) -> None:
    pauses = (0.2, 0.0, 0.1)
    order: list[float] = []

    def one(seconds: float) -> Program[float]:
        yield from Sleep(seconds)
        order.append(seconds)
        return seconds

    async def main() -> None:
        async with open_host() as host:
            before = anyio.current_time()
            (results,) = await host.run(answers(Concurrently(tuple(map(one, pauses)))))
            assert anyio.current_time() - before < sum(pauses)
            assert results == pauses
            assert order == sorted(pauses)

    run(backend, main)


def failing(error: BaseException) -> Program[None]:
    yield from Sleep(0.01)
    raise error


@BACKENDS
def test_a_failure_of_a_database_in_one_closes_the_others_and_is_thrown_in(backend: str) -> None:
    left: list[str] = []

    def outer() -> Program[str]:
        others = tuple(asking(Sleep(60.0), left=left) for _ in range(3))
        try:
            yield from Concurrently((others[0], failing(Busy("locked")), *others[1:]))
        except Busy as failure:
            yield from Now()
            return str(failure)
        return "nothing"

    assert performed(backend, outer()) == "locked"
    assert left == ["closed"] * 3


@BACKENDS
@pytest.mark.parametrize("error", [ZeroDivisionError("x"), SystemExit(3)], ids=repr)
def test_any_other_error_in_one_comes_out_as_it_is_and_not_in_a_group(
    backend: str, error: BaseException
) -> None:
    left: list[str] = []
    effect = Concurrently((asking(Sleep(60.0), left=left), failing(error)))

    async def main() -> None:
        async with open_host() as host:
            with pytest.raises(type(error)) as caught:
                await host.run(answers(effect))
            assert caught.value is error

    run(backend, main)

    assert left == ["closed"]


@BACKENDS
def test_programs_side_by_side_are_closed_with_the_one_that_asked(backend: str) -> None:
    left: list[str] = []

    async def main() -> None:
        async with open_host() as host:
            inner = tuple(asking(Sleep(60.0), left=left) for _ in range(3))
            nested = asking(Concurrently(inner), left=left)
            with anyio.move_on_after(0.05):
                await host.run(asking(Concurrently((nested,)), left=left))

    run(backend, main)

    assert left == ["closed"] * 5


@BACKENDS
def test_a_nudge_interrupts_programs_side_by_side_and_one_of_them_alone(backend: str) -> None:
    left: list[str] = []

    async def main() -> None:
        async with open_host() as host:
            host.spawn(Stop())
            stoppable = Interruptible(asking(Sleep(60.0), left=left), "stop", 60.0)
            within = answers(stoppable), answers(Sleep(0.05))
            assert await host.run(answers(Concurrently(within))) == [
                ([Interrupted("nudge")], [None])
            ]
            host.spawn(Stop())
            both = tuple(asking(Sleep(60.0), left=left) for _ in range(2))
            around = Interruptible(answers(Concurrently(both)), "stop", 60.0)
            assert await host.run(answers(around)) == [Interrupted("nudge")]

    run(backend, main)

    assert left == ["closed"] * 3


@BACKENDS
def test_programs_side_by_side_have_no_request_and_no_stream(backend: str) -> None:
    reading = Concurrently((answers(ReadBody(9)),))
    body, sink = Body(b"body"), Sent()

    assert performed(backend, answers(reading), body=body, sink=sink) == [([b""],)]
    with pytest.raises(Misuse, match="no stream"):
        performed(backend, answers(Concurrently((answers(Emit(b"a")),))), sink=Sent())


@BACKENDS
def test_streams_are_counted_for_each_program_by_itself(backend: str) -> None:
    def one() -> Program[list[Any]]:
        return (yield from answers(CallFunction(items, {}, 1.0), NextPiece(1, 1.0)))

    expected = [Yielding(1), Piece("a")]
    assert performed(backend, answers(Concurrently((one(), one())))) == [(expected, expected)]


@BACKENDS
@pytest.mark.parametrize(
    ("effect", "sentence"),
    [
        (NextChunk(1, 1.0), "takes a Pieces for a ReadAhead"),
        (NextPiece(2, 1.0), "names stream 2, and has opened 1"),
        (NextPiece(0, 1.0), "names stream 0"),
    ],
    ids=["of another kind", "not open yet", "never"],
)
def test_a_stream_that_is_none_of_the_program_s_is_a_fault(
    backend: str, effect: Effect, sentence: str
) -> None:
    with pytest.raises(Misuse, match=sentence):
        performed(backend, answers(CallFunction(items, {}, 1.0), effect))
