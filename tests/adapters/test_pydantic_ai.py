"""Agents of Pydantic AI, hosted as they are: the real package, and a model behind a socket."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import anyio
import pytest

from legation import Agent, CallStep, ModelStep, Platform, Run
from legation.tools import StepEnd
from legation_adapters.loop_thread import LOOP_THREAD
from legation_testing import Client, crash_everywhere

from ..providers.chat_completions import ChatCompletionsServer
from ..providers.model_server import KEY, Said, serving
from ..two_databases import IN_MEMORY

ai: Any = pytest.importorskip("pydantic_ai", reason="nox -s adapters installs it")
exceptions: Any = pytest.importorskip("pydantic_ai.exceptions")
messages: Any = pytest.importorskip("pydantic_ai.messages")
functions: Any = pytest.importorskip("pydantic_ai.models.function")
openai: Any = pytest.importorskip("pydantic_ai.models.openai")
providers: Any = pytest.importorskip("pydantic_ai.providers.openai")
toolsets: Any = pytest.importorskip("pydantic_ai.toolsets")
tools: Any = pytest.importorskip("pydantic_ai.tools")
adapter: Any = pytest.importorskip("legation_adapters.pydantic_ai")

PATH: Final = "/agents/clerk/runs"
YES: Final = {"confirmed": True}


def client_of(agent: Any, **more: Any) -> Client:
    return Client(lambda: Platform(databases=IN_MEMORY, agents=[adapter.hosted(agent, **more)]))


def go_on(client: Client, run: Any, *said: dict[str, Any]) -> dict[str, Any]:
    asked = [one["tool_execution"] for one in run["requirements"]]
    answers = [{**one, **more} for one, more in zip(asked, said, strict=True)]
    form = {"tools": json.dumps(answers), "stream": "false"}
    after: dict[str, Any] = client.post(f"{PATH}/{run['run_id']}/continue", form=form).json()
    return after


def list_returns(conversation: Sequence[Any]) -> list[Any]:
    """Return what tools gave back, which is all that the model in a test goes by."""
    return [
        part.content
        for one in conversation
        for part in one.parts
        if isinstance(part, messages.ToolReturnPart)
    ]


def call(name: str, call_id: str, **arguments: Any) -> Any:
    return messages.ToolCallPart(name, arguments, tool_call_id=call_id)


def model_of(*rounds: Sequence[Any]) -> Any:
    """Return a model whose next answer depends on how many results it has read."""
    due = [0]
    for one in rounds:
        due.append(due[-1] + len(one))
    asks = dict(zip(due, rounds, strict=False))

    def answer(conversation: Any, _info: Any) -> Any:
        returns = list_returns(conversation)
        calls = asks.get(len(returns))
        said = messages.TextPart(f"Read: {json.dumps(returns)}")
        return messages.ModelResponse([messages.TextPart("Hm. "), *calls] if calls else [said])

    return functions.FunctionModel(answer)


def plain(agent: Any, **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return what makes a function a tool of an agent."""
    add: Callable[[Callable[..., Any]], Callable[..., Any]] = agent.tool_plain(**options)
    return add


def with_context(function: Callable[..., Any]) -> Callable[..., Any]:
    """Annotate the first parameter, `ctx`, as the framework wants it."""
    function.__annotations__["ctx"] = ai.RunContext
    return function


@dataclass
class Served:
    """A model behind a socket, and what its server saw."""

    server: ChatCompletionsServer
    model: Any


def find_user(run: Run) -> str | None:
    return run.user_id


@pytest.fixture
def served() -> Generator[Served]:
    server = ChatCompletionsServer()
    with serving(server) as address:
        provider = providers.OpenAIProvider(base_url=f"{address}/v1", api_key=KEY)
        yield Served(server, openai.OpenAIChatModel("gpt-x", provider=provider))
        loop = LOOP_THREAD.loop()
        asyncio.run_coroutine_threadsafe(provider.client.close(), loop).result(20)
    assert server.broken == []


