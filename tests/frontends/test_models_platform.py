"""Runs against providers of models, from a client's socket to the provider's and back."""

from __future__ import annotations

import json
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

import httpx2
import pytest
from attrs import frozen

from legation import Agent, Database, Model, Platform, tool
from legation.config import Provider
from legation.models.trouble import SENTENCES

from ..providers.anthropic_messages import AnthropicServer
from ..providers.chat_completions import ChatCompletionsServer
from ..providers.documents import make_pdf
from ..providers.model_server import (
    KEY,
    Cut,
    Hangs,
    Huge,
    Item,
    ModelServer,
    Nonsense,
    Refusal,
    Said,
    serving,
)
from .hosted import hosted

KINDS: Final = {"openai": ChatCompletionsServer, "anthropic": AnthropicServer}
PROVIDERS = pytest.mark.parametrize("provider", KINDS)


@frozen
class Served:
    """A platform with one agent, and the provider that it asks."""

    client: httpx2.Client
    provider: ModelServer

    def run(self, session: str = "s", **form: str) -> list[dict[str, Any]]:
        """Run once; return the events."""
        told = {"message": "Hello", "session_id": session, "stream": "true", **form}
        response = self.client.post("/agents/a/runs", data=told)
        assert response.status_code == 200, response.text
        assert KEY not in response.text
        lines = [line for line in response.text.splitlines() if line.startswith("data: ")]
        return [httpx2.Response(200, content=line[6:]).json() for line in lines]


