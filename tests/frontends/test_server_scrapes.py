"""The links of a scrape: a parent and its workers, over real pairs of sockets in one process."""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import pytest
import trio
import trio.testing
from attrs import define, field

from legation.observability.merging import Snapshot, encode_snapshot
from legation.observability.prometheus import Family, Sample
from legation_server.scrape_links import LONGEST, BadFrame, Frame, Frames, Kind, pack
from legation_server.scrapes import Link, Scrapes
from legation_server.worker_link import ParentSilent, WorkerLink

PATIENCE: Final = 30.0
MANY: Final = 8_000
"""So many samples are longer than what the system keeps of a stream."""


def measured(done: int, series: int = 1) -> Snapshot:
    names = (f"a series of its own, {number}" for number in range(series))
    samples = tuple(Sample(done, (("name", name),)) for name in names)
    return Snapshot((Family("done_total", "counter", "", samples),))


def values(snapshot: Snapshot) -> dict[str, float]:
    return {family.name: family.samples[0].value for family in snapshot.families}


@define(eq=False)
class Parent:
    """A parent without processes; its workers are tasks, and have the numbers from 0."""

    scrapes: Scrapes = field(factory=lambda: Scrapes(clock=trio.current_time))
    selector: selectors.BaseSelector = field(factory=selectors.DefaultSelector)
    links: list[WorkerLink] = field(factory=list[WorkerLink])
    ends: list[socket.socket] = field(factory=list[socket.socket])
    scopes: dict[WorkerLink, trio.CancelScope] = field(factory=dict[WorkerLink, trio.CancelScope])
    looks: bool = True

    def add(self) -> WorkerLink:
        """Make the link of another worker."""
        pair = socket.socketpair()
        pid, kept = len(self.links), pair[1].dup()
        self.scrapes.add(pid, pair, self.selector)
        self.scrapes.come_up(pid)
        self.links.append(WorkerLink(kept))
        self.ends.append(kept)
        return self.links[-1]

    def cancel(self, pid: int) -> None:
        """End the task of a worker, whose end of its link stays open."""
        self.scopes[self.links[pid]].cancel()

    def look(self) -> None:
        """Do what is to be done now."""
        for key, events in self.selector.select(0):
            assert isinstance(key.data, Link)
            self.scrapes.serve(key.data, events)
        self.scrapes.advance()

    async def serve(self) -> None:
        """Look again and again."""
        while True:
            if self.looks:
                self.look()
            await trio.sleep(0.001)

    async def run(self, link: WorkerLink, measure: Callable[[], Snapshot]) -> None:
        """Be a worker until its scope is cancelled."""
        with trio.CancelScope() as scope:
            self.scopes[link] = scope
            await link.serve(measure)


@asynccontextmanager
async def parent_of(*measures: Callable[[], Snapshot]) -> AsyncGenerator[Parent]:
    """Run a worker for each of `measures`, and their parent."""
    parent = Parent()
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(parent.serve)
            for measure in measures:
                nursery.start_soon(parent.run, parent.add(), measure)
            await trio.testing.wait_all_tasks_blocked()
            yield parent
            nursery.cancel_scope.cancel()
    parent.scrapes.close()
    parent.selector.close()
    for pid in range(len(parent.links)):
        parent.ends[pid].close()


async def test_whichever_is_scraped_knows_the_whole() -> None:
    async with parent_of(*(partial(measured, number) for number in (1, 20, 300))) as parent:
        found = [values(await link.gather()) for link in parent.links]

    whole = {"done_total": 321, "legation_workers": 3, "legation_workers_scraped": 3}
    assert found == [whole] * 3


async def test_what_is_longer_than_a_buffer_is_summed_up() -> None:
    async with parent_of(*[partial(measured, 1, MANY)] * 3) as parent:
        whole = await parent.links[1].gather()

    assert len(encode_snapshot(whole)) > 1 << 18
    assert whole.families[0].name == "done_total"
    assert {sample.value for sample in whole.families[0].samples} == {3}
    assert len(whole.families[0].samples) == MANY


async def test_scrapes_that_come_together_are_answered_by_a_round_after_them() -> None:
    done = [0, 0]

    def measure(number: int) -> Snapshot:
        done[number] += 1
        return measured(done[number])

    found: list[float] = []

    async def scrape(link: WorkerLink) -> None:
        found.append(values(await link.gather())["done_total"])

    async with parent_of(partial(measure, 0), partial(measure, 1)) as parent:
        parent.looks = False
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                for link in parent.links:
                    nursery.start_soon(scrape, link)
            await trio.testing.wait_all_tasks_blocked()
            parent.looks = True

    assert len(found) == 6
    # A round for the first of each, one for those that came meanwhile, and never one for each.
    assert done[0] == done[1] <= 4
    assert max(found) == sum(done)


