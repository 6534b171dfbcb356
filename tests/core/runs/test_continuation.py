"""Runs that pause for a person, and go on: through the whole platform, on a real SQLite."""

from __future__ import annotations

import json
from collections.abc import Generator
from functools import partial
from typing import Any

import jwt
import pytest
from attrs import evolve

from legation import Platform
from legation.config import Agent, AuthorizationConfig, Model
from legation.effects import Program, Transact
from legation.models.conversation import Thought
from legation.runs.agent_turn import Waits
from legation.runs.continuation import go_on, turn_at_pause
from legation.runs.endings import conclude
from legation.runs.event_writer import EventWriter, Journal
from legation.runs.events import EventOrigin
from legation.runs.output import RunSummary
from legation.runs.turn_state import CallState, MemberState, Standing, TurnState
from legation.store.audit import Changed
from legation.store.failures import Busy, CommitLost
from legation.store.run_reads import FetchRun
from legation.store.run_rows import ClaimedRun
from legation.store.run_steering import CancelRun, Continued, ContinueRun
from legation.store.runs import AppendEvents, FinishRun
from legation.store.units import Unit
from legation.tools import tool
from legation_testing import NEW_YEAR_2026, Client, Says, ScriptedModel, call, play

PATH = "/agents/clerk/runs"
TEAM = "/teams/desk/runs"


class Desk:
    """An agent with tools, and what they were called with."""

    def __init__(self) -> None:
        self.called: list[str] = []

    def platform(self, *steps: Any, **more: Any) -> Platform:
        @tool(requires_confirmation=True)
        def delete(path: str) -> str:
            """Delete a file."""
            self.called.append(path)
            return f"{path} is gone"

        @tool(external_execution=True)
        def shell(command: str) -> str:
            """Run a command."""
            raise AssertionError

        script = steps or (call("delete", path="/x"), "Done.")
        model = ScriptedModel(script * 4)
        slow = Model("slow", "echo", delay_seconds=5.0)
        clerk = Agent(id="clerk", model=model, tools=[delete, shell])
        return Platform(models=(slow,), agents=(clerk, Agent(id="sloth", model="slow")), **more)


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def client(desk: Desk) -> Generator[Client]:
    with Client(desk.platform) as client:
        yield client


def paused(client: Client, session_id: str = "s", **form: Any) -> dict[str, Any]:
    asked = {"message": "tidy up", "stream": False, "session_id": session_id, **form}
    run: dict[str, Any] = client.post(PATH, form=asked).json()
    assert run["status"] == "PAUSED"
    return run


def answers(run: dict[str, Any], **answer: Any) -> str:
    return json.dumps([{**one["tool_execution"], **answer} for one in run["requirements"]])


def confirm(client: Client, run: dict[str, Any], **form: Any) -> Any:
    tools = form.pop("tools", answers(run, confirmed=True))
    form = {"tools": tools, "stream": False, **form}
    return client.post(f"{PATH}/{run['run_id']}/continue", form=form)


