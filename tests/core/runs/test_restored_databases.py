"""A database restored from a backup under running nodes: no run in two places, and a clear line."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Generator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import define, field

from legation import Agent, Platform
from legation.effects import Now, Spawn, ThisNode
from legation.messaging.answers import AnswerMessage
from legation.messaging.jobs import answer_inbox
from legation.messaging.leases import leases_of
from legation.migrations.catalogue import CATALOGUE
from legation.models.conversation import Prompt
from legation.store.inbox import INBOX, ClaimedMessage
from legation.store.leased_queue import ClaimedItems, ClaimItems, ItemKey, Lease
from legation_testing import Client, Says, ScriptedModel, play

from ...providers.deliveries import platform as correspondent
from ...two_databases import IN_MEMORY

BEAT: Final = 5.0
LOOKS: Final = 2 * BEAT + 2
"""The seconds until a node has noticed, and has compared its leases twice."""

LEASE: Final = 6 * BEAT

_ENDED: Final = ("COMPLETED", "ERROR")


def claims(effect: object) -> bool:
    return isinstance(getattr(effect, "unit", None), ClaimItems)


@define
class World:
    """Two nodes that share two databases in files."""

    folder: Path
    stack: ExitStack
    think_seconds: float = 60.0
    prompts: Counter[str] = field(factory=Counter[str], init=False)
    nodes: list[Client] = field(factory=list[Client], init=False)
    backup: sqlite3.Connection = field(init=False)

    def __attrs_post_init__(self) -> None:
        first = Client(self._make, folder=self.folder)
        self.nodes.append(self.stack.enter_context(first))
        self.add()
        self.nodes[0].advance(BEAT + 1)

    def _make(self) -> Platform:
        def think(prompt: Prompt) -> Says:
            self.prompts[prompt.messages[-1].content] += 1
            return Says("Done.", after_seconds=self.think_seconds)

        agents = (
            Agent(id="clerk", model=ScriptedModel([think] * 50)),
            Agent(id="second", model=ScriptedModel([think] * 50), database="second"),
        )
        return Platform(agents=agents, databases=IN_MEMORY)

    def add(self) -> Client:
        """Start one more node."""
        node = self.stack.enter_context(self.nodes[0].peer(self._make))
        self.nodes.append(node)
        return node

    def ask(self, node: int, session_id: str, agent: str = "clerk") -> str:
        """Ask a node for a run in the background; return its id."""
        form = {"message": session_id, "background": True, "session_id": session_id}
        response = self.nodes[node].post(f"/agents/{agent}/runs", form=form)
        return str(response.json()["run_id"])

    def wait(self, seconds: float) -> None:
        """Let time pass for all nodes."""
        self.nodes[0].advance(seconds)

    def save(self) -> None:
        """Make a backup of the first database."""
        self.backup = sqlite3.connect(":memory:")
        self.stack.enter_context(closing(self.backup))
        with closing(sqlite3.connect(self.folder / "main.db")) as source:
            source.backup(self.backup)

    def restore(self) -> None:
        """Restore the backup under the running nodes."""
        with closing(sqlite3.connect(self.folder / "main.db")) as target:
            self.backup.backup(target)

    def executed(self) -> Counter[str]:
        """Return by how many programs of all nodes each run of the first database is executed."""
        found = Counter[str]()
        for node in self.nodes:
            assert isinstance(node.platform, Platform)
            found.update(run_id for _, run_id in node.platform.context.executing.at("main"))
        return found

    def status(self, run_id: str, agent: str = "clerk") -> Any:
        return self.nodes[0].get(f"/agents/{agent}/runs/{run_id}").json().get("status")

    def ready(self, node: int) -> tuple[int, Any, Any]:
        answer = self.nodes[node].get("/ready")
        databases = answer.json()["databases"]
        return answer.status, databases["main"], databases["second"]

    def lines(self, event: str) -> list[Any]:
        return [dict(log.fields) for log in self.nodes[0].logs if log.event == event]

    def check_the_end(self, *run_ids: str) -> None:
        """Let everything come to its end: each run once, by one node at a time."""
        for _ in range(20):
            self.wait(LEASE / 2)
            assert all(number == 1 for number in self.executed().values())
            if not self.executed() and all(self.status(one) in _ENDED for one in run_ids):
                break
        assert not self.executed()
        for run_id in run_ids:
            names = [
                e.name for e in self.nodes[0].get(f"/agents/clerk/runs/{run_id}/events").events()
            ]
            ends = [name for name in names if name in ("RunCompleted", "RunError", "RunCancelled")]
            assert (len(ends), names[-1]) == (1, ends[0])


@pytest.fixture
def world(tmp_path: Path) -> Generator[World]:
    with ExitStack() as stack:
        yield World(tmp_path, stack)


def test_each_node_says_so_once_and_is_not_ready_until_it_has_compared_its_leases(
    world: World,
) -> None:
    world.save()
    world.wait(LEASE)
    run_id = world.ask(0, "s")
    world.wait(1)
    world.restore()
    world.wait(BEAT + 1)

    assert world.lines("database_restored") == [{"database": "main"}] * 2
    world.wait(LOOKS)
    assert [world.ready(node)[0] for node in (0, 1)] == [200, 200]
    assert world.lines("database_restored") == [{"database": "main"}] * 2
    assert world.status(run_id) is None
    world.check_the_end()


def test_a_node_with_leases_that_it_does_not_execute_is_not_ready_meanwhile(world: World) -> None:
    world.think_seconds = 20.0
    run_id = world.ask(0, "s")
    other = world.ask(0, "s", "second")
    world.wait(1)
    world.save()
    world.wait(30)
    assert (world.status(run_id), world.status(other, "second")) == ("COMPLETED", "COMPLETED")
    world.restore()
    assert world.status(run_id) == "RUNNING"
    world.wait(BEAT + 0.5)

    status, main, second = world.ready(0)
    assert (status, main["serving"], second["serving"]) == (503, False, True)
    assert "backup" in main["detail"]
    assert world.ready(1)[0] == 200
    world.wait(LOOKS)
    assert world.ready(0)[0] == 200
    assert world.lines("runs_orphaned") == [{"database": "main", "runs": 1}]
    world.check_the_end(run_id)
    assert world.status(run_id) == "COMPLETED"
    assert world.status(other, "second") == "COMPLETED"


def test_a_run_that_is_under_way_before_and_after_goes_on_as_if_nothing_had_been(
    world: World,
) -> None:
    run_ids = [world.ask(node, f"s{node}") for node in (0, 1)]
    world.wait(1)
    world.save()
    world.wait(LEASE)
    world.restore()
    world.check_the_end(*run_ids)

    assert [world.status(run_id) for run_id in run_ids] == ["COMPLETED"] * 2
    assert set(world.prompts.values()) == {1}


def test_a_run_that_waited_then_and_is_executed_now_is_executed_once(world: World) -> None:
    world.think_seconds = 10.0
    first, second = world.ask(0, "s"), world.ask(1, "s")
    world.wait(1)
    world.save()
    world.wait(11)
    assert (world.status(first), world.status(second)) == ("COMPLETED", "RUNNING")
    world.restore()
    assert (world.status(first), world.status(second)) == ("RUNNING", "PENDING")
    world.wait(LOOKS)
    assert all(number == 1 for number in world.executed().values())
    world.check_the_end(first, second)
    assert (world.status(first), world.status(second)) == ("COMPLETED", "COMPLETED")


def test_what_the_same_node_claims_once_more_under_the_same_lease_is_executed_once(
    world: World,
) -> None:
    world.nodes[1].crash()
    world.wait(2)
    world.think_seconds = 10.0
    first, second = world.ask(0, "s"), world.ask(0, "s")
    world.wait(1)
    world.save()
    world.think_seconds = 60.0
    world.wait(11)
    world.restore()
    with closing(sqlite3.connect(world.folder / "main.db")) as connection, connection:
        connection.execute("update runs set status = 'ERROR' where run_id = ?", (first,))
    world.wait(2)

    assert world.status(second) == "RUNNING"
    assert world.executed() == {second: 1}
    world.wait(LEASE)
    assert world.executed() == {second: 1}
    assert world.prompts["s"] == 2
    world.check_the_end(second)
    assert world.status(second) == "COMPLETED"


def test_a_node_that_began_after_the_backup_enters_again_and_a_dead_one_is_buried_again(
    world: World,
) -> None:
    world.nodes[1].crash()
    world.save()
    world.wait(BEAT + 1)
    late = world.add()
    world.wait(LEASE)
    world.restore()
    world.wait(LOOKS)

    with closing(sqlite3.connect(world.folder / "main.db")) as connection:
        names = {name for (name,) in connection.execute("select node_id from nodes")}
    assert names == {world.nodes[0].node.name, late.node.name}
    assert late.get("/ready").status == 200
    assert world.ready(0)[1]["cluster"]["nodes"] == 2


@pytest.mark.parametrize("spoil", ["delete from cluster", "delete from nodes", "both"])
def test_rows_of_the_cluster_that_are_gone_come_back(world: World, spoil: str) -> None:
    run_id = world.ask(0, "s")
    world.wait(1)
    statements = ["delete from cluster", "delete from nodes"] if spoil == "both" else [spoil]
    with closing(sqlite3.connect(world.folder / "main.db")) as connection, connection:
        for statement in statements:
            connection.execute(statement)
    world.wait(LOOKS)

    assert [world.ready(node)[0] for node in (0, 1)] == [200, 200]
    assert world.ready(0)[1]["cluster"]["nodes"] == 2
    event = "node_returned" if spoil == "delete from nodes" else "database_restored"
    assert world.lines(event)
    world.check_the_end(run_id)


def test_a_backup_that_others_have_caught_up_with_is_noticed_by_the_own_row(world: World) -> None:
    world.save()
    world.wait(2 * BEAT)
    world.restore()
    with closing(sqlite3.connect(world.folder / "main.db")) as connection, connection:
        connection.execute("update cluster set beats = beats + 99, up_us = up_us + 99000000")
        connection.execute("update nodes set until_us = until_us + 99000000")
    world.wait(BEAT + 1)

    assert world.lines("database_restored") == [{"database": "main"}] * 2


def test_a_backup_of_the_release_before_is_not_served_and_then_noticed(world: World) -> None:
    run_id = world.ask(0, "s")
    world.wait(1)

    def migrate(version: str) -> None:
        query = f"target_version={version}&allow_data_loss=true"
        world.nodes[1].post(f"/databases/main/migrate?{query}").expect_success()

    migrate("2.5.6")
    world.wait(BEAT + 1)
    assert [world.ready(node)[0] for node in (0, 1)] == [503, 503]

    migrate(str(CATALOGUE.latest))
    world.wait(2 * LOOKS)

    assert [world.ready(node)[0] for node in (0, 1)] == [200, 200]
    assert world.lines("database_restored") == [{"database": "main"}] * 2
    world.check_the_end(run_id)


def test_a_message_that_is_given_out_once_more_is_worked_on_once() -> None:
    (worker, *_) = leases_of(correspondent().context)
    lease, another = (Lease(INBOX, ItemKey("chat", item_id), "a", 1) for item_id in ("m", "n"))
    worker.enter(lease)
    member = worker.context.cluster.member(worker.database)
    member.beaten_us, member.late_us = 1, 3
    claimed = tuple(ClaimedMessage(each, "49", "{}", 1, 1, None) for each in (lease, another))
    job = answer_inbox(worker)
    script = [
        (ThisNode(), "a"),
        (Now(), 2),
        (claims, ClaimedItems(claimed)),
        (Spawn(AnswerMessage(worker, claimed[1])), None),
    ]

    assert play(job.round(), script) is False
    assert worker.list_leases(INBOX) == (lease, another)
