from __future__ import annotations

import json
from collections.abc import Iterable
from importlib import import_module
from typing import Any, Final, cast

import pytest
from opentelemetry.semconv.schemas import Schemas

from legation import Agent, Model, Platform, genai
from legation.effects import (
    Concurrently,
    Fetch,
    Interruptible,
    Job,
    OpenStream,
    Program,
    Publish,
    RunEvent,
    Sleep,
    Spawn,
    Transact,
)
from legation.messages import Request
from legation.runs.execute import ExecuteRun
from legation.spans import Carried, Kind, Origins, Recorder, Span, Way, carried
from legation.store.failures import Busy
from legation.store.run_rows import ClaimedRun
from legation.store.sessions import FetchSession
from legation.tracing import Trace
from legation.watch import Arrival
from legation_testing import Client, ScriptedModel, call, close_at_every_effect, play
from legation_testing.performing import nothing_listens

from ..callers import demo

TRACE: Final = Trace("a" * 32, "b" * 16, state="vendor=1")
SENT: Final = TRACE.headers()


def event(seq: int, name: str, *, final: bool = False, **fields: Any) -> RunEvent:
    """Return an event of a run, a second after the one before."""
    told = {"event": name, "run_id": "r1", "session_id": "s1", **fields}
    return RunEvent(seq, name, json.dumps(told), final, seq * 1_000_000)


AGENT: Final[dict[str, Any]] = {"agent_id": "alpha", "agent_name": "Alpha"}
MODEL: Final[dict[str, Any]] = {"model": "gpt-5", "model_provider": "openai"}
TOOL: Final[dict[str, Any]] = {
    "tool_call_id": "c1",
    "tool_name": "weather",
    "tool_args": {"city": "a secret"},
}
TURN: Final = (
    event(1, "RunStarted", **AGENT, **MODEL),
    event(2, "ModelRequestStarted", **AGENT, **MODEL),
    event(3, "ModelRequestCompleted", input_tokens=7, output_tokens=2, **AGENT, **MODEL),
    event(4, "ToolCallStarted", tool=TOOL, **AGENT),
    event(5, "ToolCallCompleted", content="a secret", tool=TOOL, **AGENT),
    event(6, "RunContent", content="a secret", **AGENT),
    event(
        7,
        "RunCompleted",
        final=True,
        content="a secret",
        metrics={"input_tokens": 9, "output_tokens": 4},
        **AGENT,
    ),
)


def folded(events: Iterable[RunEvent], parent: Trace | None = TRACE) -> tuple[Span, ...]:
    """Publish each event by itself."""
    recorder = Recorder()
    for one in events:
        recorder.heard("r1", (one,), parent)
    return recorder.take(0)


# --- The events of a run ------------------------------------------------------------------------


def test_a_turn_is_a_run_with_a_model_call_and_a_tool_call() -> None:
    chat, tool, run = folded(TURN)

    names = ["chat gpt-5", "execute_tool weather", "invoke_agent Alpha"]
    assert [s.name for s in (chat, tool, run)] == names
    assert [s.kind for s in (chat, tool, run)] == [Kind.CLIENT, Kind.INTERNAL, Kind.INTERNAL]
    assert {s.trace_id for s in (chat, tool, run)} == {TRACE.trace_id}
    assert run.parent_id == TRACE.span_id
    assert chat.parent_id == tool.parent_id == run.span_id
    assert len({s.span_id for s in (chat, tool, run)}) == 3
    assert [(s.start_us, s.end_us) for s in (chat, tool, run)] == [
        (2_000_000, 3_000_000),
        (4_000_000, 5_000_000),
        (1_000_000, 7_000_000),
    ]
    assert not any(s.error for s in (chat, tool, run))


def test_attributes_have_the_names_of_the_conventions() -> None:
    chat, tool, run = folded(TURN)

    assert chat.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "gpt-5",
        "gen_ai.provider.name": "openai",
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 2,
    }
    assert tool.attributes == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "weather",
        "gen_ai.tool.call.id": "c1",
    }
    assert run.attributes == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.id": "alpha",
        "gen_ai.agent.name": "Alpha",
        "gen_ai.conversation.id": "s1",
        "gen_ai.request.model": "gpt-5",
        "gen_ai.provider.name": "openai",
        "gen_ai.usage.input_tokens": 9,
        "gen_ai.usage.output_tokens": 4,
        "legation.run.id": "r1",
    }


