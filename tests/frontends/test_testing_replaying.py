"""A recording as an author reads and replays it: from a file, good or bad, under a platform."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from legation import Agent, OpenAIModel, Platform, tool
from legation.effects import FetchReply
from legation.replay.recording import FORMAT, MAX_FILE, RecordedStep
from legation.replay.recording import Recording as Recorded
from legation_testing import (
    Client,
    Misuse,
    NotARecording,
    Recording,
    Replayed,
    ScriptedModel,
    call,
)

from ..recordings import encode, record

CALLED: list[str] = []


def look(room: int) -> str:
    """Look at a room."""
    CALLED.append("look")
    return f"Room {room} is free."


async def book(room: int) -> str:
    """Book a room."""
    CALLED.append("book")
    return f"Booked {room}."


def platform(**members: Any) -> Platform:
    model = ScriptedModel([[call("look", room=7), call("book", room=7)], "Booked."])
    agent = Agent(id="clerk", instructions="Be brief.", model=model, tools=[look, book])
    return Platform(agents=[evolve(agent, **members)])


@pytest.fixture(scope="module")
def recorded() -> Recorded:
    with Client(platform()) as client:
        return record(client, client.run("clerk", "A room"))


@pytest.fixture(autouse=True)
def _forget(recorded: Recorded) -> None:
    CALLED.clear()


@pytest.fixture
def file(recorded: Recorded, tmp_path: Path) -> Path:
    path = tmp_path / "booking.run.jsonl"
    path.write_bytes(encode(recorded))
    return path


def test_recording_of_a_file_is_replayed(file: Path) -> None:
    replayed = Recording.read(file).replay(platform())

    assert isinstance(replayed, Replayed)
    assert replayed.same, replayed.first
    assert Recording.read(str(file)) == Recording.decode(file.read_bytes())
    assert CALLED == []


def test_first_divergence_is_a_text(file: Path) -> None:
    replayed = Recording.read(file).replay(platform(instructions="Be kind."))

    assert not replayed.same
    assert replayed.first.startswith("Place 1: The instructions differ\n--- recorded\n+++ now")
    assert str(replayed) == replayed.first
    (divergence,) = replayed.divergences
    assert (divergence.place, divergence.behind) == ("1", False)


def test_functions_are_called_where_tools_are_live(file: Path) -> None:
    assert Recording.read(file).replay(platform(), tools="live").same
    assert sorted(CALLED) == ["book", "look"]


def test_live_function_that_asks_for_more_is_told_at_its_place(file: Path) -> None:
    @tool(name="book")
    async def sell(room: int) -> str:
        """Book a room."""
        return f"Sold {room}."

    replayed = Recording.read(file).replay(platform(tools=[look, sell]), tools="live")

    assert replayed.first.startswith("Place 1.2: book returns something else")


def test_first_divergence_is_the_only_one_of_a_strict_replay(file: Path) -> None:
    changed = platform(instructions="Be kind.", tools=[look])

    assert len(Recording.read(file).replay(changed).divergences) == 3
    assert len(Recording.read(file).replay(changed, strict=True).divergences) == 1


def test_models_are_asked_over_the_network_of_the_test(file: Path) -> None:
    asked: list[Any] = []

    def answer(effect: Any) -> FetchReply:
        asked.append(effect)
        return FetchReply(500, {}, b"")

    hosted = Platform(
        environ={"OPENAI_API_KEY": "k"},
        models=[OpenAIModel("gpt", "gpt-5")],
        agents=[Agent(id="clerk", model="gpt", tools=[look, book])],
    )
    replayed = Recording.read(file).replay(hosted, model="live", fetch=answer)

    assert asked
    assert "The run was COMPLETED, and is ERROR (model_" in str(replayed)


def test_model_of_a_client_is_the_one_that_goes_on(file: Path) -> None:
    changed, other = platform(instructions="Be kind."), ScriptedModel(["Kindly."])
    with Client(changed) as client, client.override(model=other):
        replayed = Recording.read(file).replay(changed, model="live")

    assert len(other.prompts) == 1
    assert replayed.divergences[-1].sentence == "The answer differs"


def test_misuse_is_a_sentence(file: Path) -> None:
    recording: Any = Recording.read(file)

    with pytest.raises(Misuse, match=r"replay\(\) takes a Platform"):
        recording.replay(platform)
    with pytest.raises(Misuse, match="tools is 'recorded' or 'live', not 'real'"):
        recording.replay(platform(), tools="real")
    with pytest.raises(Misuse, match="model is 'recorded' or 'live', not True"):
        recording.replay(platform(), model=True)


# --- Files that are none -----------------------------------------------------------------------


def _lines(recorded: Recorded) -> list[dict[str, Any]]:
    return [json.loads(line) for line in encode(recorded).splitlines()]


def _join(lines: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def _cut(recorded: Recorded) -> bytes:
    return encode(recorded)[:-20]


def _edit_format(recorded: Recorded) -> bytes:
    first, *others = _lines(recorded)
    return _join([{**first, "format": FORMAT + 1}, *others])


def _edit_definition(recorded: Recorded) -> bytes:
    first, defined, *others = _lines(recorded)
    document = {**defined["document"], "instructions": "Sell."}
    return _join([first, {**defined, "document": document}, *others])


def _repeat_a_place(recorded: Recorded) -> bytes:
    lines = _lines(recorded)
    return _join([*lines[:-1], lines[-2], lines[-1]])


def _leave_a_place_out(recorded: Recorded) -> bytes:
    return _join([line for line in _lines(recorded) if line.get("place") != "1.1"])


def _add_an_answer(recorded: Recorded) -> bytes:
    outcome = {"content": "More", "usage": [1, 1, 0, 0, 0]}
    steps = (*recorded.steps, RecordedStep("3", "model", "scripted", outcome))
    return encode(evolve(recorded, steps=steps))


def _ask_with_a_number(recorded: Recorded) -> bytes:
    return encode(evolve(recorded, run=evolve(recorded.run, input={"message": 7})))


BAD: dict[str, tuple[Callable[[Recorded], bytes], str]] = {
    "nothing": (lambda _: b"", "Line 1 cannot be read: it is"),
    "bytes": (lambda _: b"\xff\x00\xfe", "Line 1 cannot be read: it is"),
    "cut": (_cut, "the file may have been cut"),
    "another format": (_edit_format, f"its format is {FORMAT + 1}, and this release reads"),
    "an edited definition": (_edit_definition, "the definition is not that of its digest"),
    "a place twice": (_repeat_a_place, "place 2 stands in the file twice"),
    "a place left out": (_leave_a_place_out, "Place 1.1 has no outcome, and the run went on"),
    "a place that no turn comes to": (_add_an_answer, "No turn comes to place 3"),
    "a message that is none": (_ask_with_a_number, "run.input.message is no text"),
    "too many bytes": (lambda _: b"x" * (MAX_FILE + 9), "no more than 67108864 are read"),
}


@pytest.mark.parametrize(("make", "sentence"), BAD.values(), ids=BAD)
def test_bad_file_is_one_sentence_and_nothing_is_called(
    make: Callable[[Recorded], bytes], sentence: str, recorded: Recorded, tmp_path: Path
) -> None:
    path = tmp_path / "bad.run.jsonl"
    path.write_bytes(make(recorded))

    with pytest.raises(NotARecording) as caught:
        Recording.read(path).replay(platform(), tools="live")

    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
    assert CALLED == []


def test_file_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(NotARecording, match=r"none\.run\.jsonl cannot be read: No such file"):
        Recording.read(tmp_path / "none.run.jsonl")
    with pytest.raises(NotARecording, match="cannot be read: Is a directory"):
        Recording.read(tmp_path)


def test_bad_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.run.jsonl"
    path.write_text("{}")

    with pytest.raises(NotARecording, match=r"bad\.run\.jsonl: Line 1 cannot be read: "):
        Recording.read(path)


def test_agent_that_is_not_hosted_is_one_sentence_and_nothing_is_called(file: Path) -> None:
    other = Platform(agents=[Agent(id="concierge")])

    replayed = Recording.read(file).replay(other, tools="live", model="live")

    assert replayed.first == "Place 0: The platform has no agent clerk; there are: concierge"
    assert str(replayed) == replayed.first
    assert CALLED == []
