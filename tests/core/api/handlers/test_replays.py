"""The recording of a run over HTTP: for its owner alone, redacted where that is asked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from legation import Agent, tool
from legation.replay.recording import BadRecording, Recording, read_recording
from legation.store.failures import Unavailable
from legation.store.recordings import FetchMarks
from legation_testing import Client, ScriptedModel, call

from ....callers import Issuer, demo
from ....two_databases import IN_MEMORY

ISSUER: Final = Issuer()
CARD: Final = "4242 4242 4242 4242"
HOSTILE: Final = "\u2028</script>\"\\'\U0001f600\x7f"


@tool
def charge(card: str, amount: int) -> str:
    """Charge a card."""
    return json.dumps({"card": card, "amount": amount, "note": HOSTILE})


def shop(*script: Any, rounds: int = 10, database: str = "main") -> Agent:
    model = ScriptedModel(script or (call("charge", card=CARD, amount=120), "Done."))
    return Agent(
        id="shop",
        model=model,
        tools=[charge],
        max_rounds=rounds,
        database=database,
        instructions=f"Never say {CARD}.",
    )


@pytest.fixture
def client() -> Iterator[Client]:
    with Client(demo(None, agents=[shop(), Agent(id="alpha"), Agent(id="beta")])) as made:
        yield made


def target(run: Any) -> str:
    kind = "team" if "team_id" in run else "agent"
    return f"/{kind}s/{run[f'{kind}_id']}/runs/{run['run_id']}/replay"


def read(client: Client, run: Any, query: str = "") -> Recording:
    body = client.get(f"{target(run)}{query}").expect_success().body
    made = read_recording(body)
    assert isinstance(made, Recording), made
    return made


def test_a_recording_is_sent_line_by_line(client: Client) -> None:
    run = client.run("shop", HOSTILE, session_id="s1")
    answer = client.get(target(run)).expect_success()
    lines = [json.loads(line) for line in answer.text.split("\n")[:-1]]

    assert answer.header("content-type") == "application/x-ndjson"
    assert answer.header("content-disposition") == 'attachment; filename="replay.run.jsonl"'
    assert lines[0]["run"]["input"] == {"message": HOSTILE}
    assert [line.get("place") for line in lines[3:]] == ["0", "1", "1.1", "2", None]
    assert lines[-1]["end"] == "COMPLETED"
    assert client.get(target(run)).body == answer.body


def test_a_team_has_the_same(client: Client) -> None:
    run = client.run_team("crew", "hi", session_id="s1")

    assert read(client, run).run.kind == "team"


def test_what_is_redacted_is_nowhere_in_the_file(client: Client) -> None:
    run = client.run("shop", f"Charge {CARD}", session_id="s1")
    whole = read(client, run)
    path = "?redact=arguments.card&redact=outcome.result.amount"
    redacted = read(client, run, path)
    body = client.get(target(run) + path).text

    assert (whole.run.redacted, redacted.run.redacted) == (False, True)
    assert CARD not in body
    assert "120" not in body
    assert redacted.run.definition == whole.run.definition
    assert [step.place for step in redacted.steps] == [step.place for step in whole.steps]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("redact=card", "query.redact: The path 'card' begins with none of: user, session_id"),
        ("redact=input..x", "query.redact: The path 'input..x' begins with none of"),
        ("redact=input%00", "query: A field has U+0000 in it"),
        ("redact=", "query.redact: must not be empty"),
        ("redact=" + "x" * 201, "query.redact: must have at most 200 characters"),
        ("&".join(["redact=input"] * 65), "query.redact: must be sent at most 64 times"),
        ("place=1", "query.place: unknown field"),
    ],
)
def test_a_path_that_leads_nowhere_is_refused(client: Client, query: str, said: str) -> None:
    run = client.run("shop", "Charge", session_id="s1")
    refused = client.get(f"{target(run)}?{query}")

    assert refused.status == 422
    assert refused.json()["detail"].startswith(said)


def test_paths_that_name_too_much_are_refused(client: Client) -> None:
    state = {"names": ["a" * size for size in range(4, 1004)]}
    run = client.run("alpha", "aaaab" * 100_000, session_id="s1", session_state=state)
    refused = client.get(f"{target(run)}?redact=state.names.*")

    assert refused.status == 409
    assert refused.json()["detail"].startswith("The paths name too many values to look for")
    assert len(read(client, run, "?redact=input.message").steps) == 1


def test_a_line_that_nobody_would_read_is_refused() -> None:
    words = "\x01" * (3 << 20)  # six bytes each in a file
    agents = [Agent(id="alpha", model=ScriptedModel([words])), Agent(id="beta")]
    with Client(demo(None, agents=agents)) as client:
        refused = client.get(target(client.run("alpha", "Hello")))

    assert refused.status == 409
    assert refused.json()["detail"].startswith("The run cannot be recorded: its file would have")


def test_another_user_finds_nothing() -> None:
    with Client(demo(ISSUER, agents=[shop(), Agent(id="alpha"), Agent(id="beta")])) as client:
        client.token = ISSUER.token("agents:run", "agents:read")
        run = client.run("shop", "Charge", session_id="s1")
        own = client.get(target(run))
        others = [
            client.get(path, token=token)
            for path in (target(run), target({**run, "run_id": "no-such"}))
            for token in (
                ISSUER.token("agents:run", "agents:read", sub="eve"),
                ISSUER.token("agents:read", "runs:read", sub="eve"),
            )
        ]
        admin = client.get(target(run), token=ISSUER.token("platform:admin", sub="root"))
        unscoped = client.get(target(run), token=ISSUER.token("sessions:read"))
        elsewhere = client.get(f"{target(run)}?session_id=s2")
        entry = next(one for one in client.audit if one.subject == "root")

    assert (own.status, admin.status) == (200, 200)
    assert own.body == admin.body
    assert {(one.status, one.json()["detail"]) for one in others} == {(404, "Run not found")}
    assert (unscoped.status, elsewhere.status) == (403, 404)
    assert (entry.operation, entry.status) == ("replay_agent_run", 200)


def test_a_run_of_the_second_database_is_found() -> None:
    agents = [shop(database="second"), Agent(id="alpha"), Agent(id="beta")]
    with Client(demo(None, agents=agents, databases=IN_MEMORY)) as client:
        run = client.run("shop", "Charge", session_id="s1")

        assert len(read(client, run).steps) == 4


def test_a_run_of_an_agent_that_is_hosted_no_more_has_a_recording() -> None:
    with Client(demo(None, agents=[shop(), Agent(id="alpha"), Agent(id="beta")])) as client:
        run = client.run("shop", "Charge", session_id="s1")
        whole = client.get(target(run)).body
        peer = client.peer(demo(None))
        peer.open()

        assert peer.get(target(run)).body == whole
        peer.close()


def test_a_thousand_steps_are_one_file() -> None:
    calls = [call("charge", card=CARD, amount=number) for number in range(4)]
    script = [*([calls] * 200), "Done."]
    agents = [shop(*script, rounds=300), Agent(id="alpha"), Agent(id="beta")]
    with Client(demo(None, agents=agents)) as client:
        run = client.run("shop", "Charge", session_id="s1")
        whole, redacted = read(client, run), read(client, run, "?redact=arguments.card")

    assert len(whole.steps) == 1 + 200 + 800 + 1
    assert len(redacted.steps) == len(whole.steps)


def test_a_long_line_is_sent_in_pieces(client: Client) -> None:
    run = client.run("alpha", "x" * 500_000, session_id="s1")
    answer = client.get(target(run)).expect_success()

    assert len(answer.body) > 1_000_000
    assert isinstance(read_recording(answer.body), Recording)


def test_a_file_of_a_client_that_heard_a_part_is_no_recording(client: Client) -> None:
    run = client.run("alpha", "x" * 500_000, session_id="s1")
    exchange = client.begin("GET", target(run))
    whole = exchange.response().body

    assert all(
        isinstance(read_recording(whole[:size]), BadRecording)
        for size in range(1, len(whole) - 1, len(whole) // 20)
    )


def test_a_database_that_fails_sends_no_part(client: Client) -> None:
    run = client.run("shop", "Charge", session_id="s1")
    fault = client.fail_at(FetchMarks, Unavailable(), times=None)
    failed = client.get(target(run))
    fault.disarm()

    assert failed.status == 503
    assert client.get(target(run)).status == 200
