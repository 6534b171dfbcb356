from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any, Final, cast

import pytest
from attrs import evolve
from opentelemetry.semconv.schemas import Schemas

from legation import Agent, Model, Platform
from legation.effects import (
    Concurrently,
    Fetch,
    Interruptible,
    Job,
    Now,
    OpenStream,
    Program,
    Publish,
    Sleep,
    Spawn,
    Transact,
)
from legation.http.messages import Request
from legation.messaging.answers import AnswerMessage
from legation.messaging.leases import WorkerLeases
from legation.observability import genai
from legation.observability.request_log import Arrival
from legation.observability.spans import Kind, Recorder, Span, Work
from legation.observability.trace_context import TraceContext, TracedJob, with_trace
from legation.observability.tracing import Trace, read_note, with_note
from legation.runs.events import (
    Event,
    EventOrigin,
    ModelRequestCompleted,
    ModelRequestStarted,
    RunCancelled,
    RunCompleted,
    RunContent,
    RunContinued,
    RunError,
    RunPaused,
    RunStarted,
    ToolCallCompleted,
    ToolCallError,
    ToolCallStarted,
)
from legation.runs.executor import ExecuteRun
from legation.store.audit import Audited, AuditEntry
from legation.store.failures import Busy
from legation.store.inbox import INBOX, ClaimedMessage, CompleteMessage, FailMessage
from legation.store.leased_queue import ItemKey, Lease
from legation.store.outbox import NewReply
from legation.store.run_keeping import FindNeglected, Neglected
from legation.store.run_rows import ClaimedRun, RunRow, StoredEvent
from legation.store.run_steering import ContinueRun
from legation.store.sessions import FetchSession
from legation_testing import Client, ScriptedModel, call, close_at_every_effect, play
from legation_testing.performing import refuse_connections

from ...callers import demo
from ...providers.deliveries import platform as with_channels
from ...providers.deliveries import whatsapp
from ...providers.strict import WhatsAppApi

TRACE: Final = Trace("a" * 32, "b" * 16, state="vendor=1")
SENT: Final = TRACE.headers()


def event(seq: int, noted: Event, origin: EventOrigin | None = None) -> StoredEvent:
    """Return an event of a run, a second after the one before."""
    return (origin or ALPHA).encode(noted, seq, seq * 1_000_000)


def origin(run_id: str = "r1", kind: str = "agent", of: str = "alpha", **more: Any) -> EventOrigin:
    """Return where the events of a run come from."""
    run = ClaimedRun("o", "s1", run_id, kind, of, "{}", 0, 1)
    return EventOrigin(run, of.title(), **more)


ALPHA: Final = origin()
MODEL: Final = ("gpt-5", "openai")
TOOL: Final[dict[str, Any]] = {
    "tool_call_id": "c1",
    "tool_name": "weather",
    "tool_args": {"city": "a secret"},
    "tool_call_error": False,
    "metrics": None,
    "requires_confirmation": None,
    "confirmed": None,
    "external_execution_required": None,
}
ANSWERED: Final = ModelRequestCompleted(
    model="gpt-5",
    model_provider="openai",
    input_tokens=7,
    output_tokens=2,
    total_tokens=9,
    reasoning_tokens=0,
    cache_read_tokens=0,
    cache_write_tokens=0,
)
COMPLETED: Final = RunCompleted(
    "a secret", "str", metrics={"input_tokens": 9, "output_tokens": 4, "duration": 1.5}
)
PAUSED: Final = RunPaused("a secret", [TOOL], [])
TURN: Final = (
    event(1, RunStarted(*MODEL)),
    event(2, ModelRequestStarted(*MODEL, "r1.2")),
    event(3, ANSWERED),
    event(4, ToolCallStarted(TOOL)),
    event(5, ToolCallCompleted("a secret", TOOL)),
    event(6, RunContent("a secret")),
    event(7, COMPLETED),
)