def test_nothing_that_was_said_is_in_a_span() -> None:
    assert "secret" not in str(folded(TURN))


def test_the_names_are_those_of_opentelemetry() -> None:
    semconv: Any = import_module("opentelemetry.semconv._incubating.attributes.gen_ai_attributes")
    names = cast("dict[str, Any]", vars(semconv))
    known = {value for name, value in names.items() if name.startswith("GEN_AI_")}
    ours = {value for value in vars(genai).values() if str(value).startswith("gen_ai.")}

    assert ours <= known
    assert len(ours) == 10
    operations = {one.value for one in semconv.GenAiOperationNameValues}
    assert {genai.CHAT, genai.INVOKE_AGENT, genai.EXECUTE_TOOL} <= operations
    assert genai.SCHEMA_URL in {schema.value for schema in Schemas}


@pytest.mark.parametrize(
    ("last", "fields", "error"),
    [
        ("RunError", {"error_type": "timeout"}, "timeout"),
        ("RunError", {}, "cancelled"),
        ("RunCancelled", {"reason": "a secret"}, "cancelled"),
    ],
)
def test_what_is_open_ends_with_a_run_that_fails(last: str, fields: Any, error: str) -> None:
    chat, run = folded((*TURN[:2], event(3, last, final=True, **fields)))

    assert (chat.name, chat.error, chat.end_us) == ("chat gpt-5", error, 3_000_000)
    assert (run.name, run.error) == ("invoke_agent Alpha", error)


@pytest.mark.parametrize(
    ("name", "tool", "error"),
    [
        ("ToolCallCompleted", TOOL, None),
        ("ToolCallCompleted", {**TOOL, "tool_call_error": True}, "tool_error"),
        ("ToolCallError", TOOL, "tool_error"),
    ],
)
def test_a_tool_that_failed_is_told(name: str, tool: Any, error: str | None) -> None:
    events = (TURN[0], TURN[3], event(5, name, tool=tool), TURN[6])

    assert folded(events)[0].error == error


def test_a_pause_ends_a_span_and_going_on_begins_one() -> None:
    paused = event(3, "RunPaused", final=True)
    again = event(4, "RunContinued", **AGENT)
    first, second = folded((TURN[0], paused, again, TURN[6]))

    assert first.span_id != second.span_id
    assert (first.error, second.error) == (None, None)
    assert first.attributes["legation.run.id"] == second.attributes["legation.run.id"]


def test_a_run_of_nobody_begins_a_trace_of_its_own() -> None:
    spans = folded(TURN, None)

    assert spans[2].parent_id is None
    assert {s.trace_id for s in spans} == {spans[2].trace_id}
    assert len(spans[2].trace_id) == 32


def test_the_events_of_a_team_are_read_alike_and_members_are_within_it() -> None:
    member: dict[str, Any] = {**AGENT, "run_id": "r2", "parent_run_id": "r1"}
    inner, outer = folded(
        (
            event(1, "TeamRunStarted", team_id="crew", team_name="Crew"),
            event(2, "RunStarted", **member),
            event(3, "RunCompleted", **member),
            event(4, "TeamRunCompleted", final=True),
        )
    )

    assert (inner.name, outer.name) == ("invoke_agent Alpha", "invoke_agent Crew")
    assert inner.parent_id == outer.span_id
    assert inner.trace_id == outer.trace_id
    assert outer.attributes["gen_ai.agent.id"] == "crew"


def test_ends_without_a_beginning_are_nobodys() -> None:
    assert folded(TURN[1:]) == ()
    assert folded((TURN[0], TURN[2], TURN[4], TURN[6]))[0].name == "invoke_agent Alpha"


def test_odd_data_is_left_out() -> None:
    events = (
        event(1, "RunStarted", agent_id=["x"], metrics=[1], tool="x"),
        event(2, "ToolCallStarted", tool={"tool_name": 1}),
        event(3, "RunCompleted", final=True),
    )
    tool, run = folded(events)

    assert (tool.name, run.name) == ("execute_tool ", "invoke_agent ")