async def test_nothing_is_kept_of_scrapes_that_were_given_up() -> None:
    async with parent_of(partial(measured, 1)) as parent:
        [link] = parent.links
        parent.looks = False
        async with trio.open_nursery() as nursery:
            for _ in range(4):  # one that the parent was asked for, and three behind it
                nursery.start_soon(link.gather)
            await trio.testing.wait_all_tasks_blocked()
            kept = len(link._waiting), len(link._next)
            nursery.cancel_scope.cancel()
        given_up = len(link._waiting), len(link._next)
        parent.looks = True
        whole = values(await link.gather())

    assert (kept, given_up) == ((1, 3), (1, 0))
    assert whole == {"done_total": 1, "legation_workers": 1, "legation_workers_scraped": 1}


async def test_a_worker_that_hangs_is_left_out_and_told_of(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with parent_of(partial(measured, 1), partial(measured, 2)) as parent:
        parent.cancel(1)  # it neither answers nor closes its end
        whole = await parent.links[0].gather()

    assert values(whole) == {"done_total": 1, "legation_workers": 2, "legation_workers_scraped": 1}


async def test_a_worker_that_speaks_nonsense_is_not_listened_to_any_more() -> None:
    async with parent_of(partial(measured, 1), partial(measured, 2)) as parent:
        await parent.links[0].gather()
        parent.ends[1].sendall(b"nonsense!")
        whole = values(await parent.links[0].gather())

    assert whole == {"done_total": 3, "legation_workers": 2, "legation_workers_scraped": 1}


async def test_what_cannot_be_read_is_as_good_as_nothing() -> None:
    async with parent_of(partial(measured, 1), partial(measured, 2)) as parent:
        parent.ends[1].sendall(pack(Frame(Kind.SNAPSHOT, b"[[")))
        whole = values(await parent.links[0].gather())

    assert whole == {"done_total": 1, "legation_workers": 2, "legation_workers_scraped": 1}


async def test_the_last_word_comes_behind_what_was_begun() -> None:
    async with parent_of(partial(measured, 1), partial(measured, 7, MANY)) as parent:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(parent.links[0].gather)
            with trio.move_on_after(PATIENCE):
                while not parent.links[1]._unsent:
                    await trio.sleep(0.001)
            parent.looks = False
            parent.cancel(1)
            await trio.testing.wait_all_tasks_blocked()
            last = partial(parent.links[1].end, measured(8, MANY))
            worker = threading.Thread(target=last)
            worker.start()
            parent.looks = True
            await trio.to_thread.run_sync(worker.join)
        parent.scrapes.remove(1)
        whole = await parent.links[0].gather()

    assert values(whole) == {"done_total": 9, "legation_workers": 1, "legation_workers_scraped": 1}


async def test_the_last_word_is_taken_when_its_process_has_ended() -> None:
    async with parent_of(partial(measured, 1), partial(measured, 2)) as parent:
        parent.looks = False
        parent.cancel(1)
        await trio.testing.wait_all_tasks_blocked()
        parent.links[1].end(measured(50))
        parent.scrapes.remove(1)
        parent.looks = True
        whole = values(await parent.links[0].gather())

    assert whole == {"done_total": 51, "legation_workers": 1, "legation_workers_scraped": 1}


async def test_without_a_parent_there_is_no_answer() -> None:
    ours, theirs = socket.socketpair()
    link = WorkerLink(theirs)
    with pytest.raises(ParentSilent):  # it does not serve yet
        await link.gather()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(link.serve, partial(measured, 1))
        await trio.testing.wait_all_tasks_blocked()
        for answer in (pack(Frame(Kind.WHOLE)), b""):  # too long, and gone
            async with trio.open_nursery() as waiting:
                waiting.start_soon(is_silent, link)
                await trio.testing.wait_all_tasks_blocked()
                if answer:
                    ours.sendall(answer)
                else:
                    ours.close()
    with pytest.raises(ParentSilent):
        await link.gather()
    link.end(measured(1))  # nobody hears it


async def is_silent(link: WorkerLink) -> None:
    with pytest.raises(ParentSilent):
        await link.gather()


def test_a_worker_has_its_own_end_alone() -> None:
    parent, selector = Scrapes(), selectors.DefaultSelector()
    first, second = socket.socketpair(), socket.socketpair()
    parent.add(1, first, selector)
    parent.become(second)

    assert parent.own is second[1]
    assert [end.fileno() for end in (*first, second[0])] == [-1, -1, -1]
    selector.close()
    second[1].close()


# --- Frames -------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_frames_are_read_however_they_come(size: int) -> None:
    sent = [Frame(Kind.ASK), Frame(Kind.SNAPSHOT, b"x" * 20), Frame(Kind.WHOLE, b"[]")]
    data = b"".join(map(pack, sent))
    frames = Frames()
    pieces = (data[start : start + size] for start in range(0, len(data), size))

    assert [frame for piece in pieces for frame in frames.feed(piece)] == sent


@pytest.mark.parametrize("data", [b"z\0\0\0\0", b"a\xff\xff\xff\xff"])
def test_what_is_no_frame_is_told(data: bytes) -> None:
    with pytest.raises(BadFrame, match="a frame of"):
        list(Frames().feed(data))


def test_a_content_that_is_too_long_is_left_out() -> None:
    assert pack(Frame(Kind.WHOLE, bytes(LONGEST + 1))) == pack(Frame(Kind.WHOLE))