def folded(events: Iterable[StoredEvent], parent: Trace | None = TRACE) -> tuple[Span, ...]:
    """Publish each event by itself."""
    recorder = Recorder()
    for one in events:
        recorder.record_events((one,), parent)
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
    metrics: Any = import_module("opentelemetry.semconv._incubating.metrics.gen_ai_metrics")
    names = cast("dict[str, Any]", {**vars(semconv), **vars(metrics)})
    known = {value for name, value in names.items() if name.startswith("GEN_AI_")}
    known.add("gen_ai.execute_tool.duration")  # the package has the metrics of models alone
    ours = {value for value in vars(genai).values() if str(value).startswith("gen_ai.")}

    assert ours <= known
    assert len(ours) == 15
    operations = {one.value for one in semconv.GenAiOperationNameValues}
    assert {genai.CHAT, genai.INVOKE_AGENT, genai.EXECUTE_TOOL} <= operations
    assert genai.SCHEMA_URL in {schema.value for schema in Schemas}


def test_the_names_for_messages_are_those_of_opentelemetry() -> None:
    semconv: Any = import_module(
        "opentelemetry.semconv._incubating.attributes.messaging_attributes"
    )
    names = cast("dict[str, Any]", vars(semconv))
    known = {value for name, value in names.items() if name.startswith("MESSAGING_")}
    ours = {value for value in vars(genai).values() if str(value).startswith("messaging.")}

    assert ours <= known
    assert len(ours) == 4
    assert {genai.PROCESS, genai.SEND} <= {o.value for o in semconv.MessagingOperationTypeValues}


@pytest.mark.parametrize(
    ("last", "error"),
    [
        (RunError("a secret", "timeout"), "timeout"),
        (RunCancelled("a secret", "a secret"), "cancelled"),
    ],
)
def test_what_is_open_ends_with_a_run_that_fails(last: Event, error: str) -> None:
    chat, run = folded((*TURN[:2], event(3, last)))

    assert (chat.name, chat.error, chat.end_us) == ("chat gpt-5", error, 3_000_000)
    assert (run.name, run.error) == ("invoke_agent Alpha", error)


@pytest.mark.parametrize(
    ("noted", "error"),
    [
        (ToolCallCompleted("", TOOL), None),
        (ToolCallCompleted("", {**TOOL, "tool_call_error": True}), "tool_error"),
        (ToolCallError(TOOL, "a secret"), "tool_error"),
    ],
)
def test_a_tool_that_failed_is_told(noted: Event, error: str | None) -> None:
    events = (TURN[0], TURN[3], event(5, noted), TURN[6])

    assert folded(events)[0].error == error


def test_call_that_waited_has_its_span_when_it_is_made() -> None:
    waits = {**TOOL, "requires_confirmation": True}
    made = {
        **TOOL,
        "requires_confirmation": False,
        "confirmed": True,
        "metrics": {"start_time": 4.5, "end_time": 5.0, "duration": 0.5},
    }
    outside = {**TOOL, "tool_call_id": "c2", "external_execution_required": True}
    announced = (event(2, ToolCallStarted(waits)), event(3, ToolCallStarted(outside)))
    on = (event(5, RunContinued([made])), event(6, ToolCallCompleted("", made)), TURN[6])
    first, tool, second = folded((TURN[0], *announced, event(4, PAUSED), *on))

    assert (first.name, second.name) == ("invoke_agent Alpha", "invoke_agent Alpha")
    assert (tool.name, tool.parent_id) == ("execute_tool weather", second.span_id)
    assert (tool.start_us, tool.end_us, tool.error) == (4_500_000, 6_000_000, None)


def test_answer_that_began_anew_is_one_call_to_the_model() -> None:
    again = event(3, ModelRequestStarted(*MODEL, "r1.2", again=True))
    chat, _ = folded((TURN[0], TURN[1], again, event(4, ANSWERED), TURN[6]))
    resumed, _ = folded((TURN[0], again, event(4, ANSWERED), TURN[6]))

    assert (chat.name, chat.start_us, chat.end_us) == ("chat gpt-5", 2_000_000, 4_000_000)
    assert (resumed.name, resumed.start_us) == ("chat gpt-5", 3_000_000)


