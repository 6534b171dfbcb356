"""Agents of the OpenAI Agents SDK, with the real package: hosted as they are."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import pytest

from legation import Agent, Platform
from legation_adapters.loop_thread import LOOP_THREAD
from legation_testing import Client

from ..providers.chat_completions import ChatCompletionsServer
from ..providers.model_server import KEY, Item, Refusal, Said, serving
from ..two_databases import IN_MEMORY
from .living import EVERY, Calls, cancel_on, crash

sdk: Any = pytest.importorskip("agents", reason="nox -s adapters installs it")
testing: Any = pytest.importorskip("agents.testing.model")
responses: Any = pytest.importorskip("openai.types.responses")
openai: Any = pytest.importorskip("openai")
adapter: Any = pytest.importorskip("legation_adapters.openai_agents")

Decorator: TypeAlias = Callable[[Callable[..., Any]], Any]
function_tool: Decorator = sdk.function_tool
needs_approval: Decorator = sdk.function_tool(needs_approval=True)
input_guardrail: Decorator = sdk.input_guardrail

USAGE: Final = {"requests": 1, "input_tokens": 7, "output_tokens": 3, "total_tokens": 10}


def text(said: str) -> Any:
    part = responses.ResponseOutputText(type="output_text", text=said, annotations=[])
    message = responses.ResponseOutputMessage(
        id="m", role="assistant", type="message", status="completed", content=[part]
    )
    return testing.ModelStep(output=[message], usage=sdk.Usage(**USAGE))


def calls(*made: tuple[str, str, Any]) -> Any:
    output = [
        responses.ResponseFunctionToolCall(
            type="function_call", call_id=call_id, name=name, arguments=json.dumps(arguments)
        )
        for call_id, name, arguments in made
    ]
    return testing.ModelStep(output=output, usage=sdk.Usage(**USAGE))


class _Scripted:
    """Answers by how many answers stand in the input since the last message of a person."""

    def __init__(self, *script: Any) -> None:
        self.script, self.seen, self.closed = script, list[Any](), 0

    def _pick(self, given: Sequence[Any]) -> Any:
        self.seen.append(given)
        last = max(i for i, item in enumerate(given) if item.get("role") == "user")
        done = [item for item in given[last:] if item.get("type") == "function_call"]
        asked, step = 0, 0
        while asked < len(done):
            asked += len(self.script[step].output)
            step += 1
        if isinstance(self.script[step], Exception):
            raise self.script[step]
        return testing.ScriptedModel([self.script[step]])

    async def get_response(self, system: Any, given: Any, *rest: Any, **named: Any) -> Any:
        return await self._pick(given).get_response(system, given, *rest, **named)

    async def stream_response(self, system: Any, given: Any, *rest: Any, **named: Any) -> Any:
        async for event in self._pick(given).stream_response(system, given, *rest, **named):
            yield event


Scripted: Any = type("Scripted", (_Scripted, sdk.Model), {})


def desk(called: Calls, *script: Any, **settings: Any) -> Agent:
    """Return an agent with tools, and one that it hands off to."""

    @function_tool
    def book(room: int) -> dict[str, Any]:
        called.make("book", room)
        return {"room": room}

    @needs_approval
    async def pay(euros: int) -> str:
        await asyncio.sleep(0)
        return called.make("pay", euros)

    @function_tool
    def fail() -> str:
        called.make("fail", "")
        raise ValueError("the printer burns")

    model = Scripted(*script)
    payer = sdk.Agent(name="Payer", model=model, tools=[pay])
    agent = sdk.Agent(name="Front Desk", model=model, tools=[book, fail], handoffs=[payer])
    payer.handoffs = [agent]
    settings.setdefault("database", "main")
    return adapter.hosted(agent, **settings)  # type: ignore[no-any-return]


WHOLE: Final = (
    calls(("c1", "book", {"room": 3}), ("c2", "book", {"room": 4})),
    calls(("c3", "fail", {})),
    calls(("c4", "transfer_to_payer", {})),
    calls(("c5", "pay", {"euros": 9})),
    text("all is done"),
)


def hosting(*agents: Agent) -> Client:
    return Client(Platform(databases=IN_MEMORY, agents=list(agents)))


def test_a_run_calls_tools_hands_off_pauses_and_goes_on() -> None:
    called = Calls()
    with hosting(desk(called, *WHOLE)) as client:
        paused = client.run("front-desk", "go", session_id="s")
        (needed,) = paused.requirements

        assert paused.status == "PAUSED"
        assert needed.tool_execution.tool_name == "pay"
        assert needed.tool_execution.tool_args == {"euros": 9}
        assert "pay 9" not in called.made

        run = client.go_on(paused, confirmed=True)

    assert (run.status, run.content) == ("COMPLETED", "all is done")
    assert called.made == {"book 3": 1, "book 4": 1, "fail ": 1, "pay 9": 1}
    shown = {tool["tool_call_id"]: (tool["tool_name"], tool["result"]) for tool in run["tools"]}
    assert shown["c1"] == ("book", '{"room":3}')
    assert shown["c4"] == ("transfer_to_payer", "Payer")
    assert shown["c5"] == ("pay", "pay 9")
    failed = [tool["tool_call_id"] for tool in run["tools"] if tool["tool_call_error"]]
    assert failed == ["c3"]
    assert (run.metrics.input_tokens, run.metrics.output_tokens) == (35, 15)


def test_a_rejected_call_is_not_made_and_the_model_knows_why() -> None:
    called = Calls()
    model = [calls(("c1", "transfer_to_payer", {})), calls(("c2", "pay", {"euros": 9})), text("no")]
    hosted = desk(called, *model)
    with hosting(hosted) as client:
        paused = client.run("front-desk", "go", session_id="s")
        run = client.go_on(paused, confirmed=False, confirmation_note="too dear")

    assert (run.status, run.content) == ("COMPLETED", "no")
    assert called.made == {}


def test_text_is_streamed_in_events_of_ours() -> None:
    with hosting(desk(Calls(), calls(("c1", "book", {"room": 3})), text("all is done"))) as client:
        events = [(event.name, event.json()) for event in client.stream("front-desk", "go")]

    names = [name for name, _ in events]
    pieces = [fields["content"] for name, fields in events if name == "RunContent"]
    assert "".join(pieces) == "all is done"
    assert names.count("ModelRequestCompleted") == 2
    assert names.index("ToolCallStarted") < names.index("ToolCallCompleted")
    assert names[-1] == "RunCompleted"


def test_no_call_is_made_twice_at_any_crash() -> None:
    trials = crash(lambda called: desk(called, *WHOLE), "all is done", every=EVERY)

    assert trials.points > 2


def test_a_model_that_fails_ends_the_run() -> None:
    with hosting(desk(Calls(), RuntimeError("no model"))) as client:
        run = client.run("front-desk", "go")
        client.take_errors()

    assert run.status == "ERROR"
    assert "no model" not in json.dumps(dict(run))


def test_sessions_of_two_callers_are_apart_and_each_is_the_history() -> None:
    model = Scripted(text("hello"))
    hosted = adapter.hosted(sdk.Agent(name="Desk", model=model))
    with hosting(hosted) as client:
        for user, message in (("ada", "one"), ("bob", "two"), ("ada", "three")):
            client.run("desk", message, session_id=f"of {user}", user_id=user)

    said = [[item["content"] for item in given] for given in model.seen]
    assert said == [["one"], ["two"], ["one", "hello", "three"]]


def test_agents_store_in_their_own_database() -> None:
    first = adapter.hosted(sdk.Agent(name="First", model=Scripted(text("1"))), database="main")
    second = adapter.hosted(sdk.Agent(name="Second", model=Scripted(text("2"))), database="second")
    with hosting(first, second) as client:
        for name in ("first", "second"):
            assert client.run(name, "go", session_id=name).status == "COMPLETED"
        found = client.get("/sessions?db_id=second").json()["data"]

    assert [row["session_id"] for row in found] == ["second"]


def test_a_huge_message_and_a_hostile_one_come_whole() -> None:
    model = Scripted(text("well"))
    hostile = "\u202e{}\\ \U0001f4a3 </tool> {{secret}} %s"
    with hosting(adapter.hosted(sdk.Agent(name="Desk", model=model))) as client:
        for message in ("x" * 60_000, hostile):
            assert client.run("desk", message).content == "well"

    assert [given[-1]["content"] for given in model.seen] == ["x" * 60_000, hostile]


def test_a_call_with_arguments_that_are_no_json_is_told_to_the_model() -> None:
    broken = calls(("c1", "book", {}))
    broken.output[0].arguments = '{"room": '
    with hosting(desk(Calls(), broken, text("sorry"))) as client:
        run = client.run("front-desk", "go")

    assert (run.status, run.content) == ("COMPLETED", "sorry")


def test_a_structured_answer_is_an_object() -> None:
    pydantic: Any = pytest.importorskip("pydantic")
    shape = pydantic.create_model("Room", number=(int, ...))
    agent = sdk.Agent(name="Desk", model=Scripted(text('{"number": 7}')), output_type=shape)
    with hosting(adapter.hosted(agent)) as client:
        assert client.run("desk", "go").content == {"number": 7}


def test_a_guardrail_ends_the_run_with_its_name() -> None:
    @input_guardrail
    def polite(context: Any, agent: Any, given: Any) -> Any:
        return sdk.GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)

    agent = sdk.Agent(name="Desk", model=Scripted(text("x")), input_guardrails=[polite])
    with hosting(adapter.hosted(agent)) as client:
        run = client.run("desk", "go")

    assert (run.status, run.content) == ("ERROR", "The guardrail polite refused the message")


def test_the_context_of_tools_is_made_from_the_run() -> None:
    whoami = sdk.function_tool(_annotated(whoami_of))
    agent = sdk.Agent(
        name="Desk", model=Scripted(calls(("c1", "whoami_of", {})), text("x")), tools=[whoami]
    )

    def context(run: Any) -> Any:
        return {"user": run.user_id}

    hosted = adapter.hosted(agent, context=context)
    with hosting(hosted) as client:
        run = client.run("desk", "go", user_id="ada")

    assert run["tools"][0]["result"] == "{'user': 'ada'}"


def whoami_of(context: Any) -> str:
    return str(context.context)


def _annotated(function: Callable[..., Any]) -> Callable[..., Any]:
    function.__annotations__["context"] = sdk.RunContextWrapper[Any]
    return function


def test_everything_that_cannot_be_hosted_is_said_at_once() -> None:
    @needs_approval
    def pay() -> str:
        return ""

    inner = sdk.Agent(name="Inner", tools=[pay])
    agent = sdk.Agent(
        name="Desk", tools=[sdk.LocalShellTool(lambda request: ""), inner.as_tool("ask", "ask")]
    )
    with pytest.raises(ValueError, match="cannot be hosted") as caught:
        adapter.hosted(agent)

    assert "LocalShellTool" in str(caught.value)
    assert "'pay' needs an approval" in str(caught.value)


@pytest.mark.parametrize("host", ["trio server", "asgi under uvicorn"])
def test_a_cancelled_run_cancels_the_framework(host: str) -> None:
    began, ended = threading.Event(), threading.Event()

    class Hanging(_Scripted):
        async def stream_response(self, *rest: Any, **named: Any) -> Any:
            began.set()
            try:
                await asyncio.Event().wait()
                yield
            finally:
                ended.set()

    model = type("Model", (Hanging, sdk.Model), {})()
    agent = adapter.hosted(sdk.Agent(name="Desk", model=model))

    assert cancel_on(host, agent, began) == "CANCELLED"
    assert ended.wait(20)


def test_the_sdks_own_model_asks_a_server() -> None:
    plan: list[Item] = [
        Said(("Let me ", "look. "), calls=(("c1", "look", '{"order": "7"}'),)),
        Said(("It is ", "on its way."), tokens=(31, 12)),
        Refusal(500),
        Refusal(500),
        Refusal(500),
    ]
    server = ChatCompletionsServer(plan)

    @function_tool
    def look(order: str) -> str:
        return f"order {order}"

    with serving(server) as address:
        asked = openai.AsyncOpenAI(api_key=KEY, base_url=f"{address}/v1", max_retries=0)
        model = sdk.OpenAIChatCompletionsModel("gpt-5-mini", asked)
        hosted = adapter.hosted(sdk.Agent(name="Desk", model=model, tools=[look]))
        with hosting(hosted) as client:
            run = client.run("desk", "where is 7?", session_id="s")
            failed = client.run("desk", "again", session_id="s")
            client.take_errors()
        asyncio.run_coroutine_threadsafe(asked.close(), LOOP_THREAD.loop()).result(20)

    assert server.broken == []
    assert (run.status, run.content) == ("COMPLETED", "It is on its way.")
    assert (run.metrics.input_tokens, run.metrics.output_tokens) == (38, 15)
    assert failed.status == "ERROR"
