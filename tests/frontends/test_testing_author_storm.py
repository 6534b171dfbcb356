"""The storm of an author's own test."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from attrs import define, field

from legation import Agent, Platform, Team, tool
from legation.config import InDoubt
from legation.models.conversation import ModelFailed, Prompt, Reply, ToolCall, ToolSpec
from legation.tools import Again
from legation_testing import (
    MODEL_FAULTS,
    Misuse,
    Point,
    Says,
    ScriptedModel,
    StormWorld,
    ToolStormReport,
    call,
    storm,
    try_storm,
)
from legation_testing.scripted_model import Step
from legation_testing.tool_storm.plans import Plan, draw_plan

ROOT: Final = Path(__file__).parents[2]

# --- a shop -------------------------------------------------------------------------------------


@tool(again="safe")
def search(kind: str) -> int:
    """Return how many there are."""
    return 7


@tool
def order(article: str) -> str:
    """Order an article."""
    return f"{article} is ordered."


def shop() -> Platform:
    """Return a shop whose model goes by what it has read, so that it goes on after a crash."""
    steps: list[Step] = [call("search", kind="pen"), call("order", article="pen"), "Here you are."]
    model = ScriptedModel(steps, by_prompt=True)
    return Platform(id="shop", agents=[Agent(id="shop", model=model, tools=[search, order])])


def buy(world: StormWorld) -> None:
    """Buy a pen; nothing is ordered twice."""
    world.run("shop", "a pen", session_id="s")
    assert world.carried_out("order") <= 1


@storm(shop, every=10)
def test_decorated_test_takes_no_fixture(world: StormWorld) -> None:
    buy(world)


@storm(shop, repeat="9")
def test_fixtures_stand_beside_the_world(
    world: StormWorld, record_property: Callable[[str, object], None]
) -> None:
    buy(world)
    record_property("crashed", world.crashed)


def test_sound_shop_stands_a_crash_at_each_point_pairs_and_seeds(
    figures: Callable[[str], None],
) -> None:
    report = try_storm(shop, buy, pairs=10, seeds=20)

    figures(f"the author's storm: {report}")
    ordered, searched = report.tools
    assert (report.pairs, report.seeds) == (10, 20)
    assert report.points > 35
    assert (ordered.again, searched.again) == ("never", "safe")
    assert set(ordered.times) == {0, 1}
    assert ordered.in_doubt > 0
    assert searched.most >= 2
    assert [str(one) for one in ordered.within] == ["killed before its result was known: in doubt"]
    assert [str(one) for one in searched.within] == [
        "killed before its result was known: called again"
    ]
    ends = report.ends
    failed = sum(ends.failed.values())
    assert ends.completed + ends.asked + ends.not_begun + failed == report.points + 30
    assert report.again > 0


CODE: Final = """
from tests.frontends.test_testing_author_storm import buy, shop
from legation_testing import try_storm
print(try_storm(shop, buy, every=7, pairs=3, seeds=6, models=["unknown_tool"]))
"""


def test_same_storm_gives_the_same_report_in_other_processes() -> None:
    said = {
        subprocess.run(
            [sys.executable, "-c", CODE],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "1")
    }

    assert len(said) == 1
    assert said.pop().startswith("shop: 6 points, 3 pairs, ")


# --- a till: a charge and a mail, with an await between -----------------------------------------


@define
class Bank:
    """The world outside of the process, which no crash undoes."""

    charged: list[str] = field(factory=list[str])
    mailed: list[str] = field(factory=list[str])
    cleaned: int = 0

    async def charge(self, key: str) -> None:
        """Take the money; the same key takes it once."""
        if key not in self.charged:
            self.charged.append(key)

    async def mail(self) -> None:
        """Send the receipt."""
        await trio.sleep(0.5)
        self.mailed.append("receipt")


BANK: Final = Bank()


def clear() -> None:
    """Let the test begin anew."""
    BANK.charged.clear()
    BANK.mailed.clear()
    BANK.cleaned = 0


async def pay(cents: int) -> str:
    """Charge, and send a receipt."""
    try:
        await BANK.charge(f"charge {len(BANK.charged)}")
        await BANK.mail()
    finally:
        BANK.cleaned += 1
    return f"{cents} charged."


async def pay_by_key(cents: int, idempotency_key: str) -> str:
    """Charge under the key, and send a receipt."""
    await BANK.charge(idempotency_key)
    await BANK.mail()
    return f"{cents} charged."


async def pay_without_the_key(cents: int, idempotency_key: str) -> str:
    """Take a key, and charge without it."""
    return await pay(cents)


def till(function: Callable[..., Any], again: Again, in_doubt: InDoubt = "ask") -> Platform:
    """Return a till that pays by `function`."""
    pays = tool(again=again, name="pay")(function)
    model = ScriptedModel([call("pay", cents=5), "Paid."], by_prompt=True)
    agents = [Agent(id="till", model=model, tools=[pays], in_doubt=in_doubt)]
    return Platform(id="till", agents=agents)


def settle(world: StormWorld) -> None:
    """Pay once; where nobody is asked, a receipt was sent for it."""
    clear()
    world.run("till", "5 cents")
    assert len(BANK.charged) <= 1
    if not world.in_doubt("pay"):
        assert len(BANK.charged) == len(BANK.mailed)


def test_tool_that_may_not_be_called_again_is_in_doubt_behind_each_await() -> None:
    report = try_storm(lambda: till(pay, "never"), settle)

    (paid,) = report.tools
    assert [str(one) for one in paid.within] == [
        "killed after its 1st await (Bank.charge): in doubt",
        "killed after its 2nd await (sleep): in doubt",
        "killed after its 3rd await (Bank.mail): in doubt",
        "killed before its result was known: in doubt",
    ]
    assert str(paid).startswith("pay (never)  once at")


def test_tool_that_uses_its_key_is_called_again_and_charges_once() -> None:
    def check(world: StormWorld) -> None:
        clear()
        world.run("till", "5 cents")
        assert len(BANK.charged) <= 1
        assert len(BANK.mailed) >= len(BANK.charged)

    report = try_storm(lambda: till(pay_by_key, "key"), check)

    (paid,) = report.tools
    assert str(paid.within[0]) == "killed after its 1st await (Bank.charge): called again"
    assert paid.most == 2


def test_killed_coroutine_runs_nothing_more_not_even_what_it_does_at_last() -> None:
    cleaned: list[tuple[list[str], int]] = []

    def check(world: StormWorld) -> None:
        settle(world)
        cleaned.append((list(BANK.mailed), BANK.cleaned))

    within = f"{find_call(lambda: till(pay, 'never'), settle)}.1"
    try_storm(lambda: till(pay, "never"), check, repeat=within)

    assert cleaned == [(["receipt"], 1), ([], 0)]


def find_call(make: Callable[[], Platform], test: Callable[[StormWorld], object]) -> int:
    """Return the number of the effect that calls the first function."""
    points: list[Point] = []

    def look(world: StormWorld) -> None:
        test(world)
        points.extend(world.find_points())

    try_storm(make, look, crashes="none")
    return next(point.effect for point in points if point.ended)


PLANTED: Final[dict[str, tuple[Callable[..., Any], Again, InDoubt, str]]] = {
    "a safe tool that is not": (pay, "safe", "ask", "after its 1st await (Bank.charge)"),
    "money lost between two awaits": (pay, "never", "tell", "after its 1st await (Bank.charge)"),
    "a key that is not used": (pay_without_the_key, "key", "ask", "after its 1st await (Bank"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_fault_of_a_tool_is_found_with_its_point(name: str) -> None:
    function, again, in_doubt, where = PLANTED[name]

    with pytest.raises(AssertionError) as caught:
        try_storm(lambda: till(function, again, in_doubt), settle)

    crash, repeat = caught.value.__notes__[-2:]
    assert where in crash
    assert repeat.startswith('storm: repeat it with @storm(…, repeat="')
    plan = repeat.split('"')[1]
    with pytest.raises(AssertionError) as again_caught:
        try_storm(lambda: till(function, again, in_doubt), settle, repeat=plan)
    assert again_caught.value.__notes__[-2:] == [crash, repeat]


def test_fault_that_takes_a_pair_of_crashes_is_found_by_pairs_and_by_seeds() -> None:
    def check(world: StormWorld) -> None:
        world.run("shop", "a pen", session_id="s")
        assert world.carried_out("search") <= 1 or len(world.crashed) < 2

    assert try_storm(shop, check, every=3).points > 10
    with pytest.raises(AssertionError) as by_pair:
        try_storm(shop, check, crashes="none", pairs=600)
    assert len(by_pair.value.__notes__[-2].split("; ")) == 2
    with pytest.raises(AssertionError) as by_seed:
        try_storm(shop, check, crashes="none", seeds=range(100, 150))
    assert "order:" in by_seed.value.__notes__[-1]


# --- other runs ---------------------------------------------------------------------------------


@tool(requires_confirmation=True)
def book(room: int) -> str:
    """Book a room."""
    return f"Room {room} is booked."


def hotel() -> Platform:
    """Return a hotel: a desk that asks before it books, and a team of it."""
    desk = ScriptedModel([call("book", room=7), "It is booked."], by_prompt=True)
    task = call("delegate_task_to_member", member_id="desk", task="Book room 7")
    leader = ScriptedModel([task, "It is done."], by_prompt=True)
    return Platform(
        id="hotel",
        agents=[Agent(id="desk", model=desk, tools=[book])],
        teams=[Team(id="hotel", model=leader, members=["desk"])],
    )


def approve(world: StormWorld, run: Any) -> None:
    """Answer a run that waits for a person once; a doubt waits on."""
    if run is not None and run.status == "PAUSED":
        gone_on = world.go_on(run, confirmed=True)
        assert gone_on.status != "PAUSED" or world.in_doubt("book") == 1
    assert world.carried_out("book") <= 1


def test_person_who_approves_is_heard_wherever_the_process_dies() -> None:
    report = try_storm(
        hotel, lambda world: approve(world, world.run("desk", "Room 7")), pairs=5, seeds=10
    )

    (booked,) = report.tools
    assert booked.within[0].outcomes == {"in doubt": 1}
    assert report.ends.completed > report.ends.asked


def test_team_whose_member_asks_stands_a_storm() -> None:
    report = try_storm(
        hotel, lambda world: approve(world, world.run_team("hotel", "Room 7")), every=4, seeds=5
    )

    assert report.tools[0].times[1] > 0


def test_streamed_run_ends_across_crashes() -> None:
    def follow(world: StormWorld) -> None:
        run = world.stream("shop", "a pen", session_id="s")
        assert run is None or run.status in ("COMPLETED", "PAUSED")
        assert world.carried_out("order") <= 1
        assert world.completed or world.in_doubt("order") or world.not_begun

    assert try_storm(shop, follow, every=4).ends.completed > 4


def test_agent_that_is_a_function_is_reported_like_a_tool() -> None:
    async def answer(message: str) -> str:
        await trio.sleep(1)
        return message

    def make() -> Platform:
        return Platform(agents=[Agent(id="worker", run=answer)])

    (worker,) = try_storm(make, lambda world: world.run("worker", "hello")).tools
    assert str(worker.within[0]) == "killed after its 1st await (sleep): in doubt"


def test_model_is_replaced_in_every_process() -> None:
    def speak(world: StormWorld) -> None:
        model = ScriptedModel([call("order", article="ink"), "Ink."], by_prompt=True)
        with world.override(model=model, agent="shop"):
            run = world.run("shop", "ink")
        assert run is None or run.status == "PAUSED" or run.content == "Ink."

    assert try_storm(shop, speak, every=3).tools[1].times == {0: 10}


def test_platform_of_a_module_is_made_anew_for_each_life() -> None:
    assert try_storm(shop(), buy, every=10).points > 3


# --- stalls -------------------------------------------------------------------------------------


def test_process_that_stalls_beyond_its_lease_meets_its_successor() -> None:
    seen: list[list[str]] = []

    def check(world: StormWorld) -> None:
        buy(world)
        seen.append(world.crashed)

    report = try_storm(shop, check, repeat=f"{find_call(shop, buy)}~100")

    assert seen[0] == []
    assert seen[1][0].endswith("before search was called")
    assert seen[1][0].startswith("stalled at effect")
    assert report.tools[1].times == {2: 1}
    assert report.ends.completed + report.ends.asked == 1


# --- what models do wrong -----------------------------------------------------------------------

PAGE: Final = (ROOT / "docs/howto/storm.md").read_text("utf-8")
PROMPT: Final = Prompt(
    (),
    (ToolSpec("order", "", {"type": "object", "required": ["article"]}),),
    output_schema={"type": "object"},
)
CALLS: Final = Reply("", calls=(ToolCall("c1", "order", '{"article":"pen"}'),))
TEXT: Final = Reply('{"a":1}')


@pytest.mark.parametrize("name", MODEL_FAULTS)
def test_fault_of_a_model_changes_an_answer(name: str) -> None:
    fault = MODEL_FAULTS[name]
    changed = [fault.change(PROMPT, reply) for reply in (CALLS, TEXT)]

    assert any(isinstance(one, ModelFailed) or one not in (None, CALLS, TEXT) for one in changed)
    assert f"| `{name}` | {fault.summary} |" in PAGE


def test_catalogue_of_what_models_do_wrong_ends_every_run() -> None:
    def check(world: StormWorld) -> None:
        run = world.run("shop", "a pen", session_id="s")
        assert run is not None
        assert world.carried_out("order") <= world.wanted("order")

    report = try_storm(shop, check, crashes="none", models="all")

    assert len(MODEL_FAULTS) >= 12
    assert report.faults > 40
    assert report.ends.failed["model_refused"] >= 3
    assert report.ends.completed > 20


def test_shaped_answer_is_asked_for_again_where_it_has_another_shape() -> None:
    def make() -> Platform:
        schema = {"type": "object", "properties": {"room": {"type": "integer"}}}
        agent = Agent(
            id="shaped",
            model=ScriptedModel(['{"room":7}'], by_prompt=True),
            output_schema={**schema, "required": ["room"], "additionalProperties": False},
        )
        return Platform(agents=[agent])

    report = try_storm(
        make,
        lambda world: world.run("shaped", "hello"),
        crashes="none",
        models=["wrong_shape", "no_json"],
    )

    assert (report.faults, report.ends.completed) == (2, 2)


def test_test_that_does_not_expect_a_fault_of_the_model_is_told_which() -> None:
    with pytest.raises(AssertionError) as caught:
        try_storm(shop, buy, crashes="none", models=["same_call_twice"])

    assert caught.value.__notes__[-1].endswith('repeat="same_call_twice@2")')


def test_seeds_draw_no_call_that_the_model_did_not_ask_for_unless_told() -> None:
    chosen = [one for one in MODEL_FAULTS.values() if not one.wants_more]
    drawn = [draw_plan(seed, 50, 3, chosen) for seed in range(300)]

    names = {name for plan in drawn for _, name in plan.faults}
    assert names == {one.name for one in chosen}
    assert {point.stall_seconds > 0 for plan in drawn for point in plan.points} == {True, False}
    assert {point.within for plan in drawn for point in plan.points} == {True, False}


def test_slow_model_is_waited_for() -> None:
    def make() -> Platform:
        model = ScriptedModel([Says("Yes.", after_seconds=20)], by_prompt=True)
        return Platform(agents=[Agent(id="slow", model=model)])

    report = try_storm(make, lambda world: world.run("slow", "hello"), every=20)

    assert report.seconds >= 20
    assert report.slowest in ("1", "1.1")


# --- plans as text, and what is refused ---------------------------------------------------------


@pytest.mark.parametrize("text", ["", "84", "84.1 12", "84.end 3~75 unknown_tool@2 order:7"])
def test_plan_is_read_as_it_is_written(text: str) -> None:
    assert str(Plan.read(text)) == text


@pytest.mark.parametrize("text", ["0", "84.", "84.x", "fly@2", "unknown_tool@", "84~", "order:x"])
def test_plan_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(Misuse):
        Plan.read(text)


def test_report_without_a_trial_says_so() -> None:
    report = try_storm(shop, buy, crashes="none")

    assert str(report).startswith("shop: no trial: all ended; 0 completed")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"seeds": -1}, "not between 0"),
        ({"pairs": 1_000_000}, "not between 0"),
        ({"every": 0}, "not between 1"),
        ({"crashes": "all"}, "neither 'each' nor 'none'"),
        ({"repeat": "x"}, "no point"),
        ({"models": "fly"}, "by the name 'fly'"),
    ],
)
def test_storm_that_cannot_be_is_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Misuse, match=sentence):
        try_storm(shop, buy, **options)


def test_unknown_tool_idle_test_and_platform_that_comes_again_are_refused() -> None:
    def look(world: StormWorld) -> None:
        world.carried_out("ordre")

    with pytest.raises(Misuse, match="there are: order, search"):
        try_storm(shop, look)
    with pytest.raises(Misuse, match="ran no agent"):
        try_storm(shop, lambda world: None)
    with pytest.raises(Misuse, match="not 7"):
        try_storm(7, buy)  # type: ignore[arg-type]
    platform = shop()
    with pytest.raises(Misuse, match="returned the killed one again"):
        try_storm(lambda: platform, buy)


def test_report_is_kept_with_the_function() -> None:
    stand = storm(shop, crashes="none", seeds=[3])(buy)
    stand()

    report = vars(stand)["storm_report"]
    assert isinstance(report, ToolStormReport)
    assert report.seeds == 1