@contextmanager
def served(
    folder: Path,
    provider: Provider,
    *plan: Item,
    agent: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Generator[Served]:
    server = KINDS[provider](list(plan))
    with serving(server) as address:
        base = f"{address}/v1" if provider == "openai" else address
        model = Model("m", provider, "gpt", base_url=base, api_key_env="K", **settings)
        platform = Platform(
            databases=[Database("main", f"sqlite:///{folder}/runs.db")],
            models=[model],
            agents=[Agent(id="a", model="m", instructions="Be brief.", **(agent or {}))],
            environ={"K": KEY},
        )
        with hosted(platform) as url, httpx2.Client(base_url=url, timeout=20) as client:
            yield Served(client, server)
    assert server.broken == []


@PROVIDERS
def test_an_answer_comes_through_piece_by_piece(provider: Provider, tmp_path: Path) -> None:
    words = tuple(f"word {n} " for n in range(6))
    with served(tmp_path, provider, Said(words, pause_seconds=0.03)) as it:
        events = it.run()

    pieces = [event["content"] for event in events if event["event"] == "RunContent"]
    assert len(pieces) >= 3
    assert "".join(pieces) == "".join(words)
    assert events[-1]["event"] == "RunCompleted"
    assert events[-1]["content"] == "".join(words)
    assert events[-1]["metrics"]["input_tokens"] == 7


@PROVIDERS
def test_the_conversation_goes_on(provider: Provider, tmp_path: Path) -> None:
    with served(tmp_path, provider, Said(("Good morning",)), Said(("Fine",))) as it:
        it.run()
        it.run(message="How are you?")
        first, second = (seen.body for seen in it.provider.seen)

    assert "Good morning" not in str(first)
    assert "Good morning" in str(second)
    assert "How are you?" in str(second)
    assert "Be brief." in str(second)


@PROVIDERS
def test_a_pdf_that_curl_sends_reaches_the_provider_as_it_wants_it(
    provider: Provider, tmp_path: Path
) -> None:
    sent = {"files": ("May \u202e\x07.PDF", make_pdf(), "application/octet-stream")}
    form = {"message": "How much?", "session_id": "s", "stream": "false"}
    accepts = ["application/pdf"]
    with served(tmp_path, provider, Said(("42",)), Said(("43",)), accepts=accepts) as it:
        run = it.client.post("/agents/a/runs", data=form, files=sent).json()
        it.run(message="And June?")
        first, second = (seen.body for seen in it.provider.seen)

    assert (run["status"], run["content"]) == ("COMPLETED", "42")
    part = first["messages"][-1]["content"][0]
    assert part["type"] == {"openai": "file", "anthropic": "document"}[provider]
    assert b64encode(make_pdf()).decode() in str(part)
    assert part["type"] not in str(second)  # the history has messages, and no files


@PROVIDERS
def test_a_pdf_is_refused_before_a_provider_that_takes_none_is_asked(
    provider: Provider, tmp_path: Path
) -> None:
    sent = {"files": ("May.pdf", make_pdf(), "application/pdf")}
    with served(tmp_path, provider) as it:
        refused = it.client.post("/agents/a/runs", data={"message": "?"}, files=sent)
        assert it.provider.seen == []

    assert refused.status_code == 400
    assert "cannot be sent to agent a, which takes image/gif, " in refused.json()["detail"]


def weather(city: str) -> str:
    """Tell the weather.

    Args:
        city: Where.
    """
    return f"Rain in {city}"


@PROVIDERS
def test_tools_are_called_side_by_side_and_their_results_told(
    provider: Provider, tmp_path: Path
) -> None:
    calls = (
        ("call_a", "weather", '{"city": "Oslo"}'),
        ("call_b", "weather", '{"city": "Rome"}'),
        ("call_c", "weather", '{"town": 1}'),
        ("call_d", "no_such_tool", "{}"),
    )
    plan = (Said(("Let me see.",), calls), Said(("Rain everywhere.",)))
    with served(tmp_path, provider, *plan, agent={"tools": [weather]}) as it:
        events = it.run()
        it.run(message="Thanks")
        first, second, third = (str(seen.body) for seen in it.provider.seen)

    assert events[-1]["content"].endswith("Rain everywhere.")
    names = [event["event"] for event in events]
    assert names.count("ToolCallStarted") >= 2
    assert "Rain in Oslo" not in first
    for told in (second, third):
        assert "Rain in Oslo" in told
        assert "Rain in Rome" in told


THOUGHTS: Final = (("The user wants it gone: " * 3, "s+/="), (None, "hidden+/="), ("Grüße", "t"))
COSTS: Final = {"reasoning_tokens": 2, "cache_read_tokens": 4, "cache_write_tokens": 1}


@tool(requires_confirmation=True)
def delete(path: str) -> str:
    """Delete a file."""
    return f"{path} is gone"


@PROVIDERS
def test_what_was_thought_comes_back_with_the_calls_also_behind_a_pause(
    provider: Provider, tmp_path: Path
) -> None:
    first = Said((), (("call_a", "weather", '{"city": "Oslo"}'),), thoughts=THOUGHTS[:1])
    second = Said(
        ("So: ",), (("call_b", "delete", '{"path": "/x"}'),), thoughts=THOUGHTS, apart=(2, 4, 1)
    )
    plan = (first, second, Said(("Gone.",), thoughts=THOUGHTS[1:]), Said(("Yes.",)))
    with served(tmp_path, provider, *plan, agent={"tools": [weather, delete]}) as it:
        events = it.run()
        asked = events[-1]["requirements"][0]["tool_execution"]
        answer = it.client.post(
            f"/agents/a/runs/{events[-1]['run_id']}/continue",
            data={"tools": json.dumps([{**asked, "confirmed": True}]), "stream": "false"},
        )
        it.run(message="Is it?")
        third = it.provider.seen[2].body["messages"]

    completed = [event for event in events if event["event"] == "ModelRequestCompleted"]
    assert answer.json()["content"] == "Gone."
    assert len(it.provider.seen) == 4  # the server has judged what was told again
    if provider == "anthropic":
        kinds = [block["type"] for block in third[-2]["content"]]
        assert kinds == ["thinking", "redacted_thinking", "thinking", "text", "tool_use"]
    assert [completed[1][name] for name in COSTS] == [*COSTS.values()]
    assert answer.json()["metrics"].items() >= COSTS.items()
    assert "hidden" not in str(events) + answer.text


PIXEL: Final = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
)
PICTURES: Final[dict[str, Any]] = {
    "openai": {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
    "anthropic": {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": PIXEL},
    },
}


@PROVIDERS
def test_a_picture_given_inline_is_shown_to_the_model(provider: Provider, tmp_path: Path) -> None:
    inline = json.dumps([{"url": f"data:image/png;base64,{PIXEL}"}])
    with served(tmp_path, provider) as it:
        last = it.run(images=inline)[-1]
        wrong = it.client.post(
            "/agents/a/runs", data={"message": "Hello", "images": inline.replace("png", "svg")}
        )
        (seen,) = it.provider.seen

    assert last["event"] == "RunCompleted"
    assert PICTURES[provider] in seen.body["messages"][-1]["content"]
    assert wrong.status_code == 422


SHAPE: Final = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "degrees": {"type": "integer", "minimum": -90}},
    "required": ["city", "degrees"],
}


