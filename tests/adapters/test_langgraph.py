"""Graphs of LangGraph, with the real package: hosted as they are."""

from __future__ import annotations

import asyncio
import json
import operator
import threading
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final

import pytest
from typing_extensions import TypedDict

from legation import Agent, Platform
from legation_adapters.loop_thread import LOOP_THREAD
from legation_testing import Client

from ..providers.chat_completions import ChatCompletionsServer
from ..providers.model_server import KEY, Said, serving
from ..two_databases import IN_MEMORY
from .living import EVERY, Calls, cancel_on, crash

graphs: Any = pytest.importorskip("langgraph.graph", reason="nox -s adapters installs it")
prebuilt: Any = pytest.importorskip("langgraph.prebuilt")
functional: Any = pytest.importorskip("langgraph.func")
types: Any = pytest.importorskip("langgraph.types")
messages: Any = pytest.importorskip("langchain_core.messages")
models: Any = pytest.importorskip("langchain_core.language_models")
outputs: Any = pytest.importorskip("langchain_core.outputs")
openai: Any = pytest.importorskip("langchain_openai")
adapter: Any = pytest.importorskip("legation_adapters.langgraph")

pytestmark = pytest.mark.filterwarnings("ignore:create_react_agent has been moved")

START: Final = "__start__"
TOKENS: Final = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}


class State(TypedDict, total=False):
    messages: Annotated[list[Any], graphs.add_messages]
    got: Annotated[list[Any], operator.add]


class _Scripted:
    """Answers by how often it answered since the last message of a person."""

    script: list[Any]
    seen: list[Any]

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **named: Any) -> Any:
        return self

    def _pick(self, given: Sequence[Any]) -> Any:
        self.seen.append([(message.type, message.content) for message in given])
        last = max(i for i, message in enumerate(given) if message.type == "human")
        said = self.script[sum(message.type == "ai" for message in given[last:])]
        if isinstance(said, Exception):
            raise said
        return said

    def _generate(self, given: Any, *rest: Any, **named: Any) -> Any:
        message = self._pick(given).model_copy()
        return outputs.ChatResult(generations=[outputs.ChatGeneration(message=message)])

    def _stream(
        self, given: Any, stop: Any = None, run_manager: Any = None, **named: Any
    ) -> Iterator[Any]:
        said = self._pick(given)
        for chunk in _chunks(said):
            piece = outputs.ChatGenerationChunk(message=chunk)
            if run_manager:
                run_manager.on_llm_new_token(chunk.content, chunk=piece)
            yield piece


def _chunks(said: Any) -> Iterator[Any]:
    made = [
        {"name": call["name"], "args": json.dumps(call["args"]), "id": call["id"], "index": index}
        for index, call in enumerate(said.tool_calls)
    ]
    words = said.content.split(" ")
    for index, word in enumerate(words):
        last = index == len(words) - 1
        yield messages.AIMessageChunk(
            content=word if last else f"{word} ",
            tool_call_chunks=made if last else [],
            usage_metadata=TOKENS if last else None,
        )


Scripted: Any = type(
    "Scripted",
    (_Scripted, models.BaseChatModel),
    {"__annotations__": {"script": list[Any], "seen": list[Any]}, "script": [], "seen": []},
)


def calls(*made: tuple[str, str, Any]) -> Any:
    tool_calls = [{"id": call_id, "name": name, "args": args} for call_id, name, args in made]
    return messages.AIMessage("", tool_calls=tool_calls)


WHOLE: Final = (
    calls(("c1", "book", {"room": 3}), ("c2", "book", {"room": 4})),
    calls(("c3", "pay", {"euros": 9})),
    messages.AIMessage("all is done"),
)


def tools(called: Calls) -> list[Any]:
    def book(room: int) -> str:
        """Book a room."""
        return called.make("book", room)

    async def pay(euros: int) -> str:
        """Pay, if a person agrees."""
        agreed = types.interrupt({"euros": euros})
        return called.make("pay", euros) if agreed is True else f"not paid: {agreed}"

    def fail() -> str:
        """Fail."""
        called.make("fail", "")
        raise ValueError("the printer burns")

    return [book, pay, fail]


def prebuilt_agent(called: Calls, *script: Any) -> Any:
    return prebuilt.create_react_agent(Scripted(script=[*script]), tools(called))


def own_graph(called: Calls, *script: Any) -> Any:
    model = Scripted(script=[*script])

    def chat(state: Any) -> Any:
        return {"messages": [model.invoke(state["messages"])]}

    builder = graphs.StateGraph(State)
    builder.add_node("chat", chat)
    builder.add_node("tools", prebuilt.ToolNode(tools(called), handle_tool_errors=True))
    builder.add_edge(START, "chat")
    builder.add_conditional_edges("chat", prebuilt.tools_condition)
    builder.add_edge("tools", "chat")
    return builder