def test_each_model_that_is_asked_has_a_span() -> None:
    other = event(3, ModelRequestStarted("gpt-6", "Other", "r1.2", again=True))
    failed, chat, _ = folded((TURN[0], TURN[1], other, event(4, ANSWERED), TURN[6]))

    assert (failed.name, failed.end_us, failed.error) == ("chat gpt-5", 3_000_000, "model_replaced")
    assert (chat.name, chat.start_us, chat.end_us) == ("chat gpt-6", 3_000_000, 4_000_000)


def test_a_pause_ends_a_span_and_going_on_begins_one() -> None:
    paused, again = event(3, PAUSED), event(4, RunContinued())
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
    member, crew = origin("r2", parent_run_id="r1"), origin(kind="team", of="crew")
    inner, outer = folded(
        (
            event(1, RunStarted(*MODEL), crew),
            event(2, RunStarted(*MODEL), member),
            event(3, COMPLETED, member),
            event(4, COMPLETED, crew),
        )
    )

    assert (inner.name, outer.name) == ("invoke_agent Alpha", "invoke_agent Crew")
    assert inner.parent_id == outer.span_id
    assert inner.trace_id == outer.trace_id
    assert outer.attributes["gen_ai.agent.id"] == "crew"


def test_ends_without_a_beginning_are_nobodys() -> None:
    assert folded(TURN[1:]) == ()
    assert folded((TURN[0], TURN[2], TURN[4], TURN[6]))[0].name == "invoke_agent Alpha"


def test_run_of_a_function_has_no_model_and_one_that_failed_early_no_tokens() -> None:
    (run,) = folded((event(1, RunStarted()), event(2, RunCompleted("", "str", metrics={}))))

    assert run.attributes.keys() == {
        "gen_ai.operation.name",
        "gen_ai.agent.id",
        "gen_ai.agent.name",
        "gen_ai.conversation.id",
        "legation.run.id",
    }


def test_events_that_this_process_did_not_note_have_no_spans() -> None:
    assert folded([StoredEvent(e.seq, e.name, e.data, at_us=e.at_us) for e in TURN]) == ()


def test_what_nobody_takes_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("legation.observability.spans._KEPT", 2)
    monkeypatch.setattr("legation.observability.spans._RUNS", 2)
    recorder = Recorder()
    for number in range(4):
        started = event(1, RunStarted(*MODEL), origin(f"r{number}"))
        recorder.record_events((started,), None)
    for number in range(4):
        recorder.record_events((event(2, COMPLETED, origin(f"r{number}")),), None)
    recorder.record_request(requested(), TRACE, 200, 5)

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
    recorder.record_request(requested(), TRACE, status, end_us)
    (span,) = recorder.take(9)

    assert (span.name, span.kind, span.error) == ("GET /agents", Kind.SERVER, error)
    assert (span.trace_id, span.span_id, span.parent_id) == ("a" * 32, "b" * 16, "c" * 16)
    assert (span.start_us, span.end_us) == (1, end)
    assert span.attributes.get("http.response.status_code") == status
    assert span.attributes["legation.request.id"] == "id-1"
    assert "secret" not in str(span)
    assert recorder.take(9) == ()


def test_a_request_that_was_given_up_and_then_answered_is_one_span() -> None:
    recorder = Recorder()
    recorder.record_request(requested(), evolve(TRACE, span_id="d" * 16), None, None)
    recorder.record_request(requested(), TRACE, None, None)
    recorder.record_late_answer(requested(), 503, 5)
    answered, cut = recorder.take(9)

    assert (answered.span_id, answered.error, answered.end_us) == ("b" * 16, "503", 5)
    assert answered.attributes["http.response.status_code"] == 503
    assert (cut.span_id, cut.error) == ("d" * 16, "cut")