def stored(client: Client, run: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = client.get(f"{PATH}/{run['run_id']}").json()
    return found


def names(client: Client, run: dict[str, Any]) -> list[str]:
    return [event.name for event in client.get(f"{PATH}/{run['run_id']}/events").events()]


# --- Pausing -----------------------------------------------------------------------------------


def test_a_run_pauses_before_a_call_that_a_person_has_to_confirm(
    client: Client, desk: Desk
) -> None:
    run = paused(client)
    requirement = run["requirements"][0]

    assert run["content"] == "I have tools to execute, but I need confirmation."
    assert requirement["tool_execution"] == run["tools"][0]
    assert len(run["tools"][0]) == 20
    assert run["tools"][0]["requires_confirmation"] is True
    assert run["tools"][0]["tool_args"] == {"path": "/x"}
    assert "turn" not in json.dumps(run)
    assert names(client, run)[-2:] == ["RunContentCompleted", "RunPaused"]
    assert stored(client, run) == run
    assert desk.called == []


@pytest.mark.parametrize(
    ("step", "sentence"),
    [
        (call("shell", command="ls"), "it needs external execution"),
        (
            [call("shell", command="ls"), call("delete", path="/x")],
            "I need confirmation or external execution",
        ),
    ],
)
def test_what_a_run_waits_for_is_said(desk: Desk, step: Any, sentence: str) -> None:
    with Client(lambda: desk.platform(step)) as client:
        assert paused(client)["content"] == f"I have tools to execute, but {sentence}."


def waits(name: str, what: Standing, **more: Any) -> CallState:
    arguments = {"room": 7}
    asked = call(name, **arguments)
    return CallState(call=asked, created_us=0, arguments=arguments, standing=what, **more)


CONFIRM, BOOK = Standing.CONFIRM, waits("book", Standing.CONFIRM, in_doubt=True, started_us=1)
OF_MEMBER = MemberState(
    run_id="m",
    kind="agent",
    component_id="b",
    name="B",
    created_us=0,
    state=TurnState(calls=(waits("pay", CONFIRM, in_doubt=True),)),
)


@pytest.mark.parametrize(
    ("calls", "sentence"),
    [
        ([BOOK], "it is not known whether book was carried out, and I need confirmation"),
        (
            [waits("pay", Standing.MEMBER, member=OF_MEMBER), BOOK, BOOK, waits("open", CONFIRM)],
            "it is not known whether book or pay was carried out, and I need confirmation",
        ),
        (
            [waits("open", Standing.EXTERNAL), BOOK],
            (
                "it is not known whether book was carried out, "
                "and I need confirmation or external execution"
            ),
        ),
    ],
)
def test_pause_of_a_call_in_doubt_says_that_its_outcome_is_not_known(
    calls: list[CallState], sentence: str
) -> None:
    run = ClaimedRun("o", "s", "r", "agent", "a", '{"message": "go"}', 0, 1)
    writer = EventWriter(Journal("main", run, "n", 0), EventOrigin(run, "A"), streamed=False)
    summary = RunSummary(run, "A", None, TurnState(calls=tuple(calls)))
    end = play(conclude(writer, summary, Waits()), [])
    event = json.loads(writer.journal.pending[-1].data)

    assert end.output["content"] == event["content"] == f"I have tools to execute, but {sentence}."
    doubtful = [one["tool_execution"].get("in_doubt") for one in event["requirements"]]
    assert doubtful.count(True) == sum(call.in_doubt or call.member is not None for call in calls)
    assert False not in doubtful


def test_a_run_that_waits_keeps_nobody_waiting(client: Client) -> None:
    paused(client)

    assert client.run("sloth", "x", session_id="s")["status"] == "COMPLETED"
    assert [run["status"] for run in client.get("/sessions/s/runs").json()] == [
        "PAUSED",
        "COMPLETED",
    ]


def test_a_run_that_waits_can_be_cancelled_and_not_continued(client: Client, desk: Desk) -> None:
    run = paused(client)
    client.post(f"{PATH}/{run['run_id']}/cancel")

    assert stored(client, run)["status"] == "CANCELLED"
    assert confirm(client, run).json()["detail"] == "run is already cancelled"
    assert desk.called == []


def test_a_wish_to_cancel_that_comes_with_the_pause_is_not_forgotten(
    client: Client, desk: Desk
) -> None:
    """Stored as a wish to whoever executes it, it is found by the unit that would pause the run."""
    form = {"message": "tidy up", "stream": False, "session_id": "s"}
    lost = client.fail_at(FinishRun, Busy("locked"))
    exchange = client.begin("POST", PATH, form=form)
    client.settle()
    assert lost.struck is not None
    run_id = client.get("/sessions/s/runs").json()[0]["run_id"]
    unit = CancelRun("", "s", run_id, 5, "{}", ("RunCancelled", "{}"))
    assert client.simulation.run(_transacted(unit)) == "RUNNING"
    run = exchange.response().json()

    assert run["status"] == "CANCELLED"
    assert names(client, run) == [
        "RunStarted",
        "ModelRequestStarted",
        "ModelRequestCompleted",
        "ToolCallStarted",
        "RunCancelled",
    ]


def _transacted(unit: Unit[Any]) -> Program[Any]:
    found: Any = yield from Transact("main", unit)
    return found


# --- Going on ----------------------------------------------------------------------------------


def test_what_was_confirmed_is_executed_once_and_the_model_goes_on(
    client: Client, desk: Desk
) -> None:
    run = paused(client)
    done = confirm(client, run).json()

    assert (done["status"], done["content"]) == ("COMPLETED", "Done.")
    assert desk.called == ["/x"]
    call_of = done["tools"][0]
    assert (call_of["confirmed"], call_of["requires_confirmation"]) == (True, False)
    assert call_of["result"] == "/x is gone"
    assert [message["role"] for message in done["messages"]] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert stored(client, run) == done
    assert names(client, run)[-7:] == [
        "RunPaused",
        "RunContinued",
        "ToolCallCompleted",
        "ModelRequestStarted",
        "ModelRequestCompleted",
        "RunContentCompleted",
        "RunCompleted",
    ]


def test_a_stream_of_a_run_that_goes_on_begins_behind_the_pause(client: Client) -> None:
    run = paused(client)
    events = confirm(client, run, stream=True).events()

    assert [events[0].name, events[-1].name] == ["RunContinued", "RunCompleted"]
    before = client.get(f"{PATH}/{run['run_id']}/events").events()
    assert before[-len(events) :] == events


@pytest.mark.parametrize("tools", ["[]", None])
def test_no_answer_rejects(client: Client, desk: Desk, tools: str | None) -> None:
    run = paused(client)
    form = {"stream": False} if tools is None else {"stream": False, "tools": tools}
    done = client.post(f"{PATH}/{run['run_id']}/continue", form=form).json()

    assert done["status"] == "COMPLETED"
    assert done["tools"][0]["tool_call_error"] is True
    assert done["messages"][2]["content"] == "Function call was rejected by the user"
    assert desk.called == []


def test_the_result_of_a_tool_that_the_client_executed_is_the_models(desk: Desk) -> None:
    with Client(lambda: desk.platform(call("shell", command="ls"), "Done.")) as client:
        run = paused(client)
        assert confirm(client, run, tools="[]").status == 422
        done = confirm(client, run, tools=answers(run, result="a b")).json()

        assert done["messages"][2]["content"] == "a b"
        assert (done["status"], done["tools"][0]["result"]) == ("COMPLETED", "a b")


def test_a_run_may_pause_again(desk: Desk) -> None:
    steps = (call("delete", path="/x"), call("delete", path="/y"), "Done.")
    with Client(lambda: desk.platform(*steps)) as client:
        run = paused(client)
        again = confirm(client, run).json()
        assert again["status"] == "PAUSED"
        assert desk.called == ["/x"]
        done = confirm(client, again).json()

        assert (done["status"], desk.called) == ("COMPLETED", ["/x", "/y"])
        assert done["metrics"]["details"]["model"][0]["id"] == "scripted"


def test_what_a_turn_cost_is_counted_over_its_pauses(client: Client) -> None:
    run = paused(client)
    client.advance(100)
    done = confirm(client, run).json()

    assert done["metrics"]["input_tokens"] > run["metrics"]["input_tokens"] > 0
    assert done["metrics"]["duration"] < 1
    assert client.get("/sessions/s").json()["total_tokens"] == done["metrics"]["total_tokens"]


def test_what_was_thought_before_the_pause_is_told_again_after_it_and_shown_to_nobody() -> None:
    models: list[ScriptedModel] = []
    thoughts = (Thought("scripted", '{"type":"thinking","thinking":"a secret","signature":"s"}'),)

    def platform() -> Platform:
        @tool(requires_confirmation=True)
        def delete(path: str) -> str:
            """Delete a file."""
            return path

        models.append(ScriptedModel([Says("", [call("delete", path="/x")], thoughts=thoughts), ""]))
        clerk = Agent(id="clerk", model=models[-1], tools=[delete])
        return Platform(agents=(clerk,))

    with Client(platform) as client:
        run = paused(client)
        done = confirm(client, run)
        seen = [*(event.data for event in client.get(f"{PATH}/{run['run_id']}/events").events())]
        seen += [json.dumps(run), done.text, client.get("/sessions/s").text]

    assert models[-1].prompts[-1].messages[-2].thoughts == thoughts
    assert done.json()["status"] == "COMPLETED"
    assert not any("secret" in text for text in seen)


# --- What leaves the run as it is --------------------------------------------------------------


def shown(run: dict[str, Any], **changes: Any) -> str:
    return answers(run, **{"confirmed": True, **changes})


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"tool_args": {"path": "/"}}, 422),
        ({"tool_name": "shell"}, 422),
        ({"tool_call_id": "other"}, 422),
        ({"confirmed": None}, 422),
        ({"confirmed": "yes"}, 400),
        ({"result": "forged"}, 422),
    ],
)
def test_an_answer_that_is_wrong_leaves_the_run_waiting(
    client: Client, desk: Desk, changes: dict[str, Any], status: int
) -> None:
    run = paused(client)

    assert confirm(client, run, tools=shown(run, **changes)).status == status
    assert (stored(client, run), desk.called) == (run, [])
    assert confirm(client, run).json()["status"] == "COMPLETED"


