"""Guards of a run: what they change, refuse and ask, and that no crash asks them once more."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest
from attrs import define, evolve, field

from legation import (
    Agent,
    AskPerson,
    Guard,
    Guarded,
    Judge,
    Length,
    Platform,
    Redact,
    Refuse,
    Run,
    Team,
    ToolAccess,
    tool,
)
from legation.effects import CallFunction, Program, Raised, TimedOut, Yielding
from legation.guards import GuardLike
from legation.models.conversation import Listener, Message, Prompt, Reply, Thought, ToolCall, Usage
from legation.runs.agent_turn import Answered, Outcome, Turn, Waits
from legation.runs.approvals import Reply as PersonsReply
from legation.runs.approvals import apply_replies
from legation.runs.endings import conclude
from legation.runs.event_writer import EventWriter, Journal
from legation.runs.events import EventOrigin
from legation.runs.guarding import GuardFailed, GuardRefused
from legation.runs.output import RunSummary
from legation.runs.payloads import find_waiting, messages, requirements
from legation.runs.turn import turn_of
from legation.runs.turn_state import TurnState, dump
from legation.shares.budgets import Budgets, Spending
from legation.store.run_rows import ClaimedRun

from .turn_kit import World, last_words

REJECTED: Final = "Function call was rejected by the user"
SEEN: Final[list[Guarded]] = []


@define(eq=False)
class Model:
    """Answers with the replies of `script`, by how often it has answered; keeps the prompts."""

    script: tuple[Reply, ...]
    id: str = "m"
    name: str = "Model"
    provider: str = "Legation"
    prompts: list[Prompt] = field(factory=list[Prompt])

    def respond(self, prompt: Prompt, listener: Listener) -> Program[Reply]:
        yield from listener.settle()
        self.prompts.append(prompt)
        number = sum(one.role == "assistant" for one in prompt.messages)
        reply = self.script[min(number, len(self.script) - 1)]
        listener.listen()
        listener.think("hm")
        listener.hear(reply.content)
        return reply


@tool(again="safe")
def look(what: str) -> str:
    """Look."""
    return f"saw {what}"


@tool(again="safe")
def erase(what: str) -> str:
    """Erase."""
    return f"erased {what}"


def call(name: str, what: str = "it", call_id: str = "c1") -> ToolCall:
    return ToolCall(call_id, name, json.dumps({"what": what}))


def said(text: str, *calls: ToolCall) -> Reply:
    return Reply(text, Usage(10, 2), calls, reasoning="secret thoughts")


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    SEEN.clear()


def watch(guarded: Guarded) -> None:
    SEEN.append(guarded)


def host(model: Model, *guards: GuardLike, **more: Any) -> Platform:
    return Platform(agents=[Agent(id="a", model=model, tools=[look, erase], guards=guards, **more)])


@define(eq=False)
class Ran:
    """A run in a world: its turn, and the last outcome."""

    world: World
    platform: Platform
    kind: str = "agent"
    name: str = "a"
    writer: EventWriter | None = None
    spending: Spending | None = None

    def go(self, record: bool = False) -> Outcome:
        component = self.platform.context.registry.components(self.kind)[self.name]
        world = self.world
        run = ClaimedRun(
            "o", "s", "r", self.kind, self.name, json.dumps(world.asked), 0, world.attempt, 1,
            len(world.events),
        )  # fmt: skip
        journal = Journal("main", run, "n", world.now_us)
        journal.given.asked = world.asked
        journal.spending = self.spending
        self.writer = EventWriter(journal, EventOrigin(run, self.name), streamed=True)
        known = world.record() if record and world.events else None
        turn = world.drive(turn_of(component, "main", run, world.asked, self.writer, known))
        world.turn = turn
        outcome: Outcome = world.drive(turn.take())
        return outcome

    @property
    def state(self) -> TurnState:
        assert self.world.turn is not None
        return self.world.turn.state

    def settle(self) -> list[tuple[str, dict[str, Any]]]:
        assert self.writer is not None
        self.world.drive(self.writer.settle())
        return self.world.events

    def answer(self, *, confirmed: bool, note: str | None = None) -> None:
        """Store the pause, and the same answer to all that waits."""
        self.settle()
        replies = [
            PersonsReply(c.call.id, None, None, confirmed, note, None)
            for c, _ in find_waiting(self.state)
        ]
        answered = apply_replies(self.state, replies, "r")
        assert isinstance(answered, TurnState), answered
        world = self.world
        turn = json.loads(json.dumps(dump(answered)))
        world.asked = {**world.asked, "turn": turn}
        world.paused_at, world.attempt = world.attempt, world.attempt + 1


def run(model: Model, *guards: GuardLike, message: str = "go", **asked: Any) -> Ran:
    world = World(asked={"message": message, "stream": True, **asked})
    return Ran(world, host(model, *guards))


def names(ran: Ran) -> list[str]:
    return [name for name, _ in ran.settle()]


def outcome_of(ran: Ran, place: str) -> dict[str, Any]:
    text = ran.world.steps[place].outcome
    assert text is not None
    found: dict[str, Any] = json.loads(text)
    return found


# --- Before a run ------------------------------------------------------------------------------


def test_a_refusal_before_a_run_asks_no_model() -> None:
    model = Model((said("hello"),))
    ran = run(model, Length(3), Guard(before_run=watch), message="much too long")

    with pytest.raises(GuardRefused) as caught:
        ran.go()

    assert caught.value.sentence == (
        "The message is too long: it has 13 characters, and no more than 3 are allowed"
    )
    assert caught.value.guard == "length"
    assert (model.prompts, SEEN) == ([], [])
    assert names(ran) == ["RunStarted", "PreHookStarted", "PreHookCompleted"]


def test_the_model_and_the_history_have_the_message_as_a_guard_left_it() -> None:
    def greet(guarded: Guarded) -> str:
        return f"{guarded.text}, please"

    model = Model((said("hello"),))
    ran = run(model, Redact(words=["Bob"], of="input"), Guard(before_run=greet), message="ask bob")

    assert ran.go() == Answered("hello")

    assert model.prompts[0].messages[0].content == "ask [redacted], please"
    assert messages("r", ran.state, "ask bob")[0]["content"] == "ask [redacted], please"
    assert outcome_of(ran, "0") == {
        "f": 2,
        "definition": outcome_of(ran, "0")["definition"],
        "guards": [["before_run", "redact", "changed"], ["before_run", "greet", "changed"]],
        "message": "ask [redacted], please",
    }


def test_a_function_has_the_run_and_the_scopes() -> None:
    runs: list[Run] = []

    def check(run: Run, about: Guarded) -> None:
        runs.append(run)
        SEEN.append(about)

    ran = run(Model((said("hello"),)), Guard(before_run=check), scopes=["x:read"])

    ran.go()

    assert runs[0].run_id == "r"
    assert [Guarded("before_run", "go", scopes=("x:read",))] == SEEN


def test_a_message_that_passes_leaves_the_start_as_it_is() -> None:
    ran = run(Model((said("hello"),)), Length(10), Redact(words="x", of="input"))

    ran.go()

    assert outcome_of(ran, "0").keys() == {"f", "definition"}


# --- Before and after an answer -----------------------------------------------------------------


def test_a_guard_changes_what_the_model_reads_last() -> None:
    def shorten(guarded: Guarded) -> str | None:
        return "short" if guarded.text.startswith("saw") else None

    model = Model((said("", call("look")), said("done")))
    ran = run(model, Guard(before_model=shorten))

    assert ran.go() == Answered("done")

    assert [one.content for one in model.prompts[1].messages] == ["go", "", "short"]
    assert outcome_of(ran, "1")["guards"] == [["before_model", "shorten", "passed"]]


def test_the_first_message_is_changed_for_the_history_too() -> None:
    ran = run(Model((said("", call("look")), said("done"))), Redact(words="go", of="prompt"))

    ran.go()

    assert outcome_of(ran, "1")["prompt"] == "[redacted]"
    assert messages("r", ran.state, "go")[0]["content"] == "[redacted]"


def test_a_refusal_before_an_answer_asks_no_model() -> None:
    model = Model((said("hello"),))

    with pytest.raises(GuardRefused, match="message is too long"):
        run(model, Length(1, of="prompt")).go()

    assert model.prompts == []


def test_an_answer_is_held_back_until_it_is_judged() -> None:
    ran = run(Model((said("my key is sk-abcdefghijklmnop"),)), Redact(patterns="key"))

    assert ran.go() == Answered("my key is [key]")

    events = ran.settle()
    heard = [data for name, data in events if name == "RunContent"]
    assert [one["content"] for one in heard] == ["my key is [key]"]
    assert "sk-abc" not in json.dumps(events)
    assert "secret thoughts" not in json.dumps(events)
    assert [name for name, _ in events if "Hook" in name] == [
        "PostHookStarted",
        "PostHookCompleted",
    ]
    assert ran.state.usage == Usage(10, 2)


def test_nothing_is_left_of_an_answer_that_is_refused_but_its_cost() -> None:
    ran = run(Model((said("a secret", call("erase")),)), Length(3, of="output"))

    with pytest.raises(GuardRefused, match="answer is too long"):
        ran.go()

    assert ran.world.executed == []
    assert ran.state.usage == Usage(10, 2)
    assert ran.writer is not None
    assert ran.writer.journal.tokens == 12
    assert "secret" not in json.dumps([ran.settle(), dump(ran.state)])


def test_what_stands_behind_a_thought_stays_within_a_shorter_answer() -> None:
    reply = evolve(said("a long answer", call("look")), thoughts=(Thought("m", "{}", 13),))

    def cut(guarded: Guarded) -> str:
        return guarded.text[:2]

    ran = run(Model((reply, said("ok"))), Guard(after_model=cut))

    ran.go()

    assert ran.state.said[1].message.thoughts == (Thought("m", "{}", 2),)


def ask_about(guarded: Guarded) -> AskPerson | None:
    return AskPerson("It names a price.") if "price" in guarded.text else None


@pytest.mark.parametrize("crash", [False, True])
def test_a_person_approves_an_answer(crash: bool) -> None:
    ran = run(Model((said("the price is 5"),)), Guard(after_model=ask_about))

    assert ran.go() == Waits()

    (waiting,) = requirements("r", ran.state)
    assert waiting["tool_execution"]["tool_name"] == "approve_answer"
    assert waiting["tool_execution"]["tool_args"] == {"answer": "the price is 5"}
    assert waiting["tool_execution"]["confirmation_reason"] == "It names a price."
    assert "RunContent" not in names(ran)
    ran.answer(confirmed=True)
    if crash:
        ran.go()
        ran = Ran(ran.world.after(ran.world.batches[-1]), ran.platform)
    assert ran.go(record=crash) == Answered("the price is 5")


def test_an_answer_waits_at_the_last_round_too() -> None:
    model = Model((said("the price is 5"),))
    ran = run(model)
    ran.platform = host(model, Guard(after_model=ask_about), max_rounds=1)

    assert ran.go() == Waits()
    ran.answer(confirmed=True)
    assert ran.go() == Answered("the price is 5")


def test_an_answer_that_is_not_approved_is_made_once_more() -> None:
    model = Model((said("the price is 5"), said("ask the desk")))
    ran = run(model, Guard(after_model=ask_about))
    ran.go()
    ran.answer(confirmed=False, note="too cheap")

    assert ran.go() == Answered("ask the desk")

    assert [(one.role, one.content) for one in model.prompts[1].messages] == [
        ("user", "go"),
        ("assistant", "the price is 5"),
        (
            "user",
            f"This answer was not sent: {REJECTED}: too cheap. Answer again.",
        ),
    ]


def test_an_approved_answer_is_only_that_for_later_runs() -> None:
    model = Model((said("the price is 5"),))
    ran = run(model, Guard(after_model=ask_about))
    ran.go()
    ran.answer(confirmed=True)
    ran.go()
    turn = ran.world.turn
    assert isinstance(turn, Turn)
    assert turn.guards is not None

    rendered = turn.guards.render(ran.state.with_results(0).messages)

    assert [(one.role, one.content) for one in rendered] == [
        ("user", "go"),
        ("assistant", "the price is 5"),
    ]


def test_the_reason_stands_in_the_sentence_of_the_pause() -> None:
    ran = run(Model((said("the price is 5"),)), Guard(after_model=ask_about))
    outcome = ran.go()
    assert ran.writer is not None
    summary = RunSummary(ran.writer.origin.run, "a", None, ran.state)

    end = ran.world.drive(conclude(ran.writer, summary, outcome))

    assert end.output["content"] == (
        "I have tools to execute, but I need confirmation. It names a price."
    )


def test_a_person_is_asked_about_the_calls_beside_a_text() -> None:
    ran = run(Model((said("price it", call("look")), said("done"))), Guard(after_model=ask_about))

    assert ran.go() == Waits()
    ran.answer(confirmed=True)

    assert ran.go() == Answered("done")
    assert ran.world.executed == ["ask_about", "look", "ask_about"]


def test_an_answer_too_long_for_a_person_is_refused() -> None:
    ran = run(Model((said("price" * 60_000),)), Guard(after_model=ask_about))

    with pytest.raises(GuardRefused, match="too long to be shown"):
        ran.go()


def test_a_model_cannot_approve_its_own_answer() -> None:
    model = Model((said("", ToolCall("c", "approve_answer", '{"answer":"x"}')), said("no")))
    ran = run(model, Guard(after_model=watch))

    assert ran.go() == Answered("no")
    assert ran.state.calls[0].failed


# --- Tools ---------------------------------------------------------------------------------------


def test_a_refused_call_is_never_begun_and_the_model_reads_why() -> None:
    model = Model((said("", call("erase")), said("sorry")))
    ran = run(model, ToolAccess(allow={"*": ["look"], "admin": ["*"]}))

    assert ran.go() == Answered("sorry")

    assert ran.world.executed == []
    assert model.prompts[1].messages[-1].content == (
        "The tool erase may not be called for this caller"
    )
    assert outcome_of(ran, "1")["guards"] == [
        ["before_tool", "tool_access", "refused", 1, ran.state.calls[0].result]
    ]
    assert names(ran).count("ToolCallError") == 1


def test_another_caller_may_call_it() -> None:
    model = Model((said("", call("erase")), said("gone")))
    ran = run(model, ToolAccess(allow={"*": ["look"], "admin": ["*"]}), scopes=["admin"])

    ran.go()

    assert ran.world.executed == ["erase"]


def test_a_guard_changes_arguments_for_the_tool_and_for_the_model() -> None:
    def swap(guarded: Guarded) -> Mapping[str, Any]:
        return {**guarded.arguments, "what": "that"}

    model = Model((said("", call("look")), said("done")))
    ran = run(model, Guard(before_tool=swap))

    ran.go()

    assert model.prompts[1].messages[-1].content == "saw that"
    assert model.prompts[1].messages[-2].calls[0].arguments == '{"what":"that"}'


def test_a_person_is_asked_about_a_call() -> None:
    def ask(guarded: Guarded) -> AskPerson | None:
        return AskPerson("It erases.") if guarded.tool == "erase" else None

    two = said("", call("look"), call("erase", call_id="c2"))
    ran = run(Model((two, said("done"))), Guard(before_tool=ask))

    assert ran.go() == Waits()

    assert ran.world.executed == ["ask", "ask", "look"]
    (waiting,) = requirements("r", ran.state)
    assert waiting["tool_execution"]["confirmation_reason"] == "It erases."
    ran.answer(confirmed=True)
    assert ran.go() == Answered("done")


def test_arguments_that_are_no_json_are_no_matter_of_a_guard() -> None:
    bad = said("", ToolCall("c", "look", "{"))
    ran = run(Model((bad, said("done"))), Guard(before_tool=watch))

    assert ran.go() == Answered("done")
    assert SEEN == []


def test_a_result_is_changed_or_refused_before_it_is_stored() -> None:
    two = said("", call("look", "4111 1111 1111 1111"), call("erase", "much", "c2"))
    model = Model((two, said("done")))
    ran = run(model, Redact(patterns="card", of="result"), Length(10, of="result"))

    ran.go()

    results = [one.content for one in model.prompts[1].messages[-2:]]
    assert results == [
        "saw [card]",
        "The result is too long: it has 11 characters, and no more than 10 are allowed",
    ]
    assert outcome_of(ran, "1.1") == {"f": 1, "result": "saw [card]"}
    assert outcome_of(ran, "1.2")["failed"]


# --- A second model ------------------------------------------------------------------------------


def verdict(allowed: bool, reason: str = "") -> Reply:
    return Reply(json.dumps({"allowed": allowed, "reason": reason}), Usage(5, 1))


def test_a_judge_is_asked_once_and_counted() -> None:
    judge = Model((verdict(True),))
    model = Model((said("hello"),))
    ran = run(model, Judge(model=judge, instructions="No rudeness.", of=("input", "output")))

    assert ran.go() == Answered("hello")

    first = judge.prompts[0].messages
    assert first[0].content.startswith("No rudeness.\n\nJudge the text")
    assert first[1] == Message("user", "go")
    assert [one.messages[1].content for one in judge.prompts] == ["go", "hello"]
    assert ran.state.usage == Usage(20, 4)
    assert ran.writer is not None
    assert ran.writer.journal.tokens == 24
    assert outcome_of(ran, "0")["usage"] == [5, 1, 0, 0, 0]
    assert ran.world.record().sum_usage().total_tokens == 6


def test_a_judge_before_a_run_spends_the_tokens_of_the_day() -> None:
    judge = Judge(model=Model((verdict(False),)), instructions="x", of="input")
    ran = run(Model((said("hello"),)), judge)
    ran.spending = Budgets().enter("main", "ann", 1_000, 0, 0)

    with pytest.raises(GuardRefused):
        ran.go()

    assert ran.spending.count_left(0) == 994


@pytest.mark.parametrize(
    ("answer", "sentence", "wanted"),
    [
        (verdict(False, "It is rude."), None, "It is rude."),
        (verdict(False, "It is rude."), "Be polite.", "Be polite."),
        (verdict(False), None, "It is not allowed by the rules of this agent"),
        (Reply("yes"), None, "The judge gave no verdict that can be read"),
    ],
)
def test_a_judge_refuses(answer: Reply, sentence: str | None, wanted: str) -> None:
    judge = Judge(model=Model((answer,)), instructions="x", of="input", sentence=sentence)
    model = Model((said("hello"),))

    with pytest.raises(GuardRefused) as caught:
        run(model, judge).go()

    assert caught.value.sentence == wanted
    assert model.prompts == []


# --- Functions that are no guards ----------------------------------------------------------------


def test_what_a_function_returns_must_be_a_verdict_of_its_moment() -> None:
    for moment, value, words in (
        ("before_run", 5, "type int"),
        ("before_run", AskPerson("?"), "asked for a person before_run"),
        ("after_tool", AskPerson("?"), "asked for a person after_tool"),
        ("before_tool", "text", "type str"),
        ("before_tool", {"a": object()}, "no JSON"),
        ("before_tool", {"a": "x" * 300_000}, "no JSON"),
        ("after_model", "x" * 1_100_000, "more than"),
    ):
        function: dict[str, Any] = {moment: lambda guarded, value=value: value}
        guard = Guard(**function)
        ran = run(Model((said("", call("look")), said("done"))), guard)

        with pytest.raises(GuardFailed, match=words):
            ran.go()


def refuse(guarded: Guarded) -> Refuse:
    return Refuse("")


def test_a_function_may_refuse_without_a_sentence() -> None:
    with pytest.raises(GuardRefused, match="not allowed by the rules"):
        run(Model((said("x"),)), Guard(before_run=refuse)).go()


def write(guarded: Guarded, run: Run) -> None:
    run.state["seen"] = True


def write_nonsense(guarded: Guarded, run: Run) -> None:
    run.state["seen"] = object()


@pytest.mark.parametrize("guard", [write, write_nonsense])
def test_a_guard_writes_no_state(guard: Callable[..., Any]) -> None:
    with pytest.raises(GuardFailed, match="wrote to the state"):
        run(Model((said("x"),)), Guard(before_run=guard)).go()


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (TimedOut(), GuardFailed),
        (Yielding(7), GuardFailed),
        (Raised(ValueError("no")), ValueError),
    ],
)
def test_a_function_without_a_verdict_ends_the_run(answer: Any, error: type[Exception]) -> None:
    class Odd(World):
        def _perform(self, effect: Any) -> Any:
            if type(effect).__name__ == "CloseStream":
                return None
            return answer if isinstance(effect, CallFunction) else super()._perform(effect)

    world = Odd(asked={"message": "go", "stream": True})
    ran = Ran(world, host(Model((said("x"),)), Guard(before_run=watch)))

    with pytest.raises(error):
        ran.go()


# --- Crashes -------------------------------------------------------------------------------------


def count(guarded: Guarded) -> None:
    SEEN.append(guarded)


def polite(guarded: Guarded) -> str:
    SEEN.append(guarded)
    return f"{guarded.text.removesuffix('!')}!"


def rename(guarded: Guarded) -> Mapping[str, Any]:
    SEEN.append(guarded)
    return {**guarded.arguments, "what": "renamed"}


EVERYWHERE = (
    Guard(before_run=polite, before_model=count, after_model=polite),
    Guard(before_tool=rename, after_tool=polite),
    Redact(words="secret", of=("input", "prompt", "output", "arguments", "result")),
)


def test_no_crash_asks_a_guard_again_whose_step_is_stored() -> None:
    """Behind each batch the run goes on in a new process, to the very same end."""
    script = (said("let me see", call("look", "a secret")), said("", call("erase")), said("done"))
    first = run(Model(script), *EVERYWHERE, message="a secret wish")
    assert first.go() == Answered("done!")
    first.settle()
    end, asked = last_words(first.state), len(SEEN)

    for batch in first.world.batches[:-1]:
        SEEN.clear()
        later = Ran(first.world.after(batch), first.platform)
        known = [json.loads(step.outcome or "{}") for step in batch.steps.values()]

        assert later.go(record=True) == Answered("done!")

        assert last_words(later.state) == end
        assert later.state.message == "a [redacted] wish!"
        done = sum(len(one.get("guards", ())) for one in known)
        assert len(SEEN) < asked or not done
        if "0" in batch.steps:
            assert "before_run" not in [one.at for one in SEEN]
        moments = [one.at for one in SEEN if one.tool == "look"]
        if batch.steps.get("1") is not None:
            assert "before_tool" not in moments
        if (step := batch.steps.get("1.1")) is not None and step.outcome is not None:
            assert "after_tool" not in moments


def test_the_answer_is_stored_with_the_verdict_before_its_tool_begins() -> None:
    ran = run(Model((said("", call("look")), said("done"))), Guard(before_tool=rename))
    ran.go()

    begun = next(batch for batch in ran.world.batches if "1.1" in batch.steps)

    assert json.loads(begun.steps["1"].outcome or "")["guards"] == [
        ["before_tool", "rename", "changed"]
    ]


# --- Teams ---------------------------------------------------------------------------------------


def team(mode: Any, leader: Model, member: Model, of_leader: Any = (), of_member: Any = ()) -> Ran:
    platform = Platform(
        agents=[Agent(id="m", model=member, tools=[look], guards=of_member)],
        teams=[Team(id="t", mode=mode, members=["m"], model=leader, guards=of_leader)],
    )
    world = World(asked={"message": "go", "stream": True})
    return Ran(world, platform, "team", "t")


def task(text: str) -> ToolCall:
    arguments = json.dumps({"member_id": "m", "task": text})
    return ToolCall("d1", "delegate_task_to_member", arguments)


def test_a_leader_sees_a_task_as_a_call_and_may_change_it() -> None:
    member = Model((said("fine"),))
    ran = team(
        "coordinate",
        Model((said("", task("call Bob")), said("done"))),
        member,
        [Redact(words="bob", of="arguments"), Redact(words="fine", of="result")],
    )

    assert ran.go() == Answered("done")

    assert member.prompts[0].messages[0].content == "call [redacted]"
    assert ran.state.calls[0].result == "[redacted]"


def test_a_member_has_guards_of_its_own() -> None:
    leader = Model((said("", task("call Bob")), said("done")))
    member = Model((said("fine"),))
    ran = team("coordinate", leader, member, of_member=[Length(3)])

    assert ran.go() == Answered("done")

    assert member.prompts == []
    assert ran.state.calls[0].failed
    assert "too long" in (ran.state.calls[0].result or "")


def test_a_member_goes_on_with_the_message_that_its_guards_left() -> None:
    leader = Model((said("", task("call Bob")), said("done")))
    guards = [
        Redact(words="bob", of="input"),
        Judge(model=Model((verdict(True),)), instructions="x", of="input"),
    ]
    member = Model((said("", call("look")), said("fine")))
    ran = team("coordinate", leader, member, of_member=guards)
    assert ran.go() == Answered("done")
    ran.settle()
    end = last_words(ran.state)

    for batch in ran.world.batches[:-1]:
        later = Ran(ran.world.after(batch), ran.platform, "team", "t")
        assert later.go(record=True) == Answered("done")
        assert last_words(later.state) == end
    assert {one.messages[0].content for one in member.prompts} == {"call [redacted]"}


def test_all_members_are_given_the_message_as_the_guards_left_it() -> None:
    member = Model((said("fine"),))
    ran = team("collaborate", Model((said("done"),)), member, [Redact(words="go", of="input")])

    assert ran.go() == Answered("done")
    assert member.prompts[0].messages[0].content == "[redacted]"


def always_ask(guarded: Guarded) -> AskPerson | None:
    return AskPerson("?") if guarded.text else None


def test_the_answer_of_a_member_that_is_the_teams_is_judged() -> None:
    leader, member = Model((said("", task("x")),)), Model((said("Bob is here"),))

    ran = team("route", leader, member, [Redact(words="bob")])
    assert ran.go() == Answered("[redacted] is here")

    with pytest.raises(GuardRefused):
        team("route", leader, member, [Length(3, of="output")]).go()
    with pytest.raises(GuardFailed, match="answer of a member"):
        team("route", leader, member, [Guard(after_model=always_ask)]).go()
    assert team("route", leader, member, [Length(1, of="arguments")]).go() != Waits()