@pytest.mark.parametrize("trace", [None, evolve(TRACE, span_id="d" * 16)])
def test_a_request_without_a_span_gets_none_after_all(trace: Trace | None) -> None:
    recorder = Recorder()
    recorder.record_request(requested(), TRACE, None, None)
    recorder.record_late_answer(evolve(requested(), trace=trace), 503, 5)

    assert [span.error for span in recorder.take(9)] == ["cut"]


def test_a_span_that_was_taken_already_stays_what_it_was() -> None:
    recorder = Recorder()
    recorder.record_request(requested(), TRACE, None, None)
    recorder.take(9)
    recorder.record_late_answer(requested(), 503, 5)

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
        yield from Transact("main", FetchSession("s", ("ada",)))
    except Busy:
        return "busy"


def test_what_is_sent_bears_the_trace() -> None:
    way = TraceContext(TRACE)
    script = [
        (Fetch("GET", "http://x", (("a", "b"), *SENT)), None),
        (OpenStream("POST", "http://x", SENT), None),
        (Spawn(TracedJob(NOTHING, way)), None),
        (Sleep(1), None),
        (Transact, Busy()),
    ]

    assert play(with_trace(errand(), TraceContext(TRACE)), script) == "busy"
    assert close_at_every_effect(lambda: with_trace(errand(), TraceContext(TRACE)), script) == 5
    job = TracedJob(NOTHING, way)
    play(job.program(), [(Fetch("GET", "http://x", SENT), None)])
    play(with_trace(NOTHING.program(), TraceContext(None)), [(Fetch("GET", "http://x"), None)])


def test_programs_within_a_program_are_on_the_same_way() -> None:
    def asking() -> Program[None]:
        yield from Interruptible(NOTHING.program(), "topic", 1)
        yield from Concurrently((NOTHING.program(), NOTHING.program()))

    program = with_trace(asking(), TraceContext(TRACE))
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
    way = TraceContext(None, recorder, parent=TRACE)
    play(with_trace(run(), way), [(Publish, None), (Publish, None)])
    *_, span = recorder.take(0)

    assert span.parent_id == TRACE.span_id


def claimed(trace: Trace | None = TRACE, run_id: str = "r1", events: int = 0) -> ExecuteRun:
    asked = '{"message":"hi"}' if trace is None else with_note('{"message":"hi"}', trace)
    run = ClaimedRun("o", "s", run_id, "agent", "alpha", asked, 0, 1, 1, events)
    return ExecuteRun(demo(None).context, "main", "n", run)


def onward(way: TraceContext, job: Job) -> TraceContext:
    """Return the way that `job` is sent on."""
    carried = way.wrap_job(job)
    assert isinstance(carried, TracedJob)
    return carried.context


def test_a_run_is_within_what_asked_for_it_and_hands_its_own_span_on() -> None:
    way = onward(TraceContext(None, Recorder()), claimed())
    run = folded(TURN)[2]

    assert way.parent == TRACE
    assert way.trace == Trace(TRACE.trace_id, run.span_id, state="vendor=1")
    again = onward(TraceContext(None, Recorder()), claimed(events=7))
    assert again.trace is not None
    assert again.trace.span_id != run.span_id


def test_a_run_that_is_not_recorded_hands_its_callers_span_on() -> None:
    unsampled = Trace("a" * 32, "b" * 16, sampled=False)
    for trace, recorder in ((TRACE, None), (unsampled, Recorder())):
        way = onward(TraceContext(None, recorder), claimed(trace))
        assert (way.trace, way.recorder) == (trace, None)


def test_the_next_run_of_a_session_is_in_the_trace_it_was_asked_for_in() -> None:
    other = Trace("c" * 32, "d" * 16)
    way = TraceContext(TRACE, Recorder(), parent=TRACE)

    assert onward(way, claimed(other)).parent == other
    assert onward(way, claimed(None)).parent is None
    trace = onward(way, claimed(None)).trace
    assert trace is not None
    assert folded(TURN, None)[2].trace_id == trace.trace_id