@PROVIDERS
def test_an_answer_has_the_shape_that_was_asked_for(provider: Provider, tmp_path: Path) -> None:
    wrong, right = Said(('{"city": ', '"Oslo"}')), Said(('{"city": "Oslo", ', '"degrees": -3}'))
    with served(tmp_path, provider, wrong, right, agent={"output_schema": SHAPE}) as it:
        last = it.run()[-1]

    assert (last["event"], last["content"]) == ("RunCompleted", {"city": "Oslo", "degrees": -3})
    assert len(it.provider.seen) == 2


FAILURES: Final[dict[str, tuple[Item, str]]] = {
    "nonsense": (Nonsense(b"data: nonsense\n\n"), "model_broken"),
    "half": (Cut(Said(("Good ", "morning")), 3), "model_broken"),
    "refusal": (Refusal(401), "model_rejected"),
    "huge": (Huge(40_000_000), "model_too_large"),
    "silence": (Hangs(Said(("Good ",)), 2), "model_timeout"),
    "cut off": (Said(("Half",), finish="length"), "model_truncated"),
}


@PROVIDERS
@pytest.mark.parametrize(("item", "reason"), FAILURES.values(), ids=FAILURES)
def test_a_run_that_fails_says_why_and_the_next_one_works(
    provider: Provider, item: Item, reason: str, tmp_path: Path
) -> None:
    with served(tmp_path, provider, item, retries=0, idle_seconds=0.3) as it:
        failed = it.run()[-1]
        worked = it.run()[-1]

    assert (failed["event"], failed["error_type"]) == ("RunError", reason)
    assert failed["content"].startswith("The model")
    assert (worked["event"], worked["content"]) == ("RunCompleted", "OK")


@PROVIDERS
def test_run_that_is_cancelled_lets_go_of_the_provider(provider: Provider, tmp_path: Path) -> None:
    silent = Hangs(Said(("Good ",)), 2)
    with served(tmp_path, provider, silent) as it:
        events: list[list[dict[str, Any]]] = []
        thread = threading.Thread(target=lambda: events.append(it.run()))
        thread.start()
        run_id = ""
        due = time.monotonic() + 10
        while not run_id and time.monotonic() < due:
            rows = it.client.get("/agents/a/runs", params={"session_id": "s"}).json()
            run_id = rows[0]["run_id"] if it.provider.seen and rows else ""
            time.sleep(0.02)
        assert it.client.post(f"/agents/a/runs/{run_id}/cancel").status_code == 200
        thread.join(10)
        assert it.run()[-1]["event"] == "RunCompleted"

    assert events[0][-1]["event"] == "RunCancelled"


@PROVIDERS
def test_the_model_is_shown_and_its_key_nowhere(provider: Provider, tmp_path: Path) -> None:
    names = {"openai": ("OpenAIChat", "OpenAI"), "anthropic": ("Claude", "Anthropic")}
    with served(tmp_path, provider) as it:
        shown = it.client.get("/agents").json()[0]["model"]
        models = it.client.get("/models").json()

    name, who = names[provider]
    assert shown == {"name": name, "model": "gpt", "provider": who}
    assert models == [{"id": "gpt", "provider": who}]


@PROVIDERS
def test_runs_that_nobody_reads_as_they_come_do_not_fail_by_a_broken_stream(
    provider: Provider, tmp_path: Path, figures: Callable[[str], None]
) -> None:
    """A quarter of the requests is refused, and a third of the answers breaks off."""
    said = Said(("It ", "rains."), tokens=(7, 3))
    random = Random(13)
    plan: list[Item] = [_faulty(random, said) for _ in range(1000)]
    with served(tmp_path, provider, *plan, retries=3) as it, ThreadPoolExecutor(20) as pool:
        form = {"message": "Hello", "stream": "false"}
        asked = [pool.submit(it.client.post, "/agents/a/runs", data=form) for _ in range(20)]
        runs = [each.result().json() for each in asked]
        requests = len(it.provider.seen)

    done = [run for run in runs if run["status"] == "COMPLETED"]
    failed = [run["content"] for run in runs if run not in done]
    assert SENTENCES["broken"] not in failed
    assert {run["content"] for run in done} == {"It rains."}
    assert all(run["metrics"]["output_tokens"] >= 3 for run in done)
    figures(f"models: {len(runs)} runs, {requests} requests, {len(failed)} failed, none by a break")


def _faulty(random: Random, said: Said) -> Item:
    drawn = random.random()
    if drawn < 0.25:
        return Refusal(503)
    return Cut(said, 3) if drawn < 0.5 else said