def nested_graph(called: Calls, *script: Any) -> Any:
    builder = graphs.StateGraph(State)
    builder.add_node("desk", own_graph(called, *script).compile())
    builder.add_edge(START, "desk")
    return builder.compile()


MADE: Final = {"prebuilt": prebuilt_agent, "own": own_graph, "nested": nested_graph}


def desk(kind: str, called: Calls, *script: Any, **settings: Any) -> Agent:
    """Return the same agent as one of the graphs there are."""
    settings = {"database": "main", "again": ["chat"], **settings}
    return adapter.hosted(MADE[kind](called, *script), id="desk", **settings)  # type: ignore[no-any-return]


def one_node(node: Any, **settings: Any) -> Agent:
    builder = graphs.StateGraph(State)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    return adapter.hosted(builder, id="desk", **settings)  # type: ignore[no-any-return]


def hosting(*agents: Agent) -> Client:
    return Client(Platform(databases=IN_MEMORY, agents=list(agents)))


@pytest.mark.parametrize("kind", MADE)
def test_a_run_calls_tools_pauses_and_goes_on(kind: str) -> None:
    called = Calls()
    with hosting(desk(kind, called, *WHOLE)) as client:
        paused = client.run("desk", "go", session_id="s")
        (needed,) = paused.requirements

        assert paused.status == "PAUSED"
        assert needed.tool_execution.tool_name == "pay"
        assert needed.tool_execution.tool_args == {"euros": 9}
        assert "pay 9" not in called.made

        run = client.go_on(paused, confirmed=True)

    assert (run.status, run.content) == ("COMPLETED", "all is done")
    assert called.made == {"book 3": 1, "book 4": 1, "pay 9": 1}
    shown = {tool["tool_call_id"]: tool["result"] for tool in run["tools"]}
    assert (shown["c1"], shown["c2"], shown["c3.2"]) == ("book 3", "book 4", "pay 9")
    assert (run.metrics.input_tokens, run.metrics.output_tokens) == (21, 9)


@pytest.mark.parametrize(
    ("answer", "content"),
    [
        ({"confirmed": False}, "not paid: False"),
        ({"confirmed": False, "confirmation_note": "too dear"}, "not paid: too dear"),
    ],
)
def test_an_interrupt_returns_what_the_person_said(answer: Any, content: str) -> None:
    called = Calls()
    with hosting(desk("own", called, WHOLE[1], messages.AIMessage("no"))) as client:
        run = client.go_on(client.run("desk", "go", session_id="s"), **answer)

    assert run.content == "no"
    assert called.made == {}
    assert content in [tool["result"] for tool in run["tools"]]


@pytest.mark.parametrize("kind", MADE)
def test_text_is_streamed_in_events_of_ours(kind: str) -> None:
    with hosting(desk(kind, Calls(), WHOLE[0], WHOLE[2])) as client:
        events = [(event.name, event.json()) for event in client.stream("desk", "go")]

    names = [name for name, _ in events]
    assert "".join(fields["content"] for name, fields in events if name == "RunContent") == (
        "all is done"
    )
    assert names.count("ModelRequestCompleted") == 2
    assert names[-1] == "RunCompleted"


@pytest.mark.parametrize("kind", MADE)
def test_no_call_is_made_twice_at_any_crash(kind: str) -> None:
    trials = crash(lambda called: desk(kind, called, *WHOLE), "all is done", every=EVERY)

    assert trials.points > 2


def test_no_node_is_executed_twice_at_any_crash() -> None:
    def make(called: Calls) -> Agent:
        def plan(state: Any) -> Any:
            called.make("plan", "")
            sent = [types.Send("work", {"number": number}) for number in range(2)]
            return types.Command(goto=sent, update={"got": ["planned"]})

        async def work(state: Any) -> Any:
            await asyncio.sleep(0)
            called.make("work", state["number"])
            return {"got": [state["number"]]}

        def end(state: Any) -> Any:
            first = messages.RemoveMessage(id=state["messages"][0].id)
            return {"messages": [first, messages.AIMessage(str(state["got"]))]}

        builder = graphs.StateGraph(State)
        builder.add_node("plan", plan, destinations=("work",))
        builder.add_node("work", work)
        builder.add_node("end", end)
        builder.add_edge(START, "plan")
        builder.add_edge("work", "end")
        return adapter.hosted(builder, id="desk")  # type: ignore[no-any-return]

    with hosting(make(Calls())) as client:
        assert client.run("desk", "go").content == "['planned', 0, 1]"

    trials = crash(make, None, every=EVERY)

    assert trials.points > 2