def test_what_nobody_takes_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("legation.spans._KEPT", 2)
    monkeypatch.setattr("legation.spans._RUNS", 2)
    recorder, origins = Recorder(), Origins()
    for number in range(4):
        origins.note(f"r{number}", TRACE)
        run: dict[str, Any] = {**AGENT, "run_id": f"r{number}"}
        recorder.heard("r", (event(1, "RunStarted", **run),), None)
    for number in range(4):
        run = {**AGENT, "run_id": f"r{number}"}
        recorder.heard("r", (event(2, "RunCompleted", **run),), None)
    recorder.answered(requested(), TRACE, 200, 5)

    assert [origins.take(f"r{number}") for number in range(4)] == [None, None, TRACE, TRACE]
    assert [s.attributes.get("legation.run.id") for s in recorder.take(0)] == ["r3", None]
    assert recorder.dropped == 1


# --- Requests -----------------------------------------------------------------------------------


def requested() -> Arrival:
    request = Request("GET", "/agents?secret=1")
    return Arrival(request, 1, "id-1", "/agents", "get_agents", TRACE, "c" * 16, recorded=True)


@pytest.mark.parametrize(
    ("status", "end_us", "end", "error"),
    [
        (200, 5, 5, None),
        (404, 5, 5, None),
        (503, 5, 5, "503"),
        (200, None, 9, "cut"),
        (None, None, 9, "cut"),
    ],
)
def test_a_request_is_a_span(
    status: int | None, end_us: int | None, end: int, error: str | None
) -> None:
    recorder = Recorder()
    recorder.answered(requested(), TRACE, status, end_us)
    (span,) = recorder.take(9)

    assert (span.name, span.kind, span.error) == ("GET /agents", Kind.SERVER, error)
    assert (span.trace_id, span.span_id, span.parent_id) == ("a" * 32, "b" * 16, "c" * 16)
    assert (span.start_us, span.end_us) == (1, end)
    assert span.attributes.get("http.response.status_code") == status
    assert span.attributes["legation.request.id"] == "id-1"
    assert "secret" not in str(span)
    assert recorder.take(9) == ()


# --- Within a trace -----------------------------------------------------------------------------


class Nothing(Job):
    """A job that does nothing."""

    def program(self) -> Program[None]:
        yield from Fetch("GET", "http://x")


NOTHING: Final = Nothing()


def errand() -> Program[Any]:
    yield from Fetch("GET", "http://x", (("a", "b"),))
    yield from OpenStream("POST", "http://x")
    yield from Spawn(NOTHING)
    yield from Sleep(1)
    try:
        yield from Transact("main", FetchSession("s", None))
    except Busy:
        return "busy"


def test_what_is_sent_bears_the_trace() -> None:
    origins = Origins()
    way = Way(TRACE, origins)
    script = [
        (Fetch("GET", "http://x", (("a", "b"), *SENT)), None),
        (OpenStream("POST", "http://x", SENT), None),
        (Spawn(Carried(NOTHING, way)), None),
        (Sleep(1), None),
        (Transact, Busy()),
    ]

    assert play(carried(errand(), Way(TRACE, origins)), script) == "busy"
    assert close_at_every_effect(lambda: carried(errand(), Way(TRACE, origins)), script) == 5
    job = Carried(NOTHING, way)
    play(job.program(), [(Fetch("GET", "http://x", SENT), None)])
    play(carried(NOTHING.program(), Way(None, origins)), [(Fetch("GET", "http://x"), None)])


def test_programs_within_a_program_are_on_the_same_way() -> None:
    def asking() -> Program[None]:
        yield from Interruptible(NOTHING.program(), "topic", 1)
        yield from Concurrently((NOTHING.program(), NOTHING.program()))

    program = carried(asking(), Way(TRACE, Origins()))
    interruptible = program.send(None)
    assert isinstance(interruptible, Interruptible)
    play(interruptible.program, [(Fetch("GET", "http://x", SENT), None)])
    concurrently = program.send(None)
    assert isinstance(concurrently, Concurrently)
    for inner in concurrently.programs:
        play(inner, [(Fetch("GET", "http://x", SENT), None)])
    program.close()


def test_published_events_are_folded() -> None:
    def run() -> Program[None]:
        yield from Publish("r1", TURN[:2])
        yield from Publish("r1", TURN[2:])

    recorder = Recorder()
    way = Way(None, Origins(), recorder, parent=TRACE)
    play(carried(run(), way), [(Publish, None), (Publish, None)])
    *_, span = recorder.take(0)

    assert span.parent_id == TRACE.span_id


def claimed(run_id: str = "r1", events: int = 0) -> ExecuteRun:
    run = ClaimedRun("o", "s", run_id, "agent", "alpha", "{}", 0, 1, 1, events)
    return ExecuteRun(demo(None).workshop, "main", run)


