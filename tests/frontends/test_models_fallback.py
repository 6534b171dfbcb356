"""Runs whose first model fails as providers do, and whose second one is well."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any, Final

import httpx2
from attrs import define, field

from legation import Agent, Database, Model, Platform

from ..providers.anthropic_messages import AnthropicServer
from ..providers.chat_completions import ChatCompletionsServer
from ..providers.model_server import KEY, Cut, Item, Refusal, Said, serving
from .hosted import hosted

RUNS: Final = 40
RETRIES: Final = 2
ANSWER: Final = ("It ", "rains ", "in ", "Oslo.")
FINAL: Final = (400, 401, 403, 404)


def plan_of(message: str) -> list[Item]:
    """Return what the provider does with the attempts of one run: a quarter of them are errors.

    Of all others a third break off, before the head or behind some of their events.
    """
    chance = Random(message)
    return [_draw(chance) for _ in range(20)]


def _draw(chance: Random) -> Item:
    if chance.random() < 0.25:
        return Refusal(chance.choice((*FINAL, 429, 500, 503)))
    if chance.random() < 0.33:
        return Cut(Said(ANSWER, pause_seconds=0.01), chance.choice((None, 0, 1, 3, 5)))
    return Said(ANSWER)


def may_fail(message: str) -> bool:
    """Return whether nothing but its own retries is left of a run, and these are too few."""
    failed, heard = 0, False
    for item in plan_of(message):
        match item:
            case Refusal(status):
                failed += 1
                if status in FINAL or failed > RETRIES:
                    return heard
            case Cut(_, None):
                failed += 1
                if failed > RETRIES:
                    return heard
            case Cut(_, events):
                heard = heard or bool(events)
            case _:
                return False
    return True


MESSAGES: Final = [f"message {n}" for n in range(200) if not may_fail(f"message {n}")][:RUNS]


@define(eq=False)
class Faulty(ChatCompletionsServer):
    """A provider that does with each run what its plan says, whatever comes between."""

    attempts: Counter[str] = field(factory=Counter[str], init=False)

    def take(self, path: str, headers: Any, body: bytes) -> Item:
        """Judge a request, and return what to answer."""
        item = super().take(path, headers, body)
        message = json.loads(body)["messages"][-1]["content"]
        with self.lock:
            self.attempts[message] += 1
            return plan_of(message)[self.attempts[message] - 1] if item == Said(("OK",)) else item


def run(client: httpx2.Client, message: str, stream: bool) -> tuple[str, list[dict[str, Any]]]:
    """Return a message, and the events of its run; that of an end alone, where none is streamed."""
    told = {"message": message, "session_id": message, "stream": str(stream).lower()}
    response = client.post("/agents/a/runs", data=told)
    assert response.status_code == 200, response.text
    if not stream:
        return message, [response.json()]
    lines = [line for line in response.text.splitlines() if line.startswith("data: ")]
    return message, [json.loads(line[6:]) for line in lines]


def test_every_run_with_a_healthy_model_completes_and_none_pays_twice(tmp_path: Path) -> None:
    well: list[Item] = [Said(ANSWER) for _ in range(2 * RUNS)]
    faulty, healthy = Faulty(), AnthropicServer(well)
    with serving(faulty) as first, serving(healthy) as second:
        base: dict[str, Any] = {"api_key_env": "K", "retries": RETRIES}
        platform = Platform(
            databases=[Database("main", f"sqlite:///{tmp_path}/runs.db")],
            models=[
                Model("first", "openai", "gpt", base_url=f"{first}/v1", **base),
                Model("second", "anthropic", "claude", base_url=second, **base),
            ],
            agents=[Agent(id="a", model="first", fallback=["second"])],
            environ={"K": KEY},
        )
        streamed = [(message, number % 2 == 0) for number, message in enumerate(MESSAGES)]
        with (
            hosted(platform) as url,
            httpx2.Client(base_url=url, timeout=60) as client,
            ThreadPoolExecutor(20) as threads,
        ):
            asking = [threads.submit(run, client, *one) for one in streamed]
            runs = [one.result() for one in asking]

    asked = Counter(seen.body["messages"][-1]["content"][0]["text"] for seen in healthy.seen)
    assert len(runs) == RUNS
    assert 5 < len(asked) < RUNS - 5
    assert set(asked.values()) == {1}
    for message, events in runs:
        end = events[-1]
        assert end["content"] == "".join(ANSWER), end
        assert (end["metrics"]["input_tokens"], end["metrics"]["output_tokens"]) == (7, 3)
        if message in asked and len(events) > 1:
            other = next(n for n, event in enumerate(events) if event.get("model") == "claude")
            assert "RunContent" not in [event["event"] for event in events[:other]]