@pytest.mark.parametrize("tools", ["{", "nonsense", "{}", "[1]", '[{"tool_call_id": 1}]'])
def test_an_answer_without_sense_leaves_the_run_waiting(client: Client, tools: str) -> None:
    run = paused(client)
    refused = confirm(client, run, tools=tools)

    assert refused.status == 400
    assert "tools" in refused.json()["detail"]
    assert stored(client, run) == run


def test_a_run_is_continued_in_its_own_session_and_by_its_own_agent(client: Client) -> None:
    run = paused(client)

    assert confirm(client, run, session_id="other").status == 404
    path = f"/agents/sloth/runs/{run['run_id']}/continue"
    assert client.post(path, form={"tools": shown(run)}).status == 404
    assert confirm(client, run, session_id="s").json()["status"] == "COMPLETED"
    assert confirm(client, run).json()["detail"] == "run is already continued"


SECRET = "s" * 32


def bearer(subject: str, **more: Any) -> str:
    claims = {
        "exp": NEW_YEAR_2026 // 1_000_000 + 3600,
        "scopes": ["agents:run", "agents:read"],
        "sub": subject,
        **more,
    }
    return jwt.encode(claims, SECRET, algorithm="HS256")


def test_nobody_continues_the_run_of_another(desk: Desk) -> None:
    keys = AuthorizationConfig(verification_keys=(SECRET,), algorithm="HS256")
    made = partial(desk.platform, authorization=True, authorization_config=keys)
    with Client(made, token=bearer("ada")) as client:
        run = paused(client)
        path = f"{PATH}/{run['run_id']}/continue"
        form = {"tools": shown(run), "stream": False}

        assert client.post(path, form=form, token=bearer("eve")).status == 404
        elsewhere = bearer("ada", session_id="other")
        assert client.post(path, form=form, token=elsewhere).status == 404
        assert desk.called == []
        assert client.post(path, form=form).json()["status"] == "COMPLETED"