def test_several_interrupts_of_a_node_are_asked_one_after_the_other() -> None:
    made: list[Any] = []

    def node(state: Any) -> Any:
        first, second = types.interrupt("first?"), types.interrupt({"second": 2})
        made.append((first, second))
        return {"messages": [messages.AIMessage(f"{first} {second}")]}

    with hosting(one_node(node)) as client:
        paused = client.run("desk", "go", session_id="s")
        assert paused.requirements[0].tool_execution.tool_args == {"value": "first?"}
        paused = client.go_on(paused, confirmed=True)
        assert paused.requirements[0].tool_execution.tool_args == {"second": 2}
        run = client.go_on(paused, confirmed=False, confirmation_note="no")

    assert run.content == "True no"
    assert made == [(True, "no")]


def test_interrupts_side_by_side_are_one_pause() -> None:
    def ask(name: str) -> Any:
        def node(state: Any) -> Any:
            return {"got": [(name, types.interrupt(name))]}

        return node

    def end(state: Any) -> Any:
        return {"messages": [messages.AIMessage(str(state["got"]))]}

    builder = graphs.StateGraph(State)
    for name in ("a", "b"):
        builder.add_node(name, ask(name))
        builder.add_edge(START, name)
    builder.add_node("end", end)
    builder.add_edge(["a", "b"], "end")
    with hosting(adapter.hosted(builder, id="desk")) as client:
        paused = client.run("desk", "go", session_id="s")
        assert len(paused.requirements) == 2
        run = client.go_on(paused, confirmed=True)

    assert run.content == "[['a', True], ['b', True]]"


def test_a_breakpoint_is_a_pause_and_may_be_refused() -> None:
    builder = graphs.StateGraph(State)
    builder.add_node("act", lambda state: {"messages": [messages.AIMessage("acted")]})
    builder.add_edge(START, "act")
    graph = builder.compile(interrupt_before=["act"])
    with hosting(adapter.hosted(graph, id="desk")) as client:
        paused = client.run("desk", "go", session_id="a")
        assert paused.requirements[0].tool_execution.tool_name == "act"
        agreed = client.go_on(paused, confirmed=True)
        refused = client.go_on(client.run("desk", "go", session_id="b"), confirmed=False)

    assert agreed.content == "acted"
    assert (refused.status, refused.content) == (
        "ERROR",
        "A person did not agree that the graph goes on",
    )


def test_requests_for_actions_are_answered_as_langchains_middleware_wants_it() -> None:
    nothing: dict[str, int] = {}
    requests = [{"name": "wipe", "args": {"disk": 1}}, {"name": "buy", "args": nothing}]
    asked = {"action_requests": requests}

    def node(state: Any) -> Any:
        return {"messages": [messages.AIMessage(json.dumps(types.interrupt(asked)))]}

    with hosting(one_node(node)) as client:
        paused = client.run("desk", "go", session_id="s")
        assert [one.tool_execution.tool_name for one in paused.requirements] == ["wipe", "buy"]
        run = client.go_on(paused, confirmed=True)

    assert json.loads(run.content) == {"decisions": [{"type": "approve"}, {"type": "approve"}]}


def test_a_tool_that_fails_is_told_to_the_model_or_ends_the_run() -> None:
    failing = calls(("c1", "fail", {}))
    told = desk("own", Calls(), failing, messages.AIMessage("sorry"))
    ended = adapter.hosted(prebuilt_agent(Calls(), failing), id="strict")
    with hosting(told, ended) as client:
        assert client.run("desk", "go").content == "sorry"
        assert client.run("strict", "go").status == "ERROR"
        client.take_errors()


def test_a_model_that_fails_ends_the_run() -> None:
    with hosting(desk("own", Calls(), RuntimeError("no model"))) as client:
        run = client.run("desk", "go")
        client.take_errors()

    assert run.status == "ERROR"
    assert "no model" not in json.dumps(dict(run))


def test_a_node_that_is_tried_again_by_its_policy_comes_to_its_end() -> None:
    tries: list[int] = []

    def node(state: Any) -> Any:
        tries.append(1)
        if len(tries) < 3:
            raise RuntimeError("not yet")
        return {"messages": [messages.AIMessage("now")]}

    builder = graphs.StateGraph(State)
    policy = types.RetryPolicy(initial_interval=0.001, retry_on=RuntimeError)
    builder.add_node("node", node, retry_policy=policy)
    builder.add_edge(START, "node")
    with hosting(adapter.hosted(builder, id="desk")) as client:
        assert client.run("desk", "go").content == "now"


