"""A model whose answers are in a file."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import pytest

from legation import Agent, CustomModel, Platform, tool
from legation.models.chat_completions import ChatCompletions
from legation.models.conversation import Message, Prompt, Reply, Thought, ToolCall, Usage
from legation_testing import CachedModel, Client, Misuse, cached_model

from ..providers.chat_completions import ChatCompletionsServer
from ..providers.model_server import KEY, Refusal, Said, serving

PROMPT: Final = Prompt((Message("user", "Where?"),))


@tool
def look(room: int) -> str:
    """Look at a room."""
    return f"Room {room} is free"


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(cached_model.RECORD, raising=False)


@pytest.fixture
def server() -> Generator[ChatCompletionsServer]:
    server = ChatCompletionsServer()
    with serving(server):
        yield server


def cached(server: ChatCompletionsServer, path: Path, **more: Any) -> CachedModel:
    model = ChatCompletions(id="gpt", base_url=f"{server.address}/v1", api_key=KEY, retries=0)
    return CachedModel(model, path, **more)


def ask(model: CachedModel, *messages: str) -> list[Any]:
    agent = Agent(id="a", model=model, tools=[look])
    with Client(Platform(agents=[agent])) as client:
        return [client.run("a", one).content for one in messages]


def test_answers_are_recorded_once_and_given_without_network(
    server: ChatCompletionsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "answers.jsonl"
    call = ("c1", "look", '{"room": 7}')
    server.plan += [Said(calls=(call,)), Said(("It is ", "free")), Said(("Hello",))]
    monkeypatch.setenv(cached_model.RECORD, "1")
    recorded = ask(cached(server, path), "Room 7?", "Hello?")
    monkeypatch.delenv(cached_model.RECORD)
    first, requests = path.read_bytes(), len(server.seen)

    assert recorded == ["It is free", "Hello"]
    assert ask(cached(server, path), "Room 7?", "Hello?") == recorded
    assert ask(cached(server, path, record=True), "Hello?", "Room 7?") == recorded[::-1]
    assert (path.read_bytes(), len(server.seen)) == (first, requests)


def test_file_is_the_same_in_whatever_order_it_is_recorded(
    server: ChatCompletionsServer, tmp_path: Path
) -> None:
    paths = [tmp_path / name for name in ("one", "two")]
    for path, messages in zip(paths, (["a", "b", "c"], ["c", "a", "b"]), strict=True):
        ask(cached(server, path, record=True), *messages)

    one, two = (path.read_bytes() for path in paths)
    assert one == two
    lines = [json.loads(line) for line in one.splitlines()]
    assert [line["key"] for line in lines] == sorted(line["key"] for line in lines)
    assert {line["model"] for line in lines} == {"gpt"}
    assert KEY.encode() not in one
    assert not list(tmp_path.glob("*.new"))


def test_missing_answer_says_how_it_is_recorded(
    server: ChatCompletionsServer, tmp_path: Path
) -> None:
    path = tmp_path / "answers.jsonl"
    with pytest.raises(ExceptionGroup) as caught:
        ask(cached(server, path), "Where is the opera of Oslo?")

    (error,) = caught.value.exceptions
    assert isinstance(error, Misuse)
    assert str(error) == (
        f"{path} has no answer of gpt to this prompt, which ends with 'Where is the opera of"
        " Oslo?': run the test once with LEGATION_RECORD_ANSWERS=1 and the key of the model, and"
        " keep the file"
    )
    assert server.seen == []


def test_failure_of_the_model_is_not_recorded(
    server: ChatCompletionsServer, tmp_path: Path
) -> None:
    server.plan.append(Refusal(401))
    path = tmp_path / "answers.jsonl"

    with Client(Platform(agents=[Agent(id="a", model=cached(server, path, record=True))])) as it:
        assert it.run("a", "Hello").error_type == "model_rejected"
    assert not path.exists()


def respond(model: CachedModel, prompt: Prompt = PROMPT) -> Reply:
    """Return what a model answers beside a platform."""
    return cached_model._ask(model, prompt)


def of(reply: Reply, path: Path, *, record: bool = True) -> CachedModel:
    async def answer(prompt: Prompt) -> Reply:
        return reply

    return CachedModel(CustomModel("mine", answer), path, record=record)


WHOLE: Final = Reply(
    "Yes",
    Usage(1, 2, 3, 4, 5),
    (ToolCall("c1", "look", '{"room":7}'),),
    (Thought("mine", '{"signature": "eyJhbGciOi.JIUzI1"}', 1, 0),),
    "Hm",
)


LINES: Final = Reply("One\u2028two\x85three\nfour: ø")


@pytest.mark.parametrize("reply", [WHOLE, LINES, Reply("Yes")])
def test_answer_is_read_as_it_was_written(reply: Reply, tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"

    assert respond(of(reply, path)) == reply
    assert respond(of(Reply("never"), path, record=False)) == reply


def test_what_has_no_utf8_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    respond(of(Reply("a\ud800b"), path))

    assert respond(of(Reply("never"), path, record=False)).content == "a\ufffdb"


def test_key_does_not_depend_on_what_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    messages = (*PROMPT.messages, Message("tool", "", call_id="c1"))
    respond(of(Reply("Yes"), path), Prompt(messages, output_schema={"type": "object"}))
    (line,) = path.read_text().splitlines()

    # A file of an earlier release is read by this one: this key may not change.
    assert (
        json.loads(line)["key"]
        == "ae4dd14721ff327265e31ec2c49ef34e2147922b42d1995e24ddc7919bd3ae6f"
    )


def test_each_prompt_and_each_model_has_its_own(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    for prompt in (PROMPT, Prompt(()), Prompt(PROMPT.messages, max_tokens=3)):
        respond(of(Reply("Yes"), path), prompt)

    async def other(prompt: Prompt) -> str:
        return "No"

    assert respond(CachedModel(CustomModel("other", other), path, record=True)).content == "No"
    assert len(path.read_text().splitlines()) == 4
    with pytest.raises(Misuse, match="ends with ''"):
        respond(CachedModel(CustomModel("third", other), path), Prompt(()))


@pytest.mark.parametrize(
    "reply",
    [
        Reply("The key is sk-abcdefghijkl"),
        Reply("", calls=(ToolCall("c1", "look", '{"key": "sk-abcdefghijkl"}'),)),
        Reply("It is open sesame."),
        Reply("Fine", reasoning="Say open sesame."),
    ],
)
def test_secret_is_never_written(
    reply: Reply, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "open sesame")
    path = tmp_path / "answers.jsonl"

    with pytest.raises(Misuse, match="holds what looks like a secret, and is not written"):
        respond(of(reply, path))
    assert not path.exists()


def test_key_of_the_model_is_never_written(server: ChatCompletionsServer, tmp_path: Path) -> None:
    server.plan.append(Said((f"Your key is {KEY}",)))

    with pytest.raises(Misuse, match="looks like a secret"):
        respond(cached(server, tmp_path / "answers.jsonl", record=True))


@pytest.mark.parametrize(
    "line", ["{", "[]", '{"key": "k"}', '{"key": "k", "answer": {"usage": [1, 2, 3, 4, 5, 6]}}']
)
def test_broken_file_names_the_line(line: str, tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text(f'{{"key": "k", "model": "m", "answer": {{"usage": [1]}}}}\n{line}\n')

    with pytest.raises(Misuse, match="line 2, is no answer: delete the line"):
        respond(of(Reply("Yes"), path))


def test_file_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cached_model, "MAX_FILE", 3)
    path = tmp_path / "answers.jsonl"
    path.write_text("{}\n\n")

    with pytest.raises(Misuse, match="is longer than"):
        respond(of(Reply("Yes"), path))


def test_model_is_what_it_is_in_all_else(tmp_path: Path) -> None:
    async def answer(prompt: Prompt) -> str:
        return "Yes"

    inner = CustomModel("mine", answer, provider="Mine", accepts="a/b", takes_tools=False)
    model: Any = CachedModel(inner, tmp_path / "answers.jsonl")

    assert (model.id, model.name, model.provider) == ("mine", "Custom", "Mine")
    assert (model.accepts, model.takes_tools) == (("a/b",), False)
    assert not hasattr(model, "_none")