def test_a_real_model_is_asked_streams_calls_a_tool_and_is_counted(served: Served) -> None:
    agent = ai.Agent(served.model, name="clerk", system_prompt="Be brief.")

    def look(ctx: Any, path: str) -> str:
        """Look at a file."""
        return f"{path} of {ctx.deps}"

    agent.tool(with_context(look))
    served.server.plan += [Said(calls=(("c1", "look", '{"path": "a"}'),)), Said(("It ", "rains."))]
    with client_of(agent, deps=find_user) as client:
        form = {"message": "Weather?", "session_id": "s", "user_id": "ada", "stream": True}
        events = client.post(PATH, form=form).events()
        second = client.run("clerk", "And now?", session_id="s", user_id="ada")
        other = client.run("clerk", "Hello", session_id="t", user_id="eve")

    last = json.loads(events[-1].data)
    assert (events[-1].name, last["content"]) == ("RunCompleted", "It rains.")
    heard = [json.loads(event.data)["content"] for event in events if event.name == "RunContent"]
    assert "".join(heard) == "It rains."
    assert last["metrics"]["total_tokens"] == 20
    (made,) = [json.loads(e.data)["tool"] for e in events if e.name == "ToolCallCompleted"]
    assert (made["tool_name"], made["tool_args"], made["result"]) == (
        "look",
        {"path": "a"},
        "a of ada",
    )
    assert (second["content"], other["content"]) == ("OK", "OK")
    told = [
        [(one["role"], one.get("content")) for one in seen.body["messages"]]
        for seen in served.server.seen
    ]
    assert told[2] == [
        ("system", "Be brief."),
        ("user", "Weather?"),
        ("assistant", "It rains."),
        ("user", "And now?"),
    ]
    assert told[3] == [("system", "Be brief."), ("user", "Hello")]


def make_shop(done: Counter[str]) -> Any:
    """Return an agent that looks, and pays twice where a person agrees."""
    pays = [call("pay", "p1", amount=1), call("pay", "p2", amount=2)]
    agent = ai.Agent(model_of([call("look", "l1", path="a")], pays), name="clerk")

    @plain(agent)
    def look(path: str) -> str:
        done["look"] += 1
        return f"{path} is full"

    @plain(agent, requires_approval=True)
    async def pay(amount: int) -> dict[str, int]:
        done[f"pay {amount}"] += 1
        return {"paid": amount}

    return agent


def test_a_tool_that_requires_approval_pauses_the_run_and_goes_on() -> None:
    done: Counter[str] = Counter()
    with client_of(make_shop(done)) as client:
        run: Any = client.run("clerk", "go", session_id="s")
        assert (run["status"], done) == ("PAUSED", {"look": 1})
        asked = [one["tool_execution"]["tool_args"] for one in run["requirements"]]
        assert asked == [{"amount": 1}, {"amount": 2}]
        run = go_on(client, run, YES, {"confirmed": False, "confirmation_note": "dear"})

    denied = "Function call was rejected by the user: dear"
    assert run["content"] == f"Read: {json.dumps(['a is full', {'paid': 1}, denied])}"
    assert done == {"look": 1, "pay 1": 1}


@pytest.mark.enumeration
def test_no_tool_is_called_twice_whatever_crashes(figures: Callable[[str], None]) -> None:
    done: Counter[str] = Counter()

    def make() -> Client:
        done.clear()
        client = client_of(make_shop(done), in_doubt="ask")
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
            check_run(client, run)
        assert max(done.values(), default=0) <= 1, done

    def check_run(client: Client, run: dict[str, Any]) -> None:
        for _ in range(4):
            if run["status"] == "PAUSED":
                asked = [one["tool_execution"] for one in run["requirements"]]
                said = [{"result": "by hand"} if "in_doubt" in one else YES for one in asked]
                run = go_on(client, run, *said)
        assert run["status"] == "COMPLETED"

    tried = crash_everywhere(make, act, check, every=11)
    figures(f"an agent of Pydantic AI: a crash at each of {tried.points} effects")


def test_a_tool_may_ask_wait_retry_fail_and_return_anything() -> None:
    asks = [
        [call("sometimes", "a"), call("again", "b"), call("broken", "c"), call("rich", "d")],
        [call("sign", "e", on="line"), call("odd", "f"), call("picture", "g")],
    ]
    agent = ai.Agent(model_of(*asks), name="clerk", toolsets=[], retries=3)
    tries: Counter[str] = Counter()

    def sometimes(ctx: Any) -> str:
        if not ctx.tool_call_approved:
            raise exceptions.ApprovalRequired(metadata={"why": "dear"})
        return "agreed"

    agent.tool(with_context(sometimes))

    @plain(agent)
    def again() -> str:
        tries["again"] += 1
        if tries["again"] == 1:
            raise exceptions.ModelRetry("once more")
        return "at last"

    @plain(agent)
    def broken() -> str:
        raise exceptions.ToolFailed("out of paper")

    @plain(agent)
    def rich() -> Any:
        return messages.ToolReturn("short", content="for you", metadata={"n": 1})

    @plain(agent)
    def sign(on: str) -> str:
        raise exceptions.CallDeferred

    @plain(agent)
    def odd() -> dict[str, str]:
        return {"__legation__": "approval"}

    @plain(agent)
    def picture() -> Any:
        return messages.BinaryContent(b"png", media_type="image/png")

    with client_of(agent) as client:
        run: Any = client.run("clerk", "go", session_id="s")
        assert [one["tool_execution"]["tool_name"] for one in run["requirements"]] == ["sometimes"]
        run = go_on(client, run, YES)
        assert [one["tool_execution"]["tool_name"] for one in run["requirements"]] == ["sign"]
        run = go_on(client, run, {"result": {"by": "Ada"}})

    assert run["status"] == "COMPLETED", run["content"]
    assert tries["again"] == 1
    assert '"agreed"' in run["content"]
    assert '{"by": "Ada"}' in run["content"]
    assert '{"__legation__": "approval"}' in run["content"]


