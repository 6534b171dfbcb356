from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

import pytest
from attrs import define, evolve, frozen

from legation import Agent, Platform, Team, tool
from legation.effects import Program, Transact
from legation.models.conversation import Listener, ModelFailed, Prompt, Reply
from legation.replay.comparing import Replayed
from legation.replay.recording import RecordedStep, Recording, read_recording
from legation.replay.redaction import redact
from legation.replay.replaying import RECORDED, ReplayOptions
from legation.store.run_reads import FetchRun
from legation_testing import Client, Misuse, Says, ScriptedModel, call

from ...recordings import encode, record, take_again
from .shops import (
    INSTRUCTIONS,
    NAMES,
    SHAPE,
    called,
    change,
    desk,
    list_tools,
    look,
    model,
    print_ticket,
    record_run,
    refund,
)

LIVE: Final = ReplayOptions(live_tools=True)
STRICT: Final = ReplayOptions(strict=True)
LIVE_MODEL: Final = ReplayOptions(live_model=True)

PATHS: Final = (
    ("input.message",),
    ("arguments.*",),
    ("outcome.result", "outcome.content"),
    ("document.instructions", "state.*"),
    ("output.content", "output.content.*"),
    ("input.*", "state.*", "history.*.content", "arguments.*", "outcome.*", "output.*"),
)


@cache
def unchanged() -> Platform:
    """Return the platform as it was; no model of it is asked."""
    return desk()


def again(name: str, platform: Platform, options: ReplayOptions = RECORDED) -> Replayed:
    """Take a recorded run again, and forget what was called before."""
    recording = record_run(name)
    called.clear()
    return take_again(recording, platform, options)


# --- Nothing has changed -----------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_unchanged_run_is_the_same_and_calls_nothing(name: str) -> None:
    replayed = again(name, unchanged())

    assert replayed.same, str(replayed)
    assert called == []


@pytest.mark.parametrize("name", NAMES)
def test_unchanged_tools_come_to_the_same_when_they_are_called(name: str) -> None:
    replayed = again(name, unchanged(), LIVE)

    assert replayed.same, str(replayed)


@pytest.mark.parametrize("paths", PATHS, ids=lambda paths: paths[0])
@pytest.mark.parametrize("name", NAMES)
def test_redacted_run_is_the_same(name: str, paths: tuple[str, ...]) -> None:
    recording = redact(record_run(name), paths)
    assert isinstance(recording, Recording)
    assert read_recording(encode(recording)) == recording

    replayed = take_again(recording, unchanged())

    assert replayed.same, str(replayed)


def test_functions_are_called_where_they_are_live() -> None:
    again("told", desk(), LIVE)
    assert called == ["instruct", "look", "book", "look"]

    again("echo", desk(), LIVE)
    assert called == ["echo"]


# --- Planted changes ---------------------------------------------------------------------------


def look_into(room: int) -> str:
    """Look into a room."""
    return f"Room {room} is free."


def look_at_floor(room: int, floor: int = 1) -> str:
    """Look at a room."""
    return f"Room {room} is free."


def look_by_name(room: str) -> str:
    """Look at a room."""
    return f"Room {room} is free."


def find_taken(room: int) -> str:
    """Look at a room."""
    called.append("look")
    return f"Room {room} is taken."


def raise_error(room: int) -> str:
    """Look at a room."""
    called.append("look")
    raise ValueError(room)


def sell() -> str:
    """Sell the house."""
    raise NotImplementedError


def answer_otherwise(message: str) -> str:
    called.append("echo")
    return message.upper()


def be_called(message: str) -> str:
    raise NotImplementedError


@frozen
class Planted:
    """A change of the code after a run was recorded, and the first divergence that it shows."""

    name: str
    recording: str
    platform: Callable[[], Platform]
    first: str
    options: ReplayOptions = RECORDED
    behind: tuple[str, ...] = ()


def planted(
    name: str,
    recording: str,
    first: str,
    *behind: str,
    of: str = "",
    options: ReplayOptions = RECORDED,
    **members: Any,
) -> Planted:
    """Return a change of members of the agent or team that was recorded, or `of` another."""
    component = of or recording.partition(",")[0]
    return Planted(name, recording, lambda: change(component, **members), first, options, behind)


