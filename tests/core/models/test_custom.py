"""A model that is an async function of the prompt."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, Final

import anyio
import pytest

from legation import Agent, CustomModel, Platform, tool
from legation.effects import CallFunction, Raised, Returned
from legation.models import custom
from legation.models.conversation import (
    Message,
    ModelFailed,
    Prompt,
    Reply,
    ToolCall,
    Usage,
)
from legation.models.custom import Mistake
from legation_testing import Client, RunContent, ScriptedModel, close_at_every_effect, play

from ..model_kit import SETTLED, Ear

PROMPT: Final = Prompt((Message("user", "Where?"),))


@tool
def look(what: str) -> str:
    """Look."""
    return f"saw {what}"


@tool(requires_confirmation=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def client(answer: Callable[..., Any], *fallback: Any, **more: Any) -> Client:
    tools = more.pop("tools", ())
    model = CustomModel("mine", answer, **more)
    agent = Agent(id="a", model=model, fallback=fallback, tools=tools)
    return Client(Platform(agents=[agent]), raise_errors=False)


def test_text_that_is_returned_is_the_answer() -> None:
    async def answer(prompt: Prompt) -> str:
        await anyio.sleep(1)
        return f"You asked: {prompt.messages[-1].content}"

    with client(answer) as it:
        run = it.run("a", "Where?")

    assert (run.status, run.content) == ("COMPLETED", "You asked: Where?")
    assert (run["model"], run["model_provider"]) == ("mine", "Custom")


def test_pieces_are_heard_as_they_come_and_the_reply_has_the_cost() -> None:
    async def answer(prompt: Prompt) -> AsyncIterator[str | Reply]:
        for word in ("In ", "", "Oslo."):
            await anyio.sleep(1)
            yield word
        yield Reply("", usage=Usage(7, 2), reasoning="Easy")

    with client(answer, provider="Mine") as it:
        events = list(it.stream("a", "Where?"))
        run = it.run("a", "Where?")

    heard = [e.json().get("content") for e in events if isinstance(e, RunContent)]
    assert [piece for piece in heard if piece] == ["In ", "Oslo."]
    assert run.content == "In Oslo."
    assert run["reasoning_content"] == "Easy"
    assert (run["metrics"]["input_tokens"], run["metrics"]["output_tokens"]) == (7, 2)


def test_tools_are_called_and_people_asked_as_of_any_model() -> None:
    async def answer(asked: Prompt) -> Reply:
        results = [one.content for one in asked.messages if one.role == "tool"]
        calls = [ToolCall("", "look", '{"what": "out"}'), ToolCall("", "pay", '{"amount": 3}')]
        if len(results) == len(calls):
            return Reply(f"Done: {', '.join(results)}", Usage(1, 1))
        assert [one.name for one in asked.tools] == ["look", "pay"]
        return Reply("", Usage(1, 1), calls=(calls[len(results)],))

    with client(answer, tools=[look, pay]) as it:
        run = it.run("a", "go", session_id="s")
        assert run.status == "PAUSED"
        done = it.go_on(run, confirmed=True)

    assert done.content == "Done: saw out, paid 3"
    assert done["metrics"]["total_tokens"] == 6


def test_what_the_function_raises_is_in_the_log_and_in_the_incident() -> None:
    async def answer(prompt: Prompt) -> str:
        raise KeyError("secret of the prompt")

    with client(answer) as it:
        run = it.run("a", "go")
        lines = [log for log in it.logs if log.event in ("model_failed", "run_failed")]
        it.advance(60)
        incidents = it.get("/incidents").json()["data"]
        (error,) = it.take_errors()

    assert (run.status, run.error_type, run.content) == (
        "ERROR",
        "model_failed",
        "The model failed",
    )
    assert [line.level for line in lines] == ["error", "warning"]
    for line in lines:
        assert "KeyError in" in str(dict(line.fields)["error"])
        assert "answer" in str(dict(line.fields)["trace"])
        assert "secret" not in str(line.fields)
    assert isinstance(error, KeyError)
    assert "KeyError in" in incidents[0]["place"]
    assert incidents[0]["incident"] == run.incident


def test_failure_of_the_function_is_one_that_the_next_model_mends() -> None:
    async def answer(prompt: Prompt) -> AsyncIterator[str]:
        raise OSError("gone")
        yield ""

    with client(answer, ScriptedModel(["Well."])) as it:
        assert it.run("a", "go").content == "Well."


def test_function_may_fail_as_a_model_does() -> None:
    async def answer(prompt: Prompt) -> str:
        raise ModelFailed("rate_limited", "Too many requests", Usage(5, 0))

    with client(answer) as it:
        run = it.run("a", "go")
        (line,) = [log for log in it.logs if log.event == "model_failed"]
        assert it.take_errors() == ()

    assert (run.error_type, run.content) == ("model_rate_limited", "Too many requests")
    assert (line.level, line.fields) == ("warning", (("model", "mine"), ("reason", "rate_limited")))


async def return_none(prompt: Prompt) -> None: ...


async def return_number(prompt: Prompt) -> int:
    return 3


async def return_nothing(prompt: Prompt) -> str:
    return ""


async def yield_nothing(prompt: Prompt) -> AsyncIterator[str]:
    for _ in prompt.messages[9:]:
        yield ""


async def speak_behind(prompt: Prompt) -> AsyncIterator[str | Reply]:
    yield Reply("Done")
    yield "and more"


async def say_another(prompt: Prompt) -> AsyncIterator[str | Reply]:
    yield "One"
    yield Reply("Two")


async def call_by_list(prompt: Prompt) -> Reply:
    mistaken: Any = [ToolCall("", "look", "{}")]
    return Reply("", calls=mistaken)


async def call_by_object(prompt: Prompt) -> Reply:
    mistaken: Any = {"what": "out"}
    return Reply("", calls=(ToolCall("", "look", mistaken),))


async def call_nothing(prompt: Prompt) -> Reply:
    mistaken: Any = ("look",)
    return Reply("", calls=mistaken)


async def count_by_mapping(prompt: Prompt) -> Reply:
    mistaken: Any = {"input_tokens": 3}
    return Reply("Hi", usage=mistaken)


async def say_none(prompt: Prompt) -> Reply:
    mistaken: Any = None
    return Reply(mistaken)


MISTAKES: Final = {
    return_none: "gave None; a model gives a text or a Reply",
    return_number: "gave int; a model gives a text or a Reply",
    return_nothing: "gave nothing: neither a text nor a call",
    yield_nothing: "gave nothing: neither a text nor a call",
    speak_behind: "gave something behind its Reply, which is the end",
    say_another: "gave a Reply whose content is not the text that it gave piece by piece",
    call_by_list: "gave a Reply with calls that are no ToolCall of three texts",
    call_by_object: "gave a Reply with calls that are no ToolCall of three texts",
    call_nothing: "gave a Reply with calls that are no ToolCall of three texts",
    count_by_mapping: "gave a Reply whose usage is no Usage",
    say_none: "gave a Reply with NoneType as content; a model gives a text or a Reply",
}


@pytest.mark.parametrize("answer", MISTAKES, ids=lambda answer: answer.__name__)
def test_mistake_of_the_author_is_said_in_the_log(answer: Callable[..., Any]) -> None:
    with client(answer) as it:
        run = it.run("a", "go")
        lines = [log for log in it.logs if log.event == "model_failed"]
        (error,) = it.take_errors()

    assert run.error_type == "model_failed"
    assert [dict(line.fields)["error"] for line in lines] == [MISTAKES[answer]]
    assert isinstance(error, Mistake)


def test_reply_may_repeat_what_was_heard() -> None:
    async def answer(prompt: Prompt) -> AsyncIterator[str | Reply]:
        yield "One "
        yield "two"
        yield Reply("One two", Usage(1, 1))

    with client(answer) as it:
        assert it.run("a", "go").content == "One two"


def test_empty_reply_is_one() -> None:
    async def answer(prompt: Prompt) -> Reply:
        return Reply("", Usage(1, 0))

    with client(answer) as it:
        assert (it.run("a", "go").status, it.run("a", "go").content) == ("COMPLETED", "")


@pytest.mark.parametrize("streams", [False, True])
def test_function_that_is_silent_for_too_long_is_given_up(*, streams: bool) -> None:
    async def sleep(prompt: Prompt) -> str:
        await anyio.sleep(6)
        return "late"

    async def stop(prompt: Prompt) -> AsyncIterator[str]:
        yield "Well, "
        await anyio.sleep(6)
        yield "late"

    with client(stop if streams else sleep, timeout_seconds=5) as it:
        run = it.run("a", "go")
        assert it.clock.elapsed == 5

    assert run.error_type == "model_timeout"


def test_answer_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(custom, "MAX_ANSWER", 10)
    closed: list[str] = []

    async def answer(prompt: Prompt) -> AsyncIterator[str]:
        try:
            while True:
                yield "word "
        finally:
            closed.append("closed")

    with client(answer) as it:
        run = it.run("a", "go")

    assert run.error_type == "model_too_large"
    assert closed == ["closed"]


def test_function_is_cancelled_with_its_run() -> None:
    ended: list[str] = []

    async def answer(prompt: Prompt) -> AsyncIterator[str]:
        yield "Well, "
        try:
            await anyio.sleep(60)
        finally:
            ended.append("cancelled")

    with client(answer) as it:
        form = {"message": "go", "background": True, "session_id": "s"}
        run = it.post("/agents/a/runs", form=form).json()
        it.advance(1)
        it.post(f"/agents/a/runs/{run['run_id']}/cancel")
        it.advance(2)
        state = it.get(f"/agents/a/runs/{run['run_id']}").json()["status"]

    assert state == "CANCELLED"


async def plain(prompt: Prompt) -> str:
    return "Hi"


async def stream(prompt: Prompt) -> AsyncIterator[str]:
    yield "Hi"


def test_model_can_be_cancelled_anywhere() -> None:
    whole = [
        (SETTLED, None),
        (CallFunction(plain, {"prompt": PROMPT}, 120.0), Raised(OSError())),
        ("Log", None),
    ]
    script = [(SETTLED, None), (CallFunction, Returned("Hi"))]

    assert play(CustomModel("m", plain).respond(PROMPT, Ear()), script) == Reply("Hi")
    assert (
        close_at_every_effect(lambda: CustomModel("m", plain).respond(PROMPT, Ear()), script) == 2
    )
    assert whole[1][0] == CallFunction(plain, {"prompt": PROMPT}, 120.0)


def test_prompt_is_given_under_the_name_of_the_parameter() -> None:
    async def by_name(tell: int = 3, *, asked: Prompt) -> str:
        return asked.messages[-1].content

    async def optional(asked: Prompt | None = None) -> str:
        return "" if asked is None else asked.messages[-1].content

    class Called:
        async def __call__(self, asked: Prompt) -> str:
            return asked.messages[-1].content

    async def bound(prefix: str, asked: Prompt) -> str:
        return prefix + asked.messages[-1].content

    for function in (by_name, optional, Called(), partial(bound, "")):
        with client(function) as it:
            assert it.run("a", "Where?").content == "Where?"


def take_none() -> None: ...


def take_two(prompt: Prompt, other: int) -> None: ...


class Unsigned:
    __signature__ = 3

    async def __call__(self, prompt: Prompt) -> str:
        raise AssertionError(prompt)


def yield_plainly(prompt: Prompt) -> Any:
    yield "Hi"


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (3, "int is no function"),
        (take_none, "take_none must take one argument, the prompt"),
        (take_two, "take_two must take one argument, the prompt"),
        (Unsigned(), "Unsigned must take one argument, the prompt"),
        (yield_plainly, "yield_plainly is a generator; only an async one is heard piece by piece"),
    ],
)
def test_function_that_cannot_be_asked_is_refused(answer: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        CustomModel("m", answer)


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan")])
def test_time_that_is_none_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="timeout_seconds must be a finite number"):
        CustomModel("m", plain, timeout_seconds=seconds)


def test_files_that_it_takes_are_named() -> None:
    assert CustomModel("m", plain).accepts == ("image/*",)
    assert CustomModel("m", plain, accepts="application/pdf").accepts == ("application/pdf",)
    assert CustomModel("m", plain, accepts=["a/b"]).accepts == ("a/b",)
    assert repr(CustomModel("m", plain)).startswith("CustomModel(id='m', provider='Custom'")
