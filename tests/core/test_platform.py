from __future__ import annotations

import inspect
import json
from typing import Any, Final

import pytest
from attrs import fields

from legation import Agent, AuthorizationConfig, ConfigurationError, Database, Platform
from legation.config import Model, PlatformConfig
from legation.effects import Now, RandomBytes, Record, ThisNode, Transact
from legation.http.messages import Request, Response, Streamed
from legation.models.echo import Echo
from legation.observability.request_log import RequestLine
from legation.observability.spans import Recorder, Span
from legation.platform import with_environment
from legation.store.audit import AppendAudit, AuditEntry
from legation_testing import NEW_YEAR_2026, Client, Script, close_at_every_effect, play

from ..callers import Issuer, demo

ISSUER: Final = Issuer()
PLATFORM: Final = demo(None)


def answered(target: str, *headers: tuple[bytes, bytes], drawn: bool = False) -> Response:
    script: list[tuple[Any, Any]] = [(Now(), NEW_YEAR_2026)]
    script += [(RandomBytes(16), b"0123456789abcdef")] * drawn
    script += [(Now(), NEW_YEAR_2026)]
    request = Request("GET", target, headers)
    assert close_at_every_effect(lambda: PLATFORM.answer(request), script)
    answer = play(PLATFORM.answer(request), script)
    assert isinstance(answer, Response)
    return answer


@pytest.mark.parametrize("sent", [b"a", b"A-z_0.9~", b"x" * 64])
def test_a_sober_request_id_is_kept(sent: bytes) -> None:
    assert dict(answered("/", (b"x-request-id", sent)).headers)[b"x-request-id"] == sent


@pytest.mark.parametrize("sent", [b"", b"x" * 65, b"a b", b"a\nb", b"\xff", b"<a>", None])
def test_another_one_is_drawn(sent: bytes | None) -> None:
    headers = () if sent is None else ((b"x-request-id", sent),)
    answer = answered("/", *headers, drawn=True)

    assert dict(answer.headers)[b"x-request-id"] == b"0123456789abcdef".hex().encode()


def test_every_answer_has_an_id_and_what_a_browser_needs() -> None:
    origin = (b"origin", b"http://localhost:3000")
    for target in ("/", "/nowhere", "/health"):
        headers = dict(answered(target, origin, drawn=True).headers)
        assert headers[b"x-request-id"]
        assert headers[b"access-control-allow-origin"] == b"http://localhost:3000"


def test_representation_names_what_is_hosted() -> None:
    platform = Platform(id="shop", agents=[Agent("clerk"), Agent("cook")])

    assert repr(platform) == (
        "Platform(id='shop', agents=['clerk', 'cook'], teams=[], channels=[], databases=['main'])"
    )


def test_the_platform_says_who_it_is() -> None:
    told = json.loads(answered("/", drawn=True).body)

    assert (told["id"], told["name"]) == ("legation", "Legation")


def test_a_platform_is_made_of_options_or_of_a_whole_configuration() -> None:
    options: dict[str, Any] = {"id": "x", "databases": (Database("d", "sqlite://"),)}

    assert Platform(**options).config == Platform.from_config(PlatformConfig(**options)).config
    assert Platform(**options).databases == {"d": "sqlite://"}


def test_every_field_of_a_configuration_is_an_argument_with_the_same_default() -> None:
    own = {"environ", "secret_files", "jwks", "revocations", "routes", "channel_kinds", "catalogue"}
    arguments = inspect.signature(Platform).parameters
    whole = Platform().config

    assert arguments.keys() == {a.name for a in fields(PlatformConfig)} | own
    assert all(argument.kind is argument.KEYWORD_ONLY for argument in arguments.values())
    assert whole == PlatformConfig()


def test_type_checkers_know_every_option_and_refuse_all_others() -> None:
    # An ignored error that is none is one for mypy: these calls have to be refused.
    with pytest.raises(TypeError, match="agentz"):
        Platform(agentz=[])  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="authorisation"):
        Platform(authorisation=3)  # type: ignore[call-arg]
    with pytest.raises(ConfigurationError, match=r"^agents: expected a list, not int$"):
        Platform(agents=3)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"^platform\.run_timeout_seconds: expected a n"):
        Platform(run_timeout_seconds="long")  # type: ignore[arg-type]


def test_an_excluded_route_must_be_one() -> None:
    config = AuthorizationConfig(excluded_routes=["/health", "/helth", "/agents/alpha"])
    with pytest.raises(ConfigurationError) as caught:
        Platform(authorization_config=config)

    assert [fault.path for fault in caught.value.faults] == [
        "authorization_config.excluded_routes[1]",
        "authorization_config.excluded_routes[2]",
    ]