def _replace(name: str, agent: Agent | Team | None) -> Callable[[], Platform]:
    """Return what makes a platform with `agent` in the place of another, which is in no team."""

    def choose(one: Any) -> Any:
        if isinstance(one, Team) and name in one.members and one.id != name:
            return None
        return agent if one.id == name else one

    return lambda: desk(choose)


NO_TOOL: Final = "now is refused: There is no tool of the name"
MISFIT: Final = "now is refused: The arguments do not fit: room must be a string."

PLANTED: Final = (
    planted(
        "a word of the instructions",
        "clerk",
        "Place 1: The instructions differ\n--- recorded\n+++ now\n@@ -1,3 +1,3 @@\n"
        " You book rooms.\n-Be brief.\n+Be kind.\n Ask before you pay back.",
        instructions=INSTRUCTIONS.replace("brief", "kind"),
    ),
    planted(
        "no instructions",
        "clerk",
        "Place 1: The instructions differ\n--- recorded\n+++ now\n@@ -1,3 +0,0 @@\n"
        "-You book rooms.\n-Be brief.\n-Ask before you pay back.",
        instructions=None,
    ),
    planted(
        "other instructions by the function",
        "told",
        "Place 1: The instructions differ\n--- recorded\n+++ now\n@@ -1 +1 @@\n"
        "-You book rooms in the inn.\n+Sell.",
        options=LIVE,
        instructions=lambda: "Sell.",
    ),
    planted(
        "a text in place of the function",
        "told",
        "Place 1: The instructions differ\n--- recorded\n+++ now\n@@ -1 +1 @@\n"
        "-You book rooms in the inn.\n+Sell.",
        instructions="Sell.",
    ),
    planted(
        "a function in place of the text",
        "clerk",
        "Place 1: A function gives the instructions, where a text did; it is not called",
        instructions=lambda: INSTRUCTIONS,
    ),
    planted(
        "a tool's description",
        "clerk",
        "Place 1: The description of the tool look differs\n--- recorded\n+++ now\n@@ -1 +1 @@\n"
        "-Look at a room.\n+Look into a room.",
        tools=list_tools(look=tool(name="look")(look_into)),
    ),
    planted(
        "a tool's schema",
        "clerk",
        "Place 1: The schema of the tool look differs\n--- recorded\n+++ now\n@@ -1,6 +1,10 @@\n"
        ' {\n   "additionalProperties": false,\n   "properties": {\n+    "floor": {\n'
        '+      "default": 1,\n+      "type": "integer"\n+    },\n     "room": {\n'
        '       "type": "integer"\n     }',
        tools=list_tools(look=tool(name="look")(look_at_floor)),
    ),
    planted(
        "an argument of another type",
        "clerk",
        "Place 1: The schema of the tool look differs",
        f"Place 1.1 (behind the divergence): look was carried out at once, and {MISFIT}",
        f"Place 1.3 (behind the divergence): look was carried out at once, and {MISFIT}",
        "Place 2 (behind the divergence): The model reads another result of look",
        tools=list_tools(look=tool(name="look")(look_by_name)),
    ),
    planted(
        "a tool is gone",
        "clerk",
        f"Place 1.2: book was carried out at once, and {NO_TOOL} 'book'. There are: look,"
        " fail, spare, refund, print_ticket",
        "Place 2 (behind the divergence): The model reads another result of book",
        tools=list_tools(book=None),
    ),
    planted(
        "a tool is gone that was not called",
        "clerk",
        "Place 1: The tool spare is gone",
        tools=list_tools(spare=None),
    ),
    planted(
        "a tool has another name",
        "clerk",
        "Place 1: The tool look is called see",
        f"Place 1.1 (behind the divergence): look was carried out at once, and {NO_TOOL}",
        f"Place 1.3 (behind the divergence): look was carried out at once, and {NO_TOOL}",
        "Place 2 (behind the divergence): The model reads another result of look",
        tools=list_tools(look=tool(name="see")(look)),
    ),
    planted("a new tool", "clerk", "Place 1: The tool sell is new", tools=[*list_tools(), sell]),
    planted(
        "a tool asks a person",
        "clerk",
        "Place 1.2: book was carried out at once, and now waits for a person",
        tools=list_tools(book=tool(requires_confirmation=True)(list_tools()[1])),
    ),
    planted(
        "a tool no longer asks",
        "careful",
        "Place 1.1: refund was to be confirmed by a person, and now is carried out at once",
        tools=list_tools(refund=tool(refund.function)),
    ),
    planted(
        "a tool no longer asks, and nobody was asked yet",
        "careful, waits",
        "Place 1.1: refund was to be confirmed by a person, and now is carried out at once",
        "Place 1.2 (behind the divergence): print_ticket was left to the client, and now is"
        " carried out at once",
        tools=list_tools(refund=tool(refund.function), print_ticket=tool(print_ticket.function)),
    ),
    planted(
        "a tool is the client's",
        "clerk",
        "Place 1.2: book was carried out at once, and now is left to the client",
        tools=list_tools(book=tool(external_execution=True)(list_tools()[1])),
    ),
    planted(
        "a tool is there that was not",
        "wrong",
        "Place 1: The tool sell is new",
        "Place 1.2 (behind the divergence): sell was refused, and now is carried out at once",
        tools=[*list_tools(), sell],
    ),
    planted(
        "a tool returns something else",
        "clerk",
        "Place 1.1: look returns something else\n--- recorded\n+++ now\n@@ -1 +1 @@\n"
        "-Room 7 is free.\n+Room 7 is taken.",
        "Place 1.3 (behind the divergence): look returns something else",
        "Place 2 (behind the divergence): The model reads another result of look",
        options=LIVE,
        tools=list_tools(look=tool(name="look")(find_taken)),
    ),
    planted(
        "a tool raises",
        "clerk",
        "Place 1.1: look returned a result, and now fails\n--- recorded\n+++ now\n@@ -1 +1 @@\n"
        "-Room 7 is free.\n+The tool failed (ValueError)",
        "Place 1.3 (behind the divergence): look returned a result, and now fails",
        "Place 2 (behind the divergence): The model reads another result of look",
        options=LIVE,
        tools=list_tools(look=tool(name="look")(raise_error)),
    ),
    planted(
        "max_rounds",
        "clerk",
        "Place 1: The run was COMPLETED, and is ERROR (max_rounds)\n--- recorded\n+++ now\n"
        "@@ -1 +1 @@\n-Booked.\n"
        "+The run was ended: after 1 requests to the model there was no answer",
        max_rounds=1,
    ),
    planted(
        "more max_rounds",
        "deep",
        "Place 2.1: look is carried out, and the file has no outcome of it: the run was ERROR"
        " (max_rounds)",
        max_rounds=9,
    ),
    planted(
        "max_tokens",
        "clerk",
        "Place 2: The run was COMPLETED, and is ERROR (max_tokens)\n--- recorded\n+++ now\n"
        "@@ -1 +1 @@\n-Booked.\n+The run was ended: it took 50 tokens, and 30 are allowed",
        max_tokens=30,
    ),
    planted(
        "an output schema",
        "clerk",
        "Place 1: The output schema differs",
        "Place 4 (behind the divergence): The model is asked for another answer",
        "Place 4 (behind the divergence): The model is asked once more, and the file has no",
        output_schema=SHAPE,
    ),
    planted(
        "another output schema",
        "shaped",
        "Place 1: The output schema differs",
        "Place 3 (behind the divergence): The run was COMPLETED, and is ERROR (output_invalid)",
        output_schema={**SHAPE, "properties": {"room": {"type": "string"}}},
    ),
    planted(
        "no output schema",
        "shaped",
        "Place 1: The output schema differs",
        "The end (behind the divergence): The run ends before place 3, which the file has",
        output_schema=None,
    ),
    planted(
        "another model",
        "clerk",
        "Place 1: The model was gpt (Legation), and is gpt-2 (Legation)",
        model=model(name="gpt-2"),
    ),
    planted(
        "another model of a run without a definition",
        "plain",
        "Place 1: The model was gpt, and is gpt-2",
        model=model(name="gpt-2"),
    ),
    planted(
        "no history",
        "clerk, second",
        "Place 1: history_runs was 3, and is 0",
        history_runs=0,
    ),
    planted(
        "a member is gone",
        "coordinate",
        "Place 1: The team no longer has the member clerk",
        "Place 1.1 (behind the divergence): the task for clerk was carried out at once, and now"
        " is refused: There is no member 'clerk'. There are: plain",
        "Place 2 (behind the divergence): The model reads another result of the task for clerk",
        members=("plain",),
    ),
    planted(
        "a member is gone of those who are asked at once",
        "collaborate",
        "Place 1: The team no longer has the member clerk",
        "The end (behind the divergence): The run ends before place 0.1, which the file has",
        members=("plain",),
    ),
    planted(
        "a new member",
        "coordinate",
        "Place 1: The team has the new member careful",
        members=("clerk", "plain", "careful"),
    ),
    planted(
        "a member's instructions",
        "coordinate",
        "Place 1.1/1: The instructions differ\n--- recorded\n+++ now\n@@ -1,3 +1 @@\n"
        "-You book rooms.\n-Be brief.\n-Ask before you pay back.\n+Sell.",
        of="clerk",
        instructions="Sell.",
    ),
    planted(
        "the instructions of a member of a member",
        "outer",
        "Place 1.1/1.1/1: The instructions differ",
        of="clerk",
        instructions="Sell.",
    ),
    planted(
        "the mode of a team",
        "coordinate",
        "Place 1: The mode of the team was coordinate, and is route",
        "Place 1.2 (behind the divergence): the task for plain was carried out at once, and now"
        " is refused: One member is to answer, and another was chosen already",
        "The end (behind the divergence): The run ends before place 2, which the file has",
        mode="route",
    ),
    planted(
        "a team no longer routes",
        "route",
        "Place 1: The mode of the team was route, and is coordinate",
        "Place 2 (behind the divergence): The model is asked once more, and the file has no",
        mode="coordinate",
    ),
    planted(
        "a team asks all at once",
        "coordinate",
        "Place 1: The mode of the team was coordinate, and is collaborate",
        "Place 0.1/1 (behind the divergence): The model is asked once more, and the file has no",
        "Place 0.2/1 (behind the divergence): The model is asked once more, and the file has no",
        mode="collaborate",
    ),
    planted(
        "a function answers otherwise",
        "echo",
        "The end: The answer differs\n--- recorded\n+++ now\n@@ -1 +1 @@\n"
        "-You said A room.\n+A ROOM",
        options=LIVE,
        run=answer_otherwise,
    ),
    Planted(
        "an agent is gone",
        "wrong",
        _replace("wrong", None),
        "Place 0: The platform has no agent wrong; there are: careful, clerk, deep, echo, invalid,"
        " late, plain, shaped, strict, stuck, told",
    ),
    Planted(
        "an agent is a team",
        "wrong",
        _replace("wrong", Team(id="wrong", members=("clerk",))),
        "Place 0: wrong was an agent, and is a team",
    ),
    Planted(
        "a team is an agent",
        "route",
        _replace("route", Agent(id="route")),
        "Place 0: route was a team, and is an agent",
    ),
    Planted(
        "an agent is a function",
        "wrong",
        _replace("wrong", Agent(id="wrong", run=be_called)),
        "Place 0: wrong asked a model, and is a function",
    ),
    Planted(
        "a function is an agent",
        "echo",
        _replace("echo", Agent(id="echo")),
        "Place 0: echo was a function, and asks a model",
    ),
)