# --- Several at once ---------------------------------------------------------------------------


@pytest.mark.parametrize("order", range(12))
def test_of_several_who_answer_at_once_one_goes_on(desk: Desk, order: int) -> None:
    with Client(desk.platform, order=order) as client:
        run = paused(client)
        peer = client.peer()
        peer.open()
        form = {"tools": shown(run), "stream": False}
        path = f"{PATH}/{run['run_id']}/continue"
        exchanges = [one.begin("POST", path, form=form) for one in (client, peer, client)]
        found = sorted(exchange.response().status for exchange in exchanges)

        assert found == [200, 409, 409]
        assert desk.called == ["/x"]


@pytest.mark.parametrize("order", range(12))
def test_who_continues_and_who_cancels_at_once_agree_on_what_became_of_it(
    desk: Desk, order: int
) -> None:
    with Client(desk.platform, order=order) as client:
        run = paused(client)
        path = f"{PATH}/{run['run_id']}"
        form = {"tools": shown(run), "stream": False}
        going = client.begin("POST", f"{path}/continue", form=form)
        ending = client.begin("POST", f"{path}/cancel")
        assert ending.response().status == 200
        answer = going.response()
        state = stored(client, run)["status"]

        assert (answer.status, state) in [
            (409, "CANCELLED"),
            (200, "CANCELLED"),
            (200, "COMPLETED"),
        ]
        assert len(desk.called) <= 1
        if state == "COMPLETED":
            assert desk.called == ["/x"]
        assert client.run("sloth", "next", session_id="s")["status"] == "COMPLETED"