def test_a_run_that_is_recorded_may_follow_one_that_is_not() -> None:
    unsampled = evolve(TRACE, sampled=False)
    recorder = Recorder()
    first = onward(TraceContext(unsampled, beyond=recorder), claimed(unsampled))
    second = onward(first, claimed())

    assert (first.trace, first.recorder) == (unsampled, None)
    assert (second.parent, second.recorder) == (TRACE, recorder)
    assert onward(TraceContext(TRACE), claimed(None)) == TraceContext(None)


def test_a_message_of_which_nobody_is_told_goes_its_own_way() -> None:
    message = ClaimedMessage(LEASE, "4911", '{"message_id":"m"}', 1, 1, None)
    job = AnswerMessage(WorkerLeases(demo(None).context, "main"), message)

    assert TraceContext(TRACE).wrap_job(job) is job


def test_each_run_of_a_session_is_in_the_trace_of_its_own_request() -> None:
    platform = demo(None)
    recorder = platform.record_spans()
    with Client(platform, fetch=refuse_connections) as client:
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


# --- What others take up ------------------------------------------------------------------------

PARENT: Final = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}
RUNS: Final = "/agents/concierge/runs"


def node(delay: float, spans: list[Recorder]) -> Platform:
    """Return a platform whose agent takes `delay` seconds for an answer."""
    made = with_channels(
        models=[Model("slow", "echo", delay_seconds=delay)],
        agents=[Agent(id="concierge", model="slow")],
        lease_seconds=6.0,
    )
    spans.append(made.record_spans())
    return made


def begun(client: Client, message: str, **headers: str) -> str:
    form = {"message": message, "session_id": "s", "background": True}
    answer = client.post(RUNS, form=form, headers={**PARENT, **headers})
    return str(answer.json()["run_id"])


def test_a_run_that_another_node_takes_over_is_in_the_trace_it_was_asked_for_in() -> None:
    recorders: list[Recorder] = []
    with Client(node(60.0, recorders)) as one, one.peer(node(0.0, recorders)) as other:
        one.simulation.nodes[0].place = ""  # nobody sees it die
        begun(one, "first")
        begun(one, "second", traceparent=f"00-{'c' * 32}-{'d' * 16}-01")
        one.advance(1.0)
        asked = {span.trace_id: span for span in recorders[0].take(0)}
        one.crash()
        other.advance(9.0)
    resumed, second = (s for s in recorders[1].take(0) if s.name.startswith("invoke_agent"))

    assert set(asked) == {"a" * 32, "c" * 32}
    for run in (resumed, second):
        assert run.parent_id == asked[run.trace_id].span_id
    assert (resumed.trace_id, resumed.error) == ("a" * 32, None)
    assert (second.trace_id, second.error) == ("c" * 32, None)


def test_a_run_that_goes_on_is_within_the_request_that_answered_it() -> None:
    row = '{"trace":{"traceparent":"x"},"message":"hi","turn":{}}'
    unit = ContinueRun("o", "s", "r", 1, row, "t", "n", 1, ())
    script = [(Transact("main", evolve(unit, input=with_note(row, TRACE))), None)]

    play(with_trace(iter(Transact("main", unit)), TraceContext(TRACE)), script)


def neglected(events: int = 3, trace: Trace | None = TRACE, more: str = "", **of: Any) -> Neglected:
    asked = f'{{"message":"hi"{more}}}'
    row = RunRow(
        owner="o",
        session_id="s",
        run_no=1,
        run_id="r1",
        parent_run_id=None,
        kind="agent",
        component_id="alpha",
        status="RUNNING",
        input=asked if trace is None else with_note(asked, trace),
        output=None,
        reason=None,
        created_us=500_000,
        started_us=of.get("started_us", 1_000_000),
        ended_us=None,
        events=events,
        lease_by="n1",
        lease_us=5,
        attempt=1,
    )
    return Neglected((row,), waiting=False)