@pytest.mark.parametrize("case", PLANTED, ids=lambda case: case.name)
def test_each_planted_change_is_shown_as_a_person_would_say_it(case: Planted) -> None:
    replayed = again(case.recording, case.platform(), case.options)

    assert not replayed.same
    assert replayed.first.startswith(case.first)
    behind = [str(one) for one in replayed.divergences if one.behind]
    assert len(behind) == len(case.behind), str(replayed)
    assert all(map(str.startswith, behind, case.behind)), str(replayed)
    assert case.options.live_tools or called == []


UNSEEN: Final = {
    "the order of tools": {"tools": list_tools()[::-1]},
    "what may be done after a crash": {"tools": list_tools(look=tool(again="safe")(look))},
    "a limit that is not reached": {"max_rounds": 9, "max_tokens": 10_000},
    "the time that a tool may take": {"tool_timeout_seconds": 3.0},
    "the name of the agent": {"description": "Books rooms."},
}


@pytest.mark.parametrize("members", UNSEEN.values(), ids=UNSEEN)
def test_change_that_no_model_is_told_is_none(members: dict[str, Any]) -> None:
    replayed = again("clerk", change("clerk", **members))

    assert replayed.same, str(replayed)


def test_nothing_is_compared_behind_the_first_divergence_of_a_strict_replay() -> None:
    tools = list_tools(look=tool(name="look")(look_by_name))
    for name, members in (("clerk", {"tools": tools}), ("coordinate", {"members": ("plain",)})):
        (only,) = again(name, change(name, **members), STRICT).divergences
        assert not only.behind
        assert only.place == "1"

    (only,) = again("coordinate", change("clerk", tools=tools), STRICT).divergences
    assert only.place == "1.1/1"
    assert again("clerk", desk(), STRICT).same