def test_a_run_that_goes_on_waits_for_the_one_that_is_under_way(client: Client, desk: Desk) -> None:
    run = paused(client)
    form = {"message": "x", "session_id": "s", "stream": False}
    other = client.begin("POST", "/agents/sloth/runs", form=form)
    client.settle()
    path = f"{PATH}/{run['run_id']}/continue"
    going = client.begin("POST", path, form={"tools": shown(run), "stream": False})
    client.settle()
    assert stored(client, run)["status"] == "PENDING"
    assert confirm(client, run).json()["detail"] == "run is already pending"
    assert desk.called == []

    assert other.response().json()["status"] == "COMPLETED"
    assert going.response().json()["status"] == "COMPLETED"
    assert desk.called == ["/x"]


def test_who_follows_a_run_from_its_beginning_is_not_stopped_by_a_pause_that_is_over(
    client: Client,
) -> None:
    run = paused(client)
    form = {"message": "x", "session_id": "s", "background": True}
    client.post("/agents/sloth/runs", form=form)
    client.settle()
    client.begin("POST", f"{PATH}/{run['run_id']}/continue", form={"tools": shown(run)})
    client.settle()
    assert stored(client, run)["status"] == "PENDING"

    followed = names(client, run)
    assert "RunPaused" in followed
    assert followed[-1] == "RunCompleted"


def test_what_a_peer_did_after_the_pause_is_read_to_the_end(client: Client) -> None:
    """This node heard of the pause and of nothing since: what counts is the database."""
    run = paused(client)
    peer = client.peer()
    peer.open()
    again = confirm(peer, run).json()  # its model's script begins anew
    assert confirm(peer, again).json()["status"] == "COMPLETED"

    assert names(client, run) == names(peer, run)
    assert names(client, run)[-1] == "RunCompleted"


def test_a_busy_session_rejects_a_run_that_goes_on_where_that_is_configured(desk: Desk) -> None:
    with Client(lambda: desk.platform(on_busy="reject")) as client:
        run = paused(client)
        form = {"message": "x", "session_id": "s", "background": True}
        client.post("/agents/sloth/runs", form=form)
        client.settle()

        assert confirm(client, run).status == 409
        assert stored(client, run) == run
        client.advance(6)
        assert confirm(client, run).json()["status"] == "COMPLETED"


# --- When something fails ----------------------------------------------------------------------


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("busy", [False, True], ids=["at once", "in its turn"])
def test_a_commit_without_an_answer_continues_once(desk: Desk, after: bool, busy: bool) -> None:
    with Client(desk.platform) as client:
        run = paused(client)
        if busy:
            form = {"message": "x", "session_id": "s", "background": True}
            client.post("/agents/sloth/runs", form=form)
            client.settle()
        fault = client.fail_at(ContinueRun, CommitLost("no answer"), after=after)
        done = confirm(client, run).json()

        assert fault.struck is not None
        assert (done["status"], desk.called) == ("COMPLETED", ["/x"])


