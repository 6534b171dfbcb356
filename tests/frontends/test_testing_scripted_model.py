"""The model whose answers a test wrote."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import define, field

from legation.effects import Log, Program, Sleep
from legation.models.conversation import (
    Message,
    ModelFailed,
    ModelProtocol,
    Prompt,
    Reply,
    ToolCall,
    Usage,
)
from legation_testing import Says, ScriptedModel, call, play

SETTLED = Log("debug", "settled")
HELLO = Prompt((Message("user", "Good morning"),))


@define
class Ear:
    pieces: list[str] = field(factory=list[str])
    streamed: bool = True

    def listen(self) -> None:
        self.pieces.clear()

    def hear(self, piece: str) -> None:
        self.pieces.append(piece)

    def think(self, piece: str) -> None:
        self.pieces.extend([f"({piece})"] if piece else [])

    def settle(self) -> Program[None]:
        yield from SETTLED


def ask(model: ModelProtocol, prompt: Prompt = HELLO, script: Any = ()) -> tuple[Reply, list[str]]:
    ear = Ear()
    return play(model.respond(prompt, ear), script), ear.pieces


def test_what_it_thinks_is_seen_before_what_it_says() -> None:
    model = ScriptedModel([Says("Hello.", reasoning="Hm"), Reply("Bye.", reasoning="Well")])

    assert ask(model)[1] == ["(Hm)", "Hello."]
    assert ask(model)[0].reasoning == "Well"


def test_it_answers_with_one_step_after_the_other() -> None:
    model = ScriptedModel(["Hello.", "Goodbye."])
    farewell = Prompt((Message("user", "Bye"),))

    assert ask(model) == (Reply("Hello.", Usage(2, 1)), ["Hello."])
    assert model.steps_left == 1
    assert ask(model, farewell) == (Reply("Goodbye.", Usage(1, 1)), ["Goodbye."])
    assert model.prompts == [HELLO, farewell]
    assert model.steps_left == 0


@pytest.mark.parametrize("steps", [[], ["Hello."]])
def test_at_the_end_of_its_script_it_says_so(steps: list[str]) -> None:
    model = ScriptedModel(steps)
    for _ in steps:
        ask(model)

    with pytest.raises(
        ModelFailed, match=rf"has {len(steps)} steps: this is call {len(steps) + 1}"
    ):
        ask(model)
    assert model.steps_left == 0


def test_the_end_of_a_script_has_a_reason_for_programs() -> None:
    with pytest.raises(ModelFailed) as caught:
        ask(ScriptedModel())

    assert caught.value.reason == "exhausted"


def test_one_text_is_a_script_of_one_step() -> None:
    assert ask(ScriptedModel("Hello."))[0].content == "Hello."


@pytest.mark.parametrize(
    ("step", "calls"),
    [
        (call("weather", city="Oslo"), [("call-1", "weather", '{"city":"Oslo"}')]),
        ([call("a"), call("b", name=1)], [("call-1", "a", "{}"), ("call-2", "b", '{"name":1}')]),
        (ToolCall("mine", "a", "nonsense"), [("mine", "a", "nonsense")]),
        (Says("So:", [call("a")]), [("call-1", "a", "{}")]),
        (Reply("So:", calls=(call("a"),)), [("call-1", "a", "{}")]),
    ],
)
def test_it_calls_tools(step: Any, calls: list[tuple[str, str, str]]) -> None:
    reply, _ = ask(ScriptedModel([step]))

    assert [(made.id, made.name, made.arguments) for made in reply.calls] == calls


def test_ids_of_calls_go_on_through_the_script() -> None:
    model = ScriptedModel([call("a"), ToolCall("mine", "b", "{}"), call("c")])

    assert [ask(model)[0].calls[0].id for _ in range(3)] == ["call-1", "mine", "call-2"]


def test_an_answer_comes_in_pieces_and_takes_its_time() -> None:
    step = Says(["Good ", "mor", "ning"], after_seconds=2, between_seconds=0.5)
    waits = [(SETTLED, None), (Sleep(2), None)] + [(SETTLED, None), (Sleep(0.5), None)] * 2

    reply, pieces = ask(ScriptedModel([step]), script=waits)

    assert reply.content == "Good morning"
    assert pieces == ["Good ", "mor", "ning"]


def test_it_fails_when_the_script_says_so_even_in_the_middle() -> None:
    failure = ModelFailed("broken", "The model's answer broke off")
    model = ScriptedModel([failure, Says("Good ", fails=failure)])

    with pytest.raises(ModelFailed, match="broke off"):
        ask(model)
    ear = Ear()
    with pytest.raises(ModelFailed, match="broke off"):
        play(model.respond(HELLO, ear), ())
    assert ear.pieces == ["Good "]


def test_a_function_finds_the_answer() -> None:
    model = ScriptedModel([lambda prompt: prompt.messages[-1].content.upper()])

    assert ask(model)[0].content == "GOOD MORNING"


def test_usage_is_counted_in_words_unless_it_is_told() -> None:
    model = ScriptedModel(["One two three", Says("One", usage=Usage(100, 50)), Reply("One")])

    assert [ask(model)[0].usage for _ in range(3)] == [Usage(2, 3), Usage(100, 50), Usage()]


def test_how_it_is_shown() -> None:
    model = ScriptedModel(id="concierge-script")

    assert (model.id, model.name, model.provider) == ("concierge-script", "Scripted", "Legation")
