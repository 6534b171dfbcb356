"""Every run of the kits of conformance is exported and replayed: nothing differs.

The runs of every kind there is are broken off and go on, those of the conformance suite are made on
two databases behind a host, and those of the examples by their platforms.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from legation import Platform
from legation_host.loading import load_platform
from legation_testing import Client, Crashed, Recording, ScriptedModel, call, crash_everywhere

from ..recordings import record
from ..transcripts import ROOT
from .conformance import AGENTS, RUN_CASES, Reply, two_databases
from .go_on_kit import CASES, Case, Ground, World
from .served import HOSTS

EVERY: Final = 23
"""The distance between two crashes, in effects: each kind of run is broken off some times."""


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    made = Ground()
    yield made
    made.close()


@pytest.mark.enumeration
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_run_of_every_kind_is_replayed_wherever_it_was_broken_off(
    case: Case, ground: Ground
) -> None:
    world = World(case, ground)

    def make() -> Client:
        nonlocal world
        world = World(case, ground)
        return ground.client(world.platform)

    def act(client: Client) -> None:
        try:
            world.ask(client)
        except Crashed:
            world.note_crash()
            raise

    def check(client: Client) -> None:
        world.live(client)
        called = world.called.copy()
        run_id, _ = world.find() or ("", "")
        recording = Recording(record(client, {"run_id": run_id}))

        replayed = recording.replay(world.platform())

        assert replayed.same, str(replayed)
        assert world.called == called

    assert crash_everywhere(make, act, check, every=EVERY).points > 1


def test_runs_of_the_conformance_suite_are_replayed(
    new_second_database: Callable[[], AbstractContextManager[str]], tmp_path: Path
) -> None:
    first = f"sqlite:///{tmp_path / 'first.db'}"
    with new_second_database() as second:
        platform = two_databases(first, second)
        with HOSTS["in process"](platform) as host:
            for case in RUN_CASES:
                case(host)
            replies = [reply for agent in AGENTS for reply in _export(host, agent)]

    assert len(replies) == 3
    for reply in replies:
        replayed = Recording.decode(reply.body).replay(platform)
        assert replayed.same, str(replayed)


def _export(host: Any, agent: str) -> Generator[Reply]:
    """Yield the recordings of all runs of an agent, as they are served."""
    path = f"/agents/{agent}/runs"
    for run in host.send("GET", f"/runs?db_id={agent}").json()["data"]:
        reply: Reply = host.send("GET", f"{path}/{run['run_id']}/replay")
        assert reply.status == 200, reply.body
        yield reply


BOOKED: Final = '{"order": "A-1", "refunded": 30, "next_step": "none"}'
EXAMPLES: Final[dict[str, tuple[str, str, list[Any]]]] = {
    "shop": ("agents", "clerk", [call("refund", order="A-1", amount=30), "seven", BOOKED]),
    "plain": ("agents", "concierge", ["Good morning."]),
    "newsroom": ("teams", "front-page", ["All of it in one line."]),
}


@contextmanager
def _examples() -> Generator[None]:
    sys.path.insert(0, str(ROOT / "examples"))
    try:
        yield
    finally:
        sys.path.remove(str(ROOT / "examples"))


@pytest.mark.parametrize("name", EXAMPLES)
def test_runs_of_the_examples_are_replayed(name: str) -> None:
    kind, component, steps = EXAMPLES[name]
    with _examples():
        platform: Platform = load_platform(f"{name}:platform", {})
    with Client(platform) as client, client.override(model=ScriptedModel(steps)):
        asked = client.run if kind == "agents" else client.run_team
        run = asked(component, "Hello")
        if run.status == "PAUSED":
            run = client.go_on(run, confirmed=True)
        recording = Recording(record(client, run))

    replayed = recording.replay(platform)

    assert replayed.same, str(replayed)