def test_sessions_of_two_callers_are_apart_and_each_is_the_history() -> None:
    model = Scripted(script=[messages.AIMessage("hello")], seen=[])
    hosted = adapter.hosted(prebuilt.create_react_agent(model, []), id="desk")
    with hosting(hosted) as client:
        for user, message in (("ada", "one"), ("bob", "two"), ("ada", "three")):
            client.run("desk", message, session_id=f"of {user}", user_id=user)

    said = [[content for _, content in given] for given in model.seen]
    assert said == [["one"], ["two"], ["one", "hello", "three"]]


def test_agents_store_in_their_own_database() -> None:
    answer = messages.AIMessage("well")
    hosted = desk("own", Calls(), answer, database="second")
    with hosting(hosted) as client:
        assert client.run("desk", "go", session_id="other").status == "COMPLETED"
        found = client.get("/sessions?db_id=second").json()["data"]

    assert [row["session_id"] for row in found] == ["other"]


def test_a_huge_message_and_a_hostile_one_come_whole() -> None:
    seen: list[str] = []

    def node(state: Any) -> Any:
        seen.append(state["messages"][-1].content)
        return {"messages": [messages.AIMessage("well")]}

    hostile = "\u202e{}\\ \U0001f4a3 </tool> {{secret}} %s"
    with hosting(one_node(node)) as client:
        for message in ("x" * 60_000, hostile):
            assert client.run("desk", message).content == "well"

    assert seen == ["x" * 60_000, hostile]


def test_a_node_whose_output_cannot_be_read_again_is_refused() -> None:
    with hosting(one_node(lambda state: {"got": [threading.Lock()]})) as client:
        run = client.run("desk", "go")

    assert run.status == "ERROR"
    assert "name its classes in hosted(types=[...])" in str(run.content)


def test_a_function_of_the_functional_api_is_one_call() -> None:
    def flow(given: Any) -> Any:
        return {"words": len(given["messages"][-1].content.split())}

    hosted = adapter.hosted(functional.entrypoint()(flow), id="desk")
    with hosting(hosted) as client:
        run = client.run("desk", "one two three")

    assert run.content == {"words": 3}


def test_input_output_and_context_may_be_made_otherwise() -> None:
    class Sum(TypedDict, total=False):
        numbers: list[int]
        total: int

    def add(state: Any, runtime: Any) -> Any:
        return {"total": sum(state["numbers"]) + runtime.context}

    def give(run: Any) -> Any:
        return {"numbers": json.loads(run.message)}

    add.__annotations__["runtime"] = pytest.importorskip("langgraph.runtime").Runtime[int]
    builder = graphs.StateGraph(Sum, context_schema=int)
    builder.add_node("add", add)
    builder.add_edge(START, "add")
    hosted = adapter.hosted(
        builder,
        id="desk",
        given=give,
        answer=operator.itemgetter("total"),
        context=lambda run: 100,
    )
    with hosting(hosted) as client:
        assert client.run("desk", "[1, 2]").content == 103


@pytest.mark.parametrize("host", ["trio server", "asgi under uvicorn"])
def test_a_cancelled_run_cancels_the_framework(host: str) -> None:
    began, ended = threading.Event(), threading.Event()

    async def node(state: Any) -> Any:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    assert cancel_on(host, one_node(node), began) == "CANCELLED"
    assert ended.wait(20)


def test_a_model_of_langchain_asks_a_server() -> None:
    server = ChatCompletionsServer(
        [
            Said(("Let me ", "look. "), calls=(("c1", "book", '{"room": 3}'),)),
            Said(("It is ", "booked."), tokens=(31, 12)),
        ]
    )
    called = Calls()
    with serving(server) as address:
        model = openai.ChatOpenAI(
            model="gpt-5-mini", api_key=KEY, base_url=f"{address}/v1", stream_usage=True
        )
        graph = prebuilt.create_react_agent(model, tools(called))
        with hosting(adapter.hosted(graph, id="desk")) as client:
            run = client.run("desk", "book 3", session_id="s")
        closing = model.root_async_client.close()
        asyncio.run_coroutine_threadsafe(closing, LOOP_THREAD.loop()).result(20)
        model.root_client.close()

    assert server.broken == []
    assert (run.status, run.content) == ("COMPLETED", "It is booked.")
    assert (run.metrics.input_tokens, run.metrics.output_tokens) == (38, 15)
    assert called.made == {"book 3": 1}
