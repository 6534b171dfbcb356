"""The cost of runs, through the platform: what is shown, whose it is, and where a budget ends."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any, Final

import pytest

from legation import (
    Agent,
    LimitOverrides,
    ModelPrice,
    Platform,
    PlatformLimits,
    Prices,
    Team,
)
from legation.effects import Program
from legation.models.conversation import (
    Listener,
    ModelFailed,
    Prompt,
    Reply,
    Usage,
)
from legation.models.prices import Priced
from legation.money import MOST_NANO
from legation.runs.event_writer import Journal
from legation.runs.fold import RunRecord
from legation.store.run_rows import ClaimedRun
from legation.store.steps import COPIED, Step, StepKind
from legation.tools import tool
from legation.values import frozen
from legation_testing import NEW_YEAR_2026, Client, Says, ScriptedModel, call

from ...callers import NOW, Issuer
from ...recordings import record, take_again
from ...two_databases import IN_MEMORY

ISSUER: Final = Issuer()
DAY_SECONDS: Final = 86_400
RUNS: Final = "/agents/clerk/runs"
SENTENCE: Final = (
    "The run was ended: the 0.02 USD that there are for one day are used up; there are new ones at"
    " midnight, UTC"
)
SMALL: Final = ModelPrice(input="0.15", output="0.60", cached="0.075")
LARGE: Final = ModelPrice(input="3", output="15", cached="0.30", cache_write="3.75", reasoning="20")
PRICES: Final = Prices(models={"small": SMALL, "Legation:large": LARGE, "ten": SMALL})

TEN_DOLLARS: Final = ModelPrice(input="10000", output="10000")
"""A cent for a token."""


def token_of(name: str) -> str:
    scopes = ("agents:run", "teams:run", "sessions:read", "runs:read", "metrics:read")
    return ISSUER.token(*scopes, sub=name, exp=NOW + 3 * DAY_SECONDS)


ADA: Final = token_of("ada")
BOB: Final = token_of("bob")


@tool(again="safe")
def look(what: str) -> str:
    """Look."""
    return f"saw {what}"


@tool(requires_confirmation=True)
def book(what: str) -> str:
    """Book."""
    return f"booked {what}"


def think(prompt: Prompt) -> Any:
    """Look, for 435,000 nano-USD, and answer, for 9,150,000."""
    if any(message.role == "tool" for message in prompt.messages):
        return Says("Done.", usage=Usage(1_000, 15_000))
    usage = Usage(1_000, 500, cache_read_tokens=200)
    return Says("Let me look.", [call("look", what="x")], usage=usage)


def delegate(prompt: Prompt) -> Any:
    """Ask the clerk, for 52,450,000 nano-USD, and answer, for 3,000."""
    results = [message.content for message in prompt.messages if message.role == "tool"]
    if results:
        return Says(results[-1], usage=Usage(1))
    task = call("delegate_task_to_member", member_id="clerk", task="look")
    return Says("Ask.", [task], usage=Usage(10_000, 2_000, 500, 4_000, 1_000))


def desk(prices: Prices | None = PRICES) -> Platform:
    small, large = ScriptedModel([think] * 9, id="small"), ScriptedModel([delegate] * 9, id="large")
    return Platform(
        databases=IN_MEMORY,
        agents=(Agent(id="clerk", model=small, tools=[look], history_runs=0),),
        teams=(Team(id="desk", members=("clerk",), model=large, history_runs=0),),
        prices=prices,
    )


def ask(client: Client, path: str = RUNS, **options: Any) -> Any:
    form = {"message": "x", "stream": False, "session_id": "s", **options.pop("form", {})}
    return client.post(path, form=form, **options)


# --- What is shown -----------------------------------------------------------------------------


def test_a_run_shows_what_it_cost_and_so_do_its_answers() -> None:
    with Client(desk) as client:
        run = ask(client).json()
        answers = [
            json.loads(event.data)["cost"]
            for event in client.get(f"{RUNS}/{run['run_id']}/events").events()
            if event.name == "ModelRequestCompleted"
        ]
        metrics = client.get("/metrics/prometheus").text

    assert run["metrics"]["cost"] == 0.009585
    assert run["metrics"]["details"]["model"][0]["cost"] == 0.009585
    assert answers == [0.000435, 0.00915]
    labels = 'model="small",component="clerk"'
    assert f"legation_model_cost_usd_total{{{labels}}} 0.009585\n" in metrics


def test_a_team_costs_what_its_leader_and_its_members_do() -> None:
    with Client(desk) as client:
        run = ask(client, "/teams/desk/runs").json()
        session = client.get("/sessions/s?type=team&db_id=main").json()
        sums = client.get("/runs/summary?by=model").json()

    (member,) = run["member_responses"]
    assert member["metrics"]["cost"] == 0.009585
    assert run["metrics"]["cost"] == 0.062038
    assert run["metrics"]["details"]["model"][0]["cost"] == 0.052453
    assert session["metrics"]["cost"] == 0.062038
    assert sums["total"]["cost"] == sums["data"][0]["cost"] == 0.062038


@pytest.mark.parametrize("prices", [None, Prices(), Prices(models={"other": SMALL})])
def test_nothing_is_shown_where_no_price_is_known(prices: Prices | None) -> None:
    with Client(lambda: desk(prices)) as client:
        ask(client)
        run = ask(client, "/teams/desk/runs", form={"session_id": "t"})
        read = [
            client.get(path).body
            for path in (
                "/sessions/s?db_id=main",
                "/sessions/t?type=team&db_id=main",
                "/runs/summary",
                "/me",
            )
        ]
        metrics = client.get("/metrics/prometheus").text

    assert not [text for text in (run.body, *read) if b'"cost' in text]
    assert "legation_cost" not in metrics


def test_of_a_team_the_part_is_shown_whose_price_is_known() -> None:
    with Client(lambda: desk(Prices(models={"small": SMALL}))) as client:
        run = ask(client, "/teams/desk/runs").json()

    assert run["metrics"]["cost"] == 0.009585
    assert "cost" not in run["metrics"]["details"]["model"][0]


def test_a_run_that_pauses_shows_what_it_cost_before_and_behind() -> None:
    def pause(prompt: Prompt) -> Any:
        done = any(message.role == "tool" for message in prompt.messages)
        calls = [] if done else [call("book", what="x")]
        return Says("" if calls else "Done.", calls, usage=Usage(1_000_000))

    def hotel() -> Platform:
        model = ScriptedModel([pause] * 9, id="small")
        return Platform(
            databases=IN_MEMORY,
            agents=(Agent(id="clerk", model=model, tools=[book], history_runs=0),),
            prices=PRICES,
        )

    with Client(hotel) as client:
        run = ask(client).json()
        assert (run["status"], run["metrics"]["cost"]) == ("PAUSED", 0.15)
        client.restart()
        done = client.go_on(run, confirmed=True)

    assert (done["status"], done["metrics"]["cost"]) == ("COMPLETED", 0.3)


# --- Models that say what they cost, and requests without an answer ----------------------------


@frozen
class Charging:
    """A model that knows its cost, or fails with it."""

    cost: Any = None
    fails: bool = False
    name = "Charging"
    provider = "Others"
    id: str = "small"

    def respond(self, prompt: Prompt, listener: Listener) -> Program[Reply]:
        yield from ()
        usage = Usage(1_000_000, cost_nano=self.cost)
        if self.fails:
            error = ModelFailed("broken", "It broke off.")
            error.usage = usage
            raise error
        return Reply("hm", usage)


@pytest.mark.parametrize(
    ("cost", "prices", "shown"),
    [
        (5_000_000_000, PRICES, 5.0),
        (5_000_000_000, None, 5.0),
        *((hostile, PRICES, 0.15) for hostile in (-1, 10**30, 0.5, float("nan"), "1", True)),
        *((hostile, None, None) for hostile in (-1, 10**30, "1")),
    ],
)
def test_the_cost_that_a_model_says_comes_first_if_it_is_one(
    cost: Any, prices: Prices | None, shown: float | None
) -> None:
    platform = Platform(agents=(Agent(id="clerk", model=Charging(cost)),), prices=prices)
    with Client(platform) as client:
        run = ask(client).json()
        session = client.get("/sessions/s").json()

    assert run["metrics"].get("cost") == session["metrics"].get("cost") == shown


def test_a_request_without_an_answer_is_paid_for_as_far_as_its_usage_is_known() -> None:
    platform = Platform(agents=(Agent(id="clerk", model=Charging(fails=True)),), prices=PRICES)
    with Client(platform) as client:
        run = ask(client).json()
        session = client.get("/sessions/s").json()

    assert (run["status"], run["error_type"]) == ("ERROR", "model_broken")
    assert (run["metrics"]["cost"], run["metrics"]["total_tokens"]) == (0.15, 1_000_000)
    assert session["metrics"]["cost"] == 0.15


def test_a_source_that_gives_nonsense_fails_the_run_with_an_incident() -> None:
    def source(model: Priced, usage: Usage, now_us: int) -> int:
        return -1

    with Client(desk(Prices(source=source)), raise_errors=False) as client:
        run = ask(client).json()
        (logged,) = [dict(log.fields) for log in client.logs if log.event == "run_failed"]

    assert (run["status"], run["error_type"]) == ("ERROR", "run_failed")
    assert str(logged["error"]).startswith("ValueError in PriceList.price")


# --- The price that was is the price that stays ------------------------------------------------


def test_a_replay_shows_the_cost_that_was_whatever_the_prices_are_by_now() -> None:
    with Client(desk) as client:
        run = ask(client, "/teams/desk/runs").json()
        recording = record(client, run)
    dear = Prices(models={"small": TEN_DOLLARS, "large": TEN_DOLLARS})

    replayed = take_again(recording, desk(dear))
    costs = [
        step.outcome["cost"]
        for step in recording.steps
        if step.kind == StepKind.MODEL and step.outcome is not None
    ]

    assert sorted(costs) == [3_000, 435_000, 9_150_000, 52_450_000]
    assert replayed.divergences == ()


def test_the_usage_of_steps_is_that_since_the_last_pause_with_that_of_members_over() -> None:
    def model(place: str, attempt: int, usage: str = "3,4,0,0,0", cost: int = 10) -> Step:
        outcome = f'{{"f":1,"usage":[{usage}],"cost":{cost}}}'
        return Step(place, StepKind.MODEL, "m", 1, 2, outcome, attempt=attempt)

    def member(place: str, attempt: int, outcome: str | None = None) -> Step:
        return Step(place, StepKind.MEMBER, "clerk", 1, 2, outcome, attempt=attempt)

    over = '{"metrics":{"input_tokens":10,"output_tokens":20,"cost":0.00000005}}'
    steps = (
        model("1", 1),
        member("1.1", 1, '{"f":1}'),  # counted with the pause
        model("2", 2),
        member("2.1", 2),  # over, and its call not stored
        model("2.1/1", 2),
        member("2.2", 2),  # at work
        model("2.2/1", 2, cost=1),
        member("2.3", COPIED, '{"f":1,"run":"copied"}'),
        member("2.4", 2, '{"f":1}'),  # failed before it asked a model
    )
    record = RunRecord("r", 0, {step.place: step for step in steps}, attempt=1)
    ids = {place: record.run_of(place) for place in ("1.1", "2.1", "2.2", "2.4")}
    members = {
        ids["1.1"]: ("COMPLETED", over),
        ids["2.1"]: ("COMPLETED", over),
        ids["2.2"]: ("RUNNING", "{}"),
        ids["2.4"]: ("ERROR", '{"metrics":{}}'),
        "copied": ("COMPLETED", over),
    }
    record = RunRecord("r", 0, record.steps, members, attempt=1)

    # The answers 2, 2.1/1 and 2.2/1, and the last one of 2.1.
    assert record.sum_usage() == Usage(3 * 3 + 7, 3 * 4 + 16, cost_nano=10 + 10 + 1 + 40)


# --- Budgets -----------------------------------------------------------------------------------


def think_in_cents(prompt: Prompt) -> Any:
    """Look for one token, which is a cent, and answer for another."""
    done = any(message.role == "tool" for message in prompt.messages)
    calls = [] if done else [call("look", what="x")]
    return Says("Done." if done else "Let me look.", calls, usage=Usage(1))


def shop(cost_per_day: str = "0.02") -> Platform:
    """Return an agent in each of two databases; ada has so many dollars a day."""
    model = ScriptedModel([think_in_cents] * 99, id="cents")
    return Platform(
        databases=IN_MEMORY,
        agents=(
            Agent(id="clerk", model=model, tools=[look], history_runs=0),
            Agent(id="other", model=model, tools=[look], history_runs=0, database="second"),
        ),
        authorization=True,
        authorization_config=ISSUER.authorization(),
        limits=PlatformLimits(subjects={"ada": LimitOverrides(cost_per_day=cost_per_day)}),
        prices=Prices(models={"cents": TEN_DOLLARS}),
    )


@pytest.fixture
def client() -> Generator[Client]:
    """A client a minute before midnight, on behalf of ada."""
    start_us = NEW_YEAR_2026 + (DAY_SECONDS - 60) * 1_000_000
    with Client(shop, token=ADA, start_us=start_us) as client:
        yield client


def cost_of(client: Client, database: str = "main") -> Any:
    for level in client.get("/me").json()["limits"]:
        if (level["share"], level.get("database")) == ("cost", database):
            assert level["unit"] == "nano-usd"
            return level["used"], level["remaining"]
    raise AssertionError(database)


def test_a_run_may_spend_all_that_is_left_and_the_next_is_refused(client: Client) -> None:
    assert cost_of(client) == (0, 20_000_000)
    run = ask(client).json()
    assert (run["status"], run["metrics"]["cost"]) == ("COMPLETED", 0.02)
    assert cost_of(client) == (20_000_000, 0)

    refused = ask(client)
    assert (refused.status, refused.json()["error_code"]) == (429, "TOO_MANY_REQUESTS")
    assert "the share is 0.02 USD from midnight to midnight UTC" in refused.json()["detail"]
    assert refused.header("ratelimit-policy") == '"cost";q=20000000;qu="nano-usd";w=86400'
    made: Any = client.platform
    assert made.context.shares.refused == {"cost": 1}
    client.advance(60)
    assert cost_of(client) == (0, 20_000_000)
    assert ask(client).json()["status"] == "COMPLETED"


@pytest.mark.parametrize(
    ("limit", "status", "content"),
    [("0.02", "COMPLETED", "Done."), ("0.019999999", "ERROR", "Done."), ("0.01", "ERROR", None)],
)
def test_a_run_over_its_budget_ends_with_its_text(
    limit: str, status: str, content: str | None
) -> None:
    with Client(lambda: shop(limit), token=ADA) as client:
        run = ask(client).json()

    assert run["status"] == status
    assert run["content"] == (content or "Let me look.")
    if status == "ERROR":
        assert run["error_type"] == "budget"
        assert run["error_message"] == SENTENCE.replace("0.02", limit)


def test_one_callers_money_is_nobody_elses_and_each_database_has_its_own(client: Client) -> None:
    for _ in range(2):
        assert ask(client, token=BOB).json()["status"] == "COMPLETED"
    assert ask(client).json()["status"] == "COMPLETED"
    assert ask(client, "/agents/other/runs").json()["status"] == "COMPLETED"

    assert (cost_of(client), cost_of(client, "second")) == ((20_000_000, 0), (20_000_000, 0))
    assert [level["share"] for level in client.get("/me", token=BOB).json()["limits"]].count(
        "cost"
    ) == 0


def test_runs_side_by_side_share_what_is_left() -> None:
    forms = [{"message": "x", "stream": False, "session_id": name} for name in "st"]
    with Client(shop, token=ADA) as client:
        asked = [client.begin("POST", RUNS, form=form) for form in forms]
        runs = [one.response().json() for one in asked]

        # Each has spent a cent by the time that one of them is to be asked again.
        assert [run.get("error_type") for run in runs] == ["budget", "budget"]
        assert cost_of(client) == (20_000_000, 0)


def test_no_money_at_all_is_a_limit_too() -> None:
    with Client(lambda: shop("0"), token=ADA) as client:
        assert (ask(client).status, cost_of(client)) == (429, (0, 0))


def test_a_run_that_went_on_without_a_request_costs_what_it_had() -> None:
    run = ClaimedRun("ada", "s", "r", "agent", "a", "{}", 0, 1)
    journal = Journal("main", run, "n", 0, paid=5)

    assert journal.whole_cost == 5
    journal.pay(2)
    assert journal.whole_cost == 7
    journal.pay(MOST_NANO)
    assert journal.whole_cost == MOST_NANO