# --- Models that are asked ---------------------------------------------------------------------


def test_model_of_the_platform_goes_on_behind_the_first_divergence() -> None:
    asked = model(call("look", room=7), "Kindly.")
    platform = change("clerk", instructions="Be kind.", model=asked)
    options = ReplayOptions(live_tools=True, live_model=True)

    first, end = again("clerk", platform, options).divergences

    assert str(first).startswith("Place 1: The instructions differ")
    assert str(end).startswith("The end (behind the divergence): The answer differs")
    assert len(asked.prompts) == 2
    assert called == ["look"]


def test_model_of_the_platform_is_not_asked_where_nothing_differs() -> None:
    asked = model()

    assert again("clerk", change("clerk", model=asked), LIVE_MODEL).same
    assert asked.prompts == []


def test_outcome_is_recorded_of_the_same_call_alone() -> None:
    asked = model([call("look", room=7), call("book", room=7)], call("look", room=1))
    platform = change("clerk", instructions="Be kind.", model=asked)

    _, last = again("clerk", platform, LIVE_MODEL).divergences

    sentence = "look is carried out, and the file has no outcome of it"
    assert str(last) == f"Place 2.1 (behind the divergence): {sentence}"
    assert called == []


def test_model_is_asked_where_the_file_has_no_answer() -> None:
    asked = model("Summed up.")

    replayed = again("route", change("route", mode="coordinate", model=asked), LIVE_MODEL)

    assert str(replayed.divergences[-1]).startswith("The end (behind the divergence)")
    assert len(asked.prompts) == 1