ENDED: Final = event(9, RunError("", "interrupted"))


def taken_over(found: Neglected, *events: StoredEvent) -> tuple[Span, ...]:
    recorder = Recorder()

    def keeping() -> Program[None]:
        yield from Transact("main", FindNeglected(()))
        yield from Publish("r1", events)

    script = [(Transact("main", FindNeglected(())), found), (Publish, None)]
    play(with_trace(keeping(), TraceContext(None, recorder)), script)
    return recorder.take(0)


def test_the_span_of_a_lost_run_is_the_one_that_its_parts_are_within() -> None:
    (span,) = taken_over(neglected(), ENDED)
    run = folded(TURN)[2]

    assert (span.span_id, span.trace_id, span.parent_id) == (
        *(run.span_id, run.trace_id, run.parent_id),
    )
    assert (span.start_us, span.end_us, span.error) == (1_000_000, 9_000_000, "interrupted")
    assert span.name == "invoke_agent Alpha"


def test_a_lost_run_of_nobody_and_one_that_had_not_started_have_spans_too() -> None:
    (alone,) = taken_over(neglected(trace=None), ENDED)
    (waiting,) = taken_over(neglected(started_us=None), ENDED)
    (continued,) = taken_over(neglected(more=',"turn":{}'), ENDED)

    assert (alone.trace_id, alone.parent_id) == (folded(TURN, None)[2].trace_id, None)
    assert waiting.start_us == 500_000
    assert continued.span_id == folded([event(4, RunContinued()), ENDED])[0].span_id


def test_a_lost_run_is_told_once_and_only_where_its_caller_records() -> None:
    unsampled = Trace("a" * 32, "b" * 16, sampled=False)

    assert taken_over(neglected(trace=unsampled), ENDED) == ()
    assert len(taken_over(neglected(), ENDED, ENDED)) == 1
    *_, run = taken_over(neglected(), *TURN, ENDED)
    assert run.error is None


def test_nobody_remembers_lost_runs_where_no_spans_are_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("legation.observability.spans._RUNS", 1)
    script = [(Transact("main", FindNeglected(())), neglected())]
    play(with_trace(iter(Transact("main", FindNeglected(()))), TraceContext(None)), script)
    recorder, (row,) = Recorder(), neglected().expired
    recorder.remember_neglected(Neglected((row, evolve(row, run_id="r2")), waiting=False))
    recorder.record_events((ENDED,), None)

    assert recorder.take(0) == ()


# --- Channels -----------------------------------------------------------------------------------


def requests(client: Client, end: str) -> list[Fetch]:
    """Return what was sent to addresses with this end."""
    fetched = (p.effect for p in client.effects if isinstance(p.effect, Fetch))
    return [fetch for fetch in fetched if fetch.url.endswith(end)]


def delivered(client: Client) -> None:
    sent = whatsapp(("4911", "a", "a secret"))
    headers = (*sent.headers, *PARENT.items())
    client.post(sent.target, headers=headers, body=sent.body).expect_success()


def test_a_message_its_run_and_its_reply_are_one_trace_on_whatever_node() -> None:
    recorders: list[Recorder] = []
    provider = WhatsAppApi()
    first = Client(node(60.0, recorders), fetch=provider)
    with first as one, one.peer(node(0.0, recorders)) as other:
        delivered(one)
        one.crash()
        other.advance(20.0)
        sent = requests(one, "/messages")
    [request] = recorders[0].take(0)
    spans = {span.name: span for span in recorders[1].take(0)}
    process, run, send = (
        spans[name] for name in ("process whatsapp", "invoke_agent concierge", "send whatsapp")
    )

    assert [message.text for message in provider.seen] == ["a secret"]
    assert {span.trace_id for span in (request, *spans.values())} == {"a" * 32}
    assert process.parent_id == request.span_id
    assert run.parent_id == send.parent_id == process.span_id
    assert (process.kind, send.kind) == (Kind.CONSUMER, Kind.CLIENT)
    assert process.link == Trace(request.trace_id, request.span_id)
    assert send.link == Trace(process.trace_id, process.span_id)
    assert dict(sent[-1].headers)["traceparent"] == f"00-{'a' * 32}-{send.span_id}-01"
    assert send.attributes == {
        "messaging.system": "legation",
        "messaging.destination.name": "whatsapp",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
    }
    assert "secret" not in str((request, spans))


