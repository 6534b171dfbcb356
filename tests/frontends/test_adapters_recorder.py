"""The recorder of the adapters: a framework on a loop of its own, whose work is not done twice."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import pytest

from legation import Agent, CallStep, FinalAnswer, Platform, Run, ToolError
from legation.store.runs import AppendEvents
from legation_adapters.crossing import MAX_TEXT, Crossing, TooMuchText
from legation_adapters.frameworks import load
from legation_adapters.loop_thread import LOOP_THREAD, LoopThread
from legation_adapters.recorder import Asked, Recorder, ToolFailed, Usage, host
from legation_testing import Client, crash_everywhere

from ..two_databases import IN_MEMORY

PATH = "/agents/clerk/runs"
LEASE_SECONDS = 40


def client_of(function: Callable[[Recorder], Any], **more: Any) -> Client:
    def make() -> Platform:
        agent = Agent(id="clerk", run=host(function), again="safe", **more)
        return Platform(databases=IN_MEMORY, agents=[agent])

    return Client(make)


def go_on(client: Client, run: Any, *said: dict[str, Any]) -> dict[str, Any]:
    asked = [one["tool_execution"] for one in run["requirements"]]
    tools = [{**one, **more} for one, more in zip(asked, said, strict=True)]
    form = {"tools": json.dumps(tools), "stream": "false"}
    after: dict[str, Any] = client.post(f"{PATH}/{run['run_id']}/continue", form=form).json()
    return after


def cost(_answer: Any) -> Usage:
    return Usage(7, 3)


async def give(value: Any) -> Any:
    await asyncio.sleep(0)
    return value


class Errand:
    """A framework that asks a model, makes calls side by side, asks people, and asks it again."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()

    async def note(self, name: str, value: Any) -> Any:
        await asyncio.sleep(0)
        self.done[name] += 1
        return value

    async def run(self, recorder: Recorder) -> Any:
        async def plan() -> Any:
            recorder.hear("Think")
            recorder.hear("ing.")
            return await self.note("plan", {"items": ["a", "b"]})

        async def answer() -> Any:
            recorder.hear("Done: ")
            await asyncio.sleep(0)
            recorder.hear(recorder.message)
            return await self.note("answer", f"Done: {recorder.message}")

        items = (await recorder.model("m", plan, usage=cost, provider="p"))["items"]
        looks = [
            recorder.tool(
                f"look-{one}", "look", {"at": one}, partial(self.note, f"look {one}", one)
            )
            for one in items
        ]
        assert await asyncio.gather(*looks) == items
        await asyncio.gather(*(self.pay(recorder, one) for one in items))
        recorder.state["paid"] = items
        return await recorder.model("m", answer, usage=cost)

    async def pay(self, recorder: Recorder, item: str) -> Any:
        said = await recorder.approve(item, "pay", {"item": item})
        if said.confirmed:
            return await recorder.tool(item, "pay", {}, partial(self.note, f"pay {item}", 1))
        return said.note


DONE = dict.fromkeys(("plan", "look a", "look b", "pay a", "pay b", "answer"), 1)
YES = {"confirmed": True}


def test_a_framework_runs_streams_pauses_and_goes_on() -> None:
    errand = Errand()
    with client_of(errand.run) as client:
        form = {"message": "go", "session_id": "s", "stream": True}
        events = client.post(PATH, form=form).events()
        heard = [json.loads(e.data)["content"] for e in events if e.name == "RunContent"]
        assert "".join(heard) == "Thinking."
        assert events[-1].name == "RunPaused"
        assert errand.done == {"plan": 1, "look a": 1, "look b": 1}
        run = client.get(f"{PATH}?session_id=s").json()[0]
        run = go_on(client, run, YES, {"confirmed": False, "confirmation_note": "dear"})

        assert (run["status"], run["content"]) == ("COMPLETED", "Done: go")
        assert errand.done == {**{name: 1 for name in DONE if name != "pay b"}}
        assert run["metrics"]["total_tokens"] == 20
        assert run["session_state"] == {"paid": ["a", "b"]}