def test_an_output_type_is_the_answer_as_a_value() -> None:
    @dataclass
    class Weather:
        rain: bool

    def answer(_conversation: Any, info: Any) -> Any:
        name = info.output_tools[0].name
        return messages.ModelResponse([call(name, "o", rain=True)])

    agent = ai.Agent(functions.FunctionModel(answer), output_type=Weather)
    with client_of(agent, id="clerk", stream=False) as client:
        run: Any = client.run("clerk", "go", session_id="s")

    assert (run["content"], run["content_type"]) == ({"rain": True}, "dict")


def test_files_are_given_to_the_model() -> None:
    seen: list[Any] = []

    def answer(conversation: Any, _info: Any) -> Any:
        seen.extend(conversation[-1].parts[-1].content)
        return messages.ModelResponse([messages.TextPart("Nice")])

    agent = ai.Agent(functions.FunctionModel(answer), name="clerk")
    with client_of(agent) as client:
        images = [{"mime_type": "image/png", "content": "iVBORw0KGgo="}]
        run: Any = client.run("clerk", "Look", session_id="s", images=images)

    assert run["content"] == "Nice"
    assert [seen[0], seen[1].media_type] == ["Look", "image/png"]


def test_a_hostile_and_a_huge_message_and_result_come_through() -> None:
    agent = ai.Agent(model_of([call("look", "a b\0c", path="x")]), name="clerk")

    @plain(agent)
    def look(path: str) -> str:
        return "\0\ud800" + "y" * 300_000

    with client_of(agent) as client:
        run: Any = client.run("clerk", "{{x}}</s>\u202e" + "z" * 100_000, session_id="s")

    assert run["status"] == "COMPLETED"
    assert len(run["tools"][0]["result"]) == 300_002


def test_a_run_that_is_cancelled_cancels_its_tool() -> None:
    agent = ai.Agent(model_of([call("wait", "w")]), name="clerk")
    cancelled: list[str] = []

    @plain(agent)
    async def wait() -> None:
        try:
            await asyncio.sleep(600)
        finally:
            cancelled.append("wait")

    hosted = adapter.hosted(agent)

    async def cancel() -> None:
        pieces = hosted.run(Run(run_id="r"), "hello", [], {})
        with anyio.fail_after(60):
            async for piece in pieces:
                if isinstance(piece, StepEnd) and isinstance(piece.step, ModelStep):
                    piece.step.done, piece.step.answer = True, piece.value
                if isinstance(piece, CallStep):
                    break
            with anyio.move_on_after(0.1):
                await anext(pieces)
            await pieces.aclose()

    anyio.run(cancel)
    assert cancelled == ["wait"]


def test_a_model_that_fails_ends_the_run_without_its_words() -> None:
    def answer(_conversation: Any, _info: Any) -> Any:
        raise RuntimeError("secret")

    agent = ai.Agent(functions.FunctionModel(answer), name="clerk")
    with client_of(agent) as client:
        run: Any = client.run("clerk", "go", session_id="s")
        client.take_errors()

    assert run["status"] == "ERROR"
    assert "secret" not in repr(run)


def test_options_are_those_of_an_agent_of_ours() -> None:
    agent = ai.Agent(model_of(), name="clerk")
    hosted = adapter.hosted(agent, name="The clerk", description="Pays", history_runs=7)

    assert isinstance(hosted, Agent)
    assert (hosted.id, hosted.name, hosted.again) == ("clerk", "The clerk", "safe")
    assert (hosted.description, hosted.history_runs) == ("Pays", 7)