def test_the_start_is_noted_and_databases_are_brought_to_their_schema() -> None:
    databases = (
        Database("main", "sqlite://"),
        Database("later", "sqlite://", auto_migrate=False),
        Database("shared", "postgresql://nowhere"),
        Database("eager", "postgresql://elsewhere", auto_migrate=True),
    )
    with Client(demo(None, databases=databases)) as client:
        started = client.get("/health").json()["instantiated_at"]
        states = {item["id"]: item["state"] for item in client.get("/databases").json()}

    assert started == "2026-01-01T00:00:00Z"
    assert states == {"main": "current", "later": "empty", "shared": "empty", "eager": "current"}


def test_what_streams_is_dressed_as_well_and_head_ends_it() -> None:
    with Client(PLATFORM) as client:
        run_id = client.run("alpha", "hi")["run_id"]
        path = f"/agents/alpha/runs/{run_id}/events"
        streamed = client.get(path, headers={"x-request-id": "r"})
        head = client.request("HEAD", path)

    assert streamed.header("x-request-id") == "r"
    assert streamed.events()[-1].name == "RunCompleted"
    assert (head.status, head.body) == (200, b"")


def test_jobs_go_on_as_long_as_the_process_does() -> None:
    jobs = PLATFORM.jobs()

    assert len(jobs) >= 1 + len(PLATFORM.databases)
    for job in jobs:
        program = job.program()
        program.send(None)
        program.close()


ENTRY: Final = AuditEntry(1, "r", "ada", "k", "get_agent", "a", "allow", "agents:read", 200, "")


def test_the_audit_trail_is_kept_in_the_default_database() -> None:
    script = [(ThisNode(), "n1"), (Transact("main", AppendAudit("n1", (ENTRY,), None)), None)]

    assert play(PLATFORM.write_audit((ENTRY,)), script) is None
    assert close_at_every_effect(lambda: PLATFORM.write_audit((ENTRY,)), script) == 2


def test_keys_mean_nothing_where_authorization_is_off() -> None:
    assert PLATFORM.load_jwks(b"{") == ()
    assert PLATFORM.load_revocations(b"{") == ()
    assert PLATFORM.report_files(NEW_YEAR_2026) == ()


def test_keys_are_replaced_where_it_is_on() -> None:
    named = Issuer(kid="named")
    platform = demo(ISSUER)
    token = named.token("agents:read").encode()

    assert platform.explain(token, "GET", "/agents", NEW_YEAR_2026)["reason"] == "token"
    assert platform.load_jwks(json.dumps({"keys": [named.jwk]}).encode()) == ()
    assert platform.explain(token, "GET", "/agents", NEW_YEAR_2026)["by"] == "agents:read"
    assert platform.load_jwks(b"{")


def test_revocations_are_replaced_where_it_is_on() -> None:
    platform = demo(ISSUER, revocations=b"{}", options={"revocations_file": "revoked.json"})
    token = ISSUER.token("agents:read", jti="t1").encode()

    assert platform.explain(token, "GET", "/agents", NEW_YEAR_2026)["by"] == "agents:read"
    assert platform.load_revocations(b'{"tokens": ["t1"]}', NEW_YEAR_2026) == ()
    assert platform.explain(token, "GET", "/agents", NEW_YEAR_2026)["reason"] == "token"
    assert [line.event for line in platform.report_files(NEW_YEAR_2026)] == ["revocations_reloaded"]


def test_what_a_token_may_do_is_explained() -> None:
    platform = demo(ISSUER)
    token = ISSUER.token("agents:alpha:read").encode()

    def explained(token: bytes, target: str) -> dict[str, Any]:
        return platform.explain(token, "GET", target, NEW_YEAR_2026)

    assert explained(token, "/agents/alpha")["by"] == "agents:alpha:read"
    assert explained(token, "/agents/beta")["missing"] == "agents:beta:read"
    refused = explained(b"a.b.c", "/agents/alpha")
    assert (refused["allowed"], refused["reason"]) == (False, "token")
    assert "base64" in refused["because"]
    assert explained(b"a.b.c", "/health")["allowed"]
    assert PLATFORM.explain(b"", "GET", "/agents", 0)["by"] == "authorization is off"


def test_the_environment_adds_a_key_and_names_a_file() -> None:
    config = PlatformConfig(authorization_config=AuthorizationConfig(["a"]))
    environ = {"JWT_VERIFICATION_KEY": "b", "JWT_JWKS_FILE": "keys.json"}
    told = with_environment(config, environ).authorization_config

    assert told.verification_keys == ("a", "b")
    assert told.jwks_file == "keys.json"


def test_the_configuration_goes_before_the_environment() -> None:
    config = PlatformConfig(authorization_config=AuthorizationConfig(jwks_file="mine.json"))

    told = with_environment(config, {"JWT_JWKS_FILE": "theirs.json", "JWT_VERIFICATION_KEY": ""})
    assert told == config
    assert with_environment(config, {}) == config


def test_no_stream_is_given_to_head_by_a_platform_that_has_one_for_get() -> None:
    with Client(PLATFORM) as client:
        path = f"/agents/alpha/runs/{client.run('alpha', 'hi')['run_id']}/events"
        answer = client.simulation.run(PLATFORM.answer(Request("GET", path)), "get")
        assert isinstance(answer, Streamed)
        answer.body.close()