@pytest.mark.enumeration
def test_nothing_is_done_twice_whatever_crashes(figures: Callable[[str], None]) -> None:
    errand = Errand()

    def make() -> Client:
        errand.done.clear()
        client = client_of(errand.run, in_doubt="tell")
        client.open()
        return client

    def act(client: Client) -> None:
        form = {"message": "go", "session_id": "s", "stream": False}
        client.begin("POST", PATH, form=form)
        client.settle()
        go_on(client, client.get(f"{PATH}?session_id=s").json()[0], YES, YES)

    def check(client: Client) -> None:
        client.advance(60)
        for run in client.get(f"{PATH}?session_id=s").json():
            if run["status"] == "PAUSED":
                run = go_on(client, run, YES, YES)  # noqa: PLW2901 (as it is by now)
            assert run["content"] == "Done: go" or run["status"] == "ERROR"
        client.take_errors()  # a call in doubt is a failure that this framework does not expect
        calls = [name for name in errand.done if name not in ("plan", "answer")]
        assert all(errand.done[name] == 1 for name in calls), errand.done

    tried = crash_everywhere(make, act, check, every=9)
    figures(f"recorder of adapters: a crash at each of {tried.points} effects")


def test_a_failure_is_recorded_in_words_or_by_its_kind() -> None:
    said: list[str] = []

    async def fail(error: Exception) -> Any:
        raise error

    async def run(recorder: Recorder) -> Any:
        errors = (ToolFailed("no room"), ToolError("sold out"), ToolFailed(), KeyError("secret"))
        for number, error in enumerate(errors):
            with pytest.raises(ToolFailed) as failed:
                await recorder.tool(f"c{number}", "pay", {}, partial(fail, error))
            said.append(str(failed.value))
        return await recorder.model("m", partial(give, "Over"), usage=cost)

    with client_of(run) as client:
        outcome = client.run("clerk", "go", session_id="s")

    assert outcome["content"] == "Over"
    words = ["no room", "sold out", "The tool failed (ToolFailed)", "The tool failed (KeyError)"]
    assert said == words
    assert [one["result"] for one in outcome["tools"]] == words
    assert all(one["tool_call_error"] for one in outcome["tools"])


def test_a_failure_that_is_recorded_is_one_again_and_an_idempotent_call_is_made_again() -> None:
    made: Counter[str] = Counter()

    async def fail() -> Any:
        made["fail"] += 1
        raise ToolFailed("no")

    async def look() -> Any:
        made["look"] += 1
        return 1

    async def run(recorder: Recorder) -> Any:
        with pytest.raises(ToolFailed, match="no"):
            await recorder.tool("a", "pay", {}, fail)
        return await recorder.tool("b", "look", {}, look, idempotent=True)

    with client_of(run) as client:
        client.fail_at(AppendEvents, None, skip=4)
        form = {"message": "go", "session_id": "s", "stream": False}
        exchange = client.begin("POST", PATH, form=form)
        client.settle()
        client.advance(LEASE_SECONDS)
        outcome = exchange.response().json()

    assert (outcome["content"], made) == (1, {"fail": 1, "look": 2})


def test_what_is_under_way_is_done_before_a_person_is_asked() -> None:
    done: list[str] = []

    async def slow() -> Any:
        for _ in range(30):
            await asyncio.sleep(0)
        done.append("slow")

    async def inner(recorder: Recorder) -> Any:
        """Be a member of a team, whose call is part of that of its leader."""
        return (await recorder.approve("inner", "pay", {})).confirmed

    async def run(recorder: Recorder) -> Any:
        await asyncio.gather(
            recorder.tool("slow", "slow", {}, slow),
            recorder.tool("member", "delegate", {}, partial(inner, recorder), idempotent=True),
            recorder.approve_all([Asked("outer", "sign", {}, external=True)]),
        )
        return "Over"

    with client_of(run) as client:
        paused = client.run("clerk", "go", session_id="s")
        assert [one["tool_execution"]["tool_name"] for one in paused["requirements"]] == [
            "sign",
            "pay",
        ]
        assert done == ["slow"]
        outcome = go_on(client, paused, {"result": "signed"}, YES)

    assert (outcome["status"], outcome["content"], done) == ("COMPLETED", "Over", ["slow"])