def test_without_spans_the_trace_of_a_delivery_is_handed_on_all_the_same() -> None:
    provider = WhatsAppApi()
    with Client(with_channels, fetch=provider) as client:
        delivered(client)
        client.settle()
        client.advance(2.0)
        sent = requests(client, "/messages")

    assert len(provider.seen) == 1
    assert {dict(fetch.headers)["traceparent"] for fetch in sent} == set(PARENT.values())


def test_a_delivery_of_no_trace_begins_one_where_spans_are_recorded() -> None:
    recorders: list[Recorder] = []
    with Client(node(0.0, recorders), fetch=WhatsAppApi()) as client:
        sent = whatsapp(("4911", "a", "hi"))
        client.post(sent.target, headers=sent.headers, body=sent.body).expect_success()
        client.settle()
        client.advance(2.0)
    spans = recorders[0].take(0)

    assert len({span.trace_id for span in spans}) == 1
    assert [s.name for s in spans if s.parent_id is None] == ["POST /{channel}/webhook"]


def work() -> Work:
    return Work("process", Kind.CONSUMER, "chat", TRACE, None)


LEASE: Final = Lease(INBOX, ItemKey("chat", "m"), "n", 1)


def test_work_that_fails_is_told_and_work_that_is_broken_off() -> None:
    class Failing(Job):
        def program(self) -> Program[None]:
            yield from Spawn(NOTHING)
            yield from Transact("main", FailMessage(LEASE, "why", 9, 5))

    recorder = Recorder()
    job = TracedJob(Failing(), TraceContext(TRACE, recorder, work=work()))
    spawned: list[Any] = []
    program = job.program()
    for answer in (None, 1, None):
        spawned.append(program.send(answer))
    play_rest = [program.send(None)]
    with pytest.raises(StopIteration):
        program.send(7)
    (span,) = recorder.take(0)

    assert play_rest == [Now()]
    assert (span.name, span.start_us, span.end_us, span.error) == ("process chat", 1, 7, "failed")
    assert (span.parent_id, span.link) == (None, None)
    assert spawned[1].job.context.work is None
    broken_off = TracedJob(Failing(), TraceContext(TRACE, recorder, work=work())).program()
    broken_off.send(None)
    broken_off.send(1)
    broken_off.close()
    assert [(s.error, s.end_us) for s in recorder.take(9)] == [("cut", 9)]


def test_replies_bear_the_trace_and_what_is_not_for_others_does_not() -> None:
    entry = AuditEntry(1, "r", "ada", "k", "get_agent", "a", "allow", "agents:read", 200, "")
    replies = (NewReply("k", "to", '{"text":"hi"}'),)
    told = (NewReply("k", "to", with_note('{"text":"hi"}', TRACE)),)

    def storing() -> Program[None]:
        yield from Transact("main", CompleteMessage(LEASE, 1, replies))
        yield from Transact("main", FailMessage(LEASE, "why", None, 1, replies))
        yield from Transact("main", Audited(FetchSession("s", ("ada",)), "n", entry, None))

    script = [
        (Transact("main", CompleteMessage(LEASE, 1, told)), True),
        (Transact("main", FailMessage(LEASE, "why", None, 1, told)), True),
        (Transact("main", Audited(FetchSession("s", ("ada",)), "n", entry, None)), None),
    ]
    play(with_trace(storing(), TraceContext(TRACE)), script)
    assert read_note(told[0].payload) == TRACE