def test_a_run_is_within_what_asked_for_it_and_hands_its_own_span_on() -> None:
    way = Way(TRACE, Origins(), Recorder()).onward(claimed()).way
    run = folded(TURN)[2]

    assert way.parent == TRACE
    assert way.trace == Trace(TRACE.trace_id, run.span_id, state="vendor=1")
    again = Way(TRACE, Origins(), Recorder()).onward(claimed(events=7)).way
    assert again.trace is not None
    assert again.trace.span_id != run.span_id


def test_a_run_that_is_not_recorded_hands_its_callers_span_on() -> None:
    unsampled = Trace("a" * 32, "b" * 16, sampled=False)
    for trace, recorder in ((TRACE, None), (unsampled, Recorder())):
        way = Way(trace, Origins(), recorder).onward(claimed()).way
        assert (way.trace, way.recorder) == (trace, None)


def test_the_next_run_of_a_session_is_in_the_trace_it_was_asked_for_in() -> None:
    origins, other = Origins(), Trace("c" * 32, "d" * 16)
    origins.note("r2", other)
    way = Way(TRACE, origins, Recorder(), in_run=True, parent=TRACE)

    assert way.onward(claimed("r2")).way.parent == other
    assert way.onward(claimed("r3")).way.parent is None
    trace = way.onward(claimed("r1")).way.trace
    assert trace is not None
    assert folded(TURN, None)[2].trace_id == trace.trace_id


def test_each_run_of_a_session_is_in_the_trace_of_its_own_request() -> None:
    platform = demo(None)
    recorder = platform.record_spans()
    with Client(platform, fetch=nothing_listens) as client:
        form = {"message": "hi", "session_id": "s1", "background": "true", "stream": "false"}
        for number in range(3):
            trace = f"00-{number + 1:032x}-{'b' * 16}-01"
            path = "/agents/alpha/runs"
            assert client.post(path, form=form, headers={"traceparent": trace}).status < 300
        client.settle()
        client.advance(5)
    runs = [s for s in recorder.take(0) if s.name.startswith("invoke_agent")]

    assert sorted(int(s.trace_id, 16) for s in runs) == [1, 2, 3]


# --- Runs as they are ---------------------------------------------------------------------------


def weather(city: str) -> str:
    """Return the weather in a city."""
    return f"A secret of {city}"


def told(platform: Platform, path: str, **options: Any) -> dict[str, Span]:
    """Run once; return the spans by their names."""
    recorder = platform.record_spans()
    with Client(platform, **options) as client:
        form = {"message": "a secret", "stream": "false"}
        client.post(path, form=form).expect_success()
    spans = recorder.take(0)
    assert "secret" not in str(spans)
    return {span.name: span for span in spans}


def test_an_agent_that_calls_a_tool_is_told_in_four_kinds_of_spans() -> None:
    model = ScriptedModel([call("weather", city="Paris"), "a secret"])
    agent = Agent(id="alpha", name="Alpha", model=model, tools=[weather])
    spans = told(Platform(agents=[agent]), "/agents/alpha/runs")
    request = spans["POST /agents/{agent_id}/runs"]
    run, tool = spans["invoke_agent Alpha"], spans["execute_tool weather"]
    [chat] = (span for name, span in spans.items() if name.startswith("chat "))

    assert run.parent_id == request.span_id
    assert tool.parent_id == chat.parent_id == run.span_id
    assert tool.attributes["gen_ai.tool.name"] == "weather"
    assert chat.attributes["gen_ai.usage.output_tokens"]
    assert run.attributes["gen_ai.usage.output_tokens"]


def test_what_a_model_is_sent_is_within_the_span_of_its_run() -> None:
    model = Model("m", "openai", "gpt", base_url="http://127.0.0.1:9/v1", api_key_env="K")
    platform = Platform(agents=[Agent(id="a", model="m")], models=[model], environ={"K": "k"})
    recorder = platform.record_spans()
    with Client(platform) as client:
        client.post("/agents/a/runs", form={"message": "hi", "stream": "false"})
        sent = [p.effect for p in client.effects if isinstance(p.effect, OpenStream | Fetch)]
    [run] = (span for span in recorder.take(0) if span.name.startswith("invoke_agent"))

    assert sent
    assert {dict(one.headers)["traceparent"] for one in sent} == {
        f"00-{run.trace_id}-{run.span_id}-01"
    }
    assert run.error is not None