def test_an_error_of_the_framework_ends_the_run() -> None:
    async def run(recorder: Recorder) -> Any:
        raise ToolError(f"Not today, {recorder.user_id} of {recorder.session_id}")

    with client_of(run) as client:
        form = {"message": "go", "session_id": "s", "user_id": "ada", "stream": False}
        outcome = client.post(PATH, form=form).json()

    assert (outcome["status"], outcome["content"]) == ("ERROR", "Not today, ada of s")


def test_a_framework_that_cancels_itself_ends_the_run() -> None:
    async def run(recorder: Recorder) -> Any:
        raise asyncio.CancelledError

    with client_of(run) as client:
        outcome = client.run("clerk", "go", session_id="s")
        client.take_errors()

    assert outcome["status"] == "ERROR"


# --- The crossing, on both loops ---------------------------------------------------------------


async def take(function: Any, most: int = 99) -> list[Any]:
    """Return the pieces of a run that is hosted here, at most so many."""
    pieces: list[Any] = []
    run: Any = host(function)(Run(run_id="r"), "hello", [], {})
    async for piece in run:
        pieces.append(piece)
        if isinstance(piece, CallStep):
            piece.done, piece.result = True, 3
        if len(pieces) == most:
            break
    await run.aclose()
    return pieces


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_pieces_cross_to_either_loop(backend: str) -> None:
    async def run(recorder: Recorder) -> Any:
        recorder.hear("")
        recorder.hear(recorder.run_id)
        assert threading.current_thread().name == "legation adapters"
        return await recorder.tool("c", "t", {}, partial(give, 1))

    text, step, final = anyio.run(take, run, backend=backend)

    assert (text, step.name, final) == ("r", "t", FinalAnswer(3))


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_run_that_ends_early_cancels_the_framework_and_waits_for_it(backend: str) -> None:
    cleaned: list[str] = []

    async def run(recorder: Recorder) -> Any:
        try:
            recorder.hear("one")
            await asyncio.sleep(600)
        finally:
            await asyncio.sleep(0.01)
            cleaned.append("up")

    assert anyio.run(take, run, 1, backend=backend) == ["one"]
    assert cleaned == ["up"]


def test_text_that_nobody_takes_is_bounded_and_gathers() -> None:
    async def say() -> list[Any]:
        crossing = Crossing(LOOP_THREAD.loop())

        async def work() -> None:
            for _ in range(4):
                crossing.hear("x")
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            crossing.hear("x" * MAX_TEXT)

        crossing.start(work)
        pieces: list[Any] = []
        with anyio.fail_after(20):
            while not crossing._over:
                await anyio.sleep(0.001)
            while crossing._sent:
                pieces.append(await crossing.next())
                crossing.taken()
            with pytest.raises(TooMuchText, match="4194304"):
                await crossing.next()
        return pieces

    assert anyio.run(say) == ["x", "xxx"]


def test_a_framework_that_will_not_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("legation_adapters.crossing.CLOSE_SECONDS", 0.01)
    released = threading.Event()

    async def stubborn(recorder: Recorder) -> Any:
        recorder.hear("one")
        while not released.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                pass

    try:
        assert anyio.run(take, stubborn, 1) == ["one"]
    finally:
        released.set()


def test_there_is_one_loop_until_it_is_stopped() -> None:
    thread = LoopThread()
    first = thread.loop()

    assert thread.loop() is first
    thread.stop()
    second = thread.loop()
    assert second is not first
    thread.stop()
    thread.stop()


def test_a_framework_that_is_not_installed_says_how_it_is() -> None:
    assert load("json.decoder", "x").__name__ == "json.decoder"
    with pytest.raises(ImportError, match=r"pip install 'legation\[nothing\]'"):
        load("no_such_framework.agent", "nothing")