def limit(*steps: Any) -> Agent:
    """Return the agent whose first model is at its limit."""
    first = model(*[ModelFailed("rate_limited", "Busy")] * 9, name="one")
    return Agent(id="a", model=first, fallback=[model(*steps, name="two")], tools=[look])


def record_limited(*steps: Any) -> Recording:
    with Client(lambda: Platform(agents=[limit(*steps)]), raise_errors=False) as client:
        run = client.run("a", "A room", session_id="s")
        return record(client, run)


def test_run_that_a_fallback_answered_is_the_same_and_asks_nobody() -> None:
    recording = record_limited(call("look", room=7), "Booked.")
    agent = limit()

    assert [step.asked for step in recording.steps if step.kind == "model"] == ["two", "two"]
    assert take_again(recording, Platform(agents=[agent])).same
    assert take_again(recording, Platform(agents=[agent]), LIVE_MODEL).same
    assert [len(one.prompts) for one in (agent.model, *agent.fallback)] == [0, 0]  # type: ignore[union-attr]


def test_run_of_which_all_models_failed_is_the_same() -> None:
    recording = record_limited(ModelFailed("unreachable", "Nobody is there"))
    agent = limit()

    assert recording.output["error_type"] == "model_unreachable"
    assert take_again(recording, Platform(agents=[agent])).same
    assert take_again(recording, Platform(agents=[agent]), LIVE_MODEL).same
    assert [len(one.prompts) for one in (agent.model, *agent.fallback)] == [0, 0]  # type: ignore[union-attr]


def test_fallback_is_asked_where_a_live_model_fails() -> None:
    recording = record_limited(call("look", room=7), "Booked.")
    changed = evolve(limit("Kindly."), instructions="Be kind.")

    *_, end = take_again(recording, Platform(agents=[changed]), LIVE_MODEL).divergences

    assert "Kindly." in str(end)


def test_another_fallback_is_a_divergence() -> None:
    recording = record_limited(call("look", room=7), "Booked.")
    changed = evolve(limit(), fallback=[])

    first = take_again(recording, Platform(agents=[changed])).first

    sentence = "Place 1: The models that are asked where the first fails differ"
    assert first.startswith(sentence)
    assert '-    "id": "two",' in first


def test_model_of_a_run_without_a_definition_may_be_the_fallback() -> None:
    recording = record_limited("Booked.")
    changed = evolve(limit(), fallback=[])

    assert recording.run.definition == ""
    assert take_again(recording, Platform(agents=[limit()])).same
    first = take_again(recording, Platform(agents=[changed])).first
    assert first == "Place 1: The model was two, and is one"


# --- The end -----------------------------------------------------------------------------------