def test_a_pause_that_is_stored_again_leaves_the_lease_to_who_goes_on(desk: Desk) -> None:
    steps = (call("delete", path="/x"), Says("Done.", after_seconds=120.0))
    with Client(lambda: desk.platform(*steps)) as client:
        fault = client.fail_at(FinishRun, CommitLost("no answer"), after=True)
        form = {"message": "x", "session_id": "s", "background": True}
        run = client.post(PATH, form=form).json()
        client.settle()
        done = confirm(client, stored(client, run)).json()

        assert fault.struck is not None
        assert (done["status"], desk.called) == ("COMPLETED", ["/x"])


def test_a_run_that_is_gone_when_its_answer_comes_is_not_found(client: Client) -> None:
    run = paused(client)
    client.fail_at(ContinueRun, Changed(Continued(None), kept=False))
    assert confirm(client, run).status == 404
    client.fail_at(ContinueRun, Changed(Continued("PAUSED"), kept=False))
    assert confirm(client, run).json()["detail"] == "run is already continued"


def test_what_was_continued_and_not_begun_when_its_node_died_is_executed_by_another(
    desk: Desk,
) -> None:
    with Client(desk.platform) as client:
        run = paused(client)
        peer = client.peer()
        peer.open()
        client.fail_at(AppendEvents, None)
        going = client.begin(
            "POST",
            f"{PATH}/{run['run_id']}/continue",
            form={"tools": shown(run), "stream": False},
        )
        client.settle()
        client.advance(40)

        assert going.response().json()["status"] == "COMPLETED"
        assert desk.called == ["/x"]


def test_what_was_begun_when_its_node_died_is_asked_about(desk: Desk) -> None:
    with Client(desk.platform) as client:
        run = paused(client)
        client.fail_at(AppendEvents, None, after=True)
        going = client.begin(
            "POST",
            f"{PATH}/{run['run_id']}/continue",
            form={"tools": shown(run), "stream": False},
        )
        client.settle()
        client.advance(40)
        done = going.response().json()

        assert (done["status"], desk.called) == ("PAUSED", [])
        assert "it is not known whether delete was carried out" in done["content"]
        assert [one["in_doubt"] for one in done["tools"]] == [True]
        assert confirm(client, done).json()["status"] == "COMPLETED"
        assert desk.called == ["/x"]
        assert client.run("sloth", "next", session_id="s")["status"] == "COMPLETED"


def test_a_pause_that_this_version_cannot_read_is_left_alone(client: Client) -> None:
    run = paused(client)
    row = client.simulation.run(_transacted(FetchRun(run["run_id"], "")))
    assert isinstance(turn_at_pause(row), TurnState)
    bare = evolve(row, input='{"message": "x"}')
    assert turn_at_pause(bare) is None
    client.fail_at(FetchRun, bare)

    assert confirm(client, run).json()["detail"].startswith("run waits for what this platform")
    member = evolve(row, parent_run_id="other")
    client.fail_at(FetchRun, member)
    assert confirm(client, run).json()["detail"].startswith("run is that of a member")


def test_a_run_may_be_continued_without_a_request(client: Client, desk: Desk) -> None:
    run = paused(client)
    row = client.simulation.run(_transacted(FetchRun(run["run_id"], "")))
    platform: Any = client.platform
    state = turn_at_pause(row)
    assert state is not None
    program = go_on(platform.context, "main", row, state, state, stream=False)
    continued: Continued = client.simulation.run(program)

    assert (continued.kept, continued.found) == (True, "PAUSED")


def test_the_answer_is_audited_with_its_change(client: Client) -> None:
    run = paused(client)
    confirm(client, run)

    found = [e for e in client.audit if e.operation == "continue_agent_run"]
    assert [(e.resource, e.status) for e in found] == [(f"clerk/{run['run_id']}", 200)]


def test_a_schema_that_cannot_be_checked_is_refused(client: Client) -> None:
    schema = {"type": "object", "properties": {"x": {"$ref": "https://example.com/x"}}}
    form = {"message": "x", "output_schema": json.dumps(schema)}
    refused = client.post(PATH, form=form)

    assert refused.status == 422
    assert refused.json()["errors"][0]["path"] == "body.output_schema"