# --- What is noticed ----------------------------------------------------------------------------

TRACE: Final = f"00-{'a' * 32}-{'b' * 16}"
ANSWERED: Final = (Record, None)


def asked(
    sent: str | None, *, recorded: bool, drawn: Script = ()
) -> tuple[tuple[RequestLine, ...], tuple[Span, ...]]:
    """Ask for the agents; return the line of the log, and the spans."""
    platform = demo(None)
    recorder = platform.record_spans() if recorded else Recorder()
    platform.telemetry.keep_lines()
    parent = [] if sent is None else [(b"traceparent", sent.encode())]
    request = Request("GET", "/agents", ((b"x-request-id", b"id-1"), *parent))
    script = [(Now(), 10), *drawn, ANSWERED, (Now(), 15)]
    play(platform.answer(request), script)
    assert close_at_every_effect(lambda: platform.answer(request), script)
    return platform.telemetry.take_lines()[:1], recorder.take(0)[:1]


def test_a_request_has_a_line() -> None:
    [line], _ = asked(None, recorded=False)

    assert line == RequestLine(10, 15, "id-1", "GET", "/agents", "get_agents", 200, "")


def test_the_line_of_a_request_within_a_trace_says_which() -> None:
    for flags in ("00", "01"):
        [line], spans = asked(f"{TRACE}-{flags}", recorded=False)
        assert (line.trace_id, spans) == ("a" * 32, ())


def test_a_request_begins_a_trace_where_spans_are_recorded() -> None:
    drawn = [(RandomBytes(8), b"12345678"), (RandomBytes(16), bytes(range(16)))]
    for sent in (None, "nonsense"):
        [line], [span] = asked(sent, recorded=True, drawn=drawn)
        assert line.trace_id == span.trace_id == bytes(range(16)).hex()
        assert (span.span_id, span.parent_id) == (b"12345678".hex(), None)
        assert (span.start_us, span.end_us) == (10, 15)


def test_a_request_is_within_the_trace_of_its_caller() -> None:
    drawn = [(RandomBytes(8), b"12345678")]
    [line], [span] = asked(f"{TRACE}-01", recorded=True, drawn=drawn)

    assert line.trace_id == span.trace_id == "a" * 32
    assert (span.span_id, span.parent_id) == (b"12345678".hex(), "b" * 16)


def test_what_the_caller_has_not_recorded_is_not_recorded_here() -> None:
    [line], spans = asked(f"{TRACE}-00", recorded=True)

    assert (line.trace_id, spans) == ("a" * 32, ())


def test_the_line_and_the_span_of_a_stream_come_at_its_end() -> None:
    platform = demo(None)
    recorder = platform.record_spans()
    platform.telemetry.keep_lines()
    with Client(platform) as client:
        client.stream("alpha", "hi")
    [line] = platform.telemetry.take_lines()
    run, request = (s for s in recorder.take(0) if not s.name.startswith("chat"))

    assert (line.operation, line.status, line.cut) == ("create_agent_run", 200, False)
    assert (run.name, request.name) == ("invoke_agent alpha", "POST /agents/{agent_id}/runs")
    assert run.parent_id == request.span_id
    assert line.trace_id == run.trace_id == request.trace_id


def test_what_is_given_up_has_a_line_and_a_span_too() -> None:
    models = [Model(name="slow", provider="echo", delay_seconds=60)]
    platform = demo(None, agents=[Agent(id="alpha", model="slow"), Agent(id="beta")], models=models)
    recorder = platform.record_spans()
    platform.telemetry.keep_lines()
    program = platform.answer(Request("GET", "/sessions"))
    for answer in (None, 1, bytes(16), b"12345678", bytes(range(16))):
        program.send(answer)
    program.close()
    with Client(platform) as client:
        exchange = client.begin("POST", "/agents/alpha/runs", form={"message": "hi"})
        client.settle()
        exchange.disconnect()
        client.settle()
    lines = platform.telemetry.take_lines()

    told = [(line.status, line.end_us, line.cut) for line in lines]
    assert told == [(None, None, True), (200, None, True)]
    assert [s.error for s in recorder.take(99)].count("cut") == 2
    assert platform.telemetry.active == 0


def test_spans_are_recorded_once_however_often_that_is_asked_for() -> None:
    platform = Platform()

    assert platform.record_spans() is platform.record_spans()


def test_models_are_replaced_and_restored() -> None:
    platform = Platform(agents=[Agent(id="a")])
    configured, other = platform.registry.agents["a"], Echo()

    platform.replace_models(lambda _: other)
    assert platform.context.registry.agents["a"].model is other
    assert platform.registry.agents["a"] is configured
    platform.replace_models(lambda each: each.model)
    assert platform.context.registry.agents["a"].model is configured.model