def test_budget_of_a_day_ends_a_run_at_another_time_only() -> None:
    output = {"content": "Booked.", "error_type": "budget", "error_message": "No more tokens"}
    recording = evolve(record_run("clerk"), end="ERROR", output=output)

    assert take_again(recording, desk()).same


def test_call_in_doubt_ends_a_run_as_it_did() -> None:
    recording = record_run("clerk")
    steps = tuple(s for s in recording.steps if s.place in ("0", "1", "1.1", "1.2"))
    steps = tuple(evolve(s, outcome=None) if s.place == "1.2" else s for s in steps)
    output = {"content": "The run was interrupted", "error_type": "interrupted"}
    cut = evolve(recording, steps=steps, end="ERROR", output=output)

    assert take_again(cut, desk()).same


def test_error_of_the_authors_ends_the_run_with_its_place() -> None:
    def give_no_text() -> str:
        raise LookupError("no season")

    (first,) = again("told", change("told", instructions=give_no_text), LIVE).divergences

    assert first.place == "1"
    assert "The run was COMPLETED, and is ERROR (run_failed) by LookupError in" in first.sentence
    assert first.sentence.endswith(": no season")


def test_run_that_ended_without_its_instructions_is_the_same() -> None:
    output = {"content": "The run failed", "error_type": "run_failed"}
    recording = evolve(record_run("told"), steps=(), end="ERROR", output=output)

    assert take_again(recording, unchanged()).same


def test_member_that_ended_without_its_instructions_fails_as_it_did() -> None:
    recording = record_run("route")
    outcome = {"result": "The run failed", "failed": True}
    steps = tuple(
        evolve(step, outcome=outcome) if step.place == "1.1" else step
        for step in recording.steps
        if not step.place.startswith("1.1/")
    )
    output = {"content": "It took too long", "error_type": "timeout"}
    cut = evolve(recording, steps=steps, end="ERROR", output=output)

    assert take_again(cut, change("clerk", instructions=lambda: "Sell.")).same


def test_member_of_whose_start_nothing_is_known_is_given_no_instructions() -> None:
    recording = record_run("route")
    steps = tuple(step for step in recording.steps if not step.place.startswith("1.1/"))
    platform = change("clerk", instructions=lambda: "Sell.")

    first, *_ = take_again(evolve(recording, steps=steps), platform).divergences

    assert first.place == "1.1/1"
    assert first.sentence.startswith("A function gives the instructions, where a text did")


def test_function_that_failed_ends_the_run_as_it_did() -> None:
    recording = record_run("echo")
    failed = RecordedStep(
        "1", "function", "echo", None, error={"type": "run_failed", "sentence": "It failed"}
    )
    output = {"content": "It failed", "error_type": "run_failed"}

    assert take_again(evolve(recording, steps=(failed,), end="ERROR", output=output), desk()).same


def test_answer_that_the_code_makes_of_the_same_words_is_compared() -> None:
    recording = evolve(record_run("clerk"), output={"content": "Sold."})

    (end,) = take_again(recording, desk()).divergences

    assert str(end) == (
        "The end: The answer differs\n--- recorded\n+++ now\n@@ -1 +1 @@\n-Sold.\n+Booked."
    )


def test_run_that_ends_too_soon_names_the_place_that_is_left() -> None:
    recording = record_run("route")
    answer = RecordedStep("2", "model", "gpt", {"content": "More", "usage": [1, 1, 0, 0, 0]})
    longer = evolve(recording, steps=(*recording.steps, answer))

    (end,) = take_again(longer, desk()).divergences

    assert str(end) == "The end: The run ends before place 2, which the file has"


@define(eq=False)
class Reader:
    """A model that reads in a database."""

    id: str = "gpt"
    name: str = "Reader"
    provider: str = "Legation"

    def respond(self, prompt: Prompt, listener: Listener) -> Program[Reply]:
        """Read."""
        yield from Transact("main", FetchRun("r1", None))
        raise NotImplementedError


def test_all_that_a_live_model_asks_of_the_world_is_left_to_the_host() -> None:
    slow = ScriptedModel([Says("Kindly.", after_seconds=3.0)], id="gpt")
    change_of = {"instructions": "Be kind.", "model": slow}

    assert len(again("clerk", change("clerk", **change_of), LIVE_MODEL).divergences) == 2
    with pytest.raises(Misuse, match="asks for database 'main'"):
        again("clerk", change("clerk", instructions="Be kind.", model=Reader()), LIVE_MODEL)
