from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from legation import Agent, Platform
from legation.effects import AwaitNudge, Emit, Log, NextEvents, Now, Nudge, Publish, Transact
from legation.runs.followers import Followed, RunStalled, join, tail, tail_of_member
from legation.runs.register import InFlight
from legation.runs.run_watch import WatchFollowed
from legation.runs.watched_runs import WatchedRun, WatchedRuns, wake_followers, watch_topic
from legation.store.run_reads import EventsPage, FetchEvents, FindProgress, RunProgress
from legation.store.run_rows import ClaimedRun, StoredEvent
from legation_testing import play

SECOND = 1_000_000


def progress(status: str = "RUNNING", last: int = 2, *, held: bool = True) -> RunProgress:
    return RunProgress(status, last, held)


def events(*seqs: int) -> tuple[StoredEvent, ...]:
    return tuple(StoredEvent(seq, "RunContent", '{"run_id":"r"}') for seq in seqs)


# --- What is known of a run ----------------------------------------------------------------------


def test_news_are_what_the_watcher_did_not_know() -> None:
    run = WatchedRun("r")

    assert run.learn(progress(last=2), 0)
    assert not run.learn(progress(last=2), SECOND)
    assert run.learn(progress(last=3), SECOND)
    assert (run.last, run.changes) == (3, 0)
    assert not run.learn(progress(last=1), SECOND)  # a backup was restored
    assert run.last == 3


@pytest.mark.parametrize(
    "found", [progress("COMPLETED"), progress("PAUSED", held=False), None], ids=str
)
def test_an_end_is_told_once(found: RunProgress | None) -> None:
    run = WatchedRun("r")
    run.learn(progress(), 0)

    assert run.learn(found, SECOND)
    assert not run.learn(found, SECOND)
    assert run.changes == 1
    assert not run.stalled


def test_a_run_stalls_when_nobody_has_held_it_for_long() -> None:
    run = WatchedRun("r")
    run.learn(progress(), 0)
    for _ in range(15):
        assert not run.learn(progress(held=False), SECOND)
    assert not run.stalled

    assert run.learn(progress(held=False), SECOND)
    assert run.stalled
    assert not run.learn(progress(held=False), SECOND)
    assert not run.learn(progress(), SECOND)
    assert not run.stalled
    assert (run.left_us, run.changes) == (0, 1)


def test_what_nobody_follows_any_more_is_forgotten() -> None:
    watched = WatchedRuns("main")
    first, second = watched.enter("r"), watched.enter("r")
    assert first is second
    watched.leave(first)
    assert [run.run_id for run in watched] == ["r"]
    watched.leave(second)

    assert len(watched) == 0
    assert watched.enter("r").last == 0


def test_runs_that_are_executed_here_are_asked_for_once() -> None:
    watched, here = WatchedRuns("main"), InFlight[int]()
    watched.executing.add(here)
    run = watched.enter("r")
    here.enter(("main", "r"), 1)
    here.enter(("second", "other"), 1)
    other = watched.enter("other")

    assert watched.executes("r")
    assert not watched.executes("other")
    assert watched.choose() == (other,)  # of the other database is another run
    assert watched.awake
    assert watched.choose() == (run, other)
    assert watched.choose() == (other,)
    watched.leave(other)
    assert watched.choose() == ()
    assert not watched.awake
    here.leave(("main", "r"), 1)
    assert watched.choose() == (run,)
    here.enter(("main", "r"), 2)
    assert watched.choose() == (run,)  # another node may have stored something meanwhile
    assert watched.choose() == ()


def test_whoever_is_woken_finds_that_it_was_told() -> None:
    watched = WatchedRuns("main")
    run = watched.enter("r")

    play(wake_followers(watched), [(Publish("r", ()), None)])
    assert run.wakes == 1


# --- Followers, effect by effect -----------------------------------------------------------------


@pytest.fixture
def platform() -> Platform:
    return Platform(agents=(Agent(id="a"),))


@pytest.fixture
def watched(platform: Platform) -> WatchedRuns:
    watched = platform.context.cluster.member("main").watched
    watched.live = True
    return watched


@pytest.fixture
def followed(platform: Platform) -> Followed:
    run = ClaimedRun("ada", "s", "r", "agent", "a", "{}", 0, 0)
    return Followed(platform.context, "main", run, "A", "r", "/agents/a/runs/r/events")


def fetch(after: int) -> Transact[Any]:
    return Transact("main", FetchEvents("ada", "r", after))


class Hand:
    """Plays a program by hand, with what happens between its effects."""

    def __init__(self, program: Any) -> None:
        self.program = program
        self.now_us = 0
        self.answer: Any = None

    def until(self, expected: Any, answer: Any) -> None:
        """Go on to `expected`, past what is emitted; `answer` is its answer."""
        while True:
            effect = self.program.send(self.answer)
            self.answer = self.now_us if isinstance(effect, Now) else None
            if not isinstance(effect, (Now, Emit)):
                break
        assert effect == expected
        self.answer = answer

    def end(self) -> Any:
        while True:
            try:
                effect = self.program.send(self.answer)
            except StopIteration as done:
                return done.value
            assert isinstance(effect, (Now, Emit)), effect
            self.answer = self.now_us if isinstance(effect, Now) else None


def in_step(program: Any) -> Hand:
    """A follower of a run of this node, behind the event 2."""
    hand = Hand(program)
    hand.until(NextEvents("r", 0, 0.05), events(1, 2))
    return hand


def test_a_follower_of_a_run_that_begins_here_asks_for_nothing(
    followed: Followed, watched: WatchedRuns
) -> None:
    hand = Hand(tail(followed, 0, in_step=True))
    hand.until(NextEvents("r", 0, 1.0), None)
    hand.until(NextEvents("r", 0, 2.0), events(1, 2))
    hand.until(NextEvents("r", 2, 1.0), None)
    hand.program.close()
    assert len(watched) == 0


def test_many_events_are_emitted_in_parts(followed: Followed) -> None:
    program = tail(followed, 0, in_step=True)
    assert isinstance(next(program), NextEvents)

    first, rest = program.send(events(*range(1, 101))), next(program)

    assert isinstance(first, Emit)
    assert isinstance(rest, Emit)
    assert [data.count(b"\n\n") for data in (first.data, rest.data)] == [64, 36]


def test_a_follower_that_was_busy_until_the_hub_forgot_asks(
    followed: Followed, watched: WatchedRuns
) -> None:
    hand = in_step(tail(followed, 0))
    watched.runs["r"].last = 3
    hand.until(NextEvents("r", 2, 0.0), None)
    hand.until(fetch(2), EventsPage(events(3), "RUNNING", 3, held=True))
    for seconds in (1.0, 2.0, 4.0, 8.0, 15.0, 15.0):
        hand.until(NextEvents("r", 3, seconds), None)
    hand.program.close()
    assert len(watched) == 0


def test_a_follower_that_was_not_woken_asks_in_the_end(
    followed: Followed, watched: WatchedRuns
) -> None:
    hand = in_step(tail(followed, 0))
    hand.until(NextEvents("r", 2, 1.0), None)
    watched.runs["r"].last = 3
    hand.until(fetch(2), EventsPage(events(3), "RUNNING", 3, held=True))
    hand.until(NextEvents("r", 3, 1.0), None)


def test_a_follower_asks_again_as_long_as_there_is_more(
    followed: Followed, watched: WatchedRuns
) -> None:
    hand = Hand(tail(followed, 0))
    hand.until(NextEvents("r", 0, 0.05), None)
    hand.until(fetch(0), EventsPage(events(1, 2), "RUNNING", 4, held=True))
    hand.until(NextEvents("r", 2, 0.0), None)
    hand.until(fetch(2), EventsPage(events(3, 4), "RUNNING", 4, held=True))
    hand.until(NextEvents("r", 4, 1.0), events(5))
    hand.until(NextEvents("r", 5, 1.0), ())  # another node said something
    hand.until(fetch(5), EventsPage((), "RUNNING", 5, held=True))
    hand.until(Nudge(watch_topic("main")), None)
    assert watched.awake
    hand.until(NextEvents("r", 5, 2.0), None)


def test_a_follower_that_was_told_asks_for_nothing_it_has(
    followed: Followed, watched: WatchedRuns
) -> None:
    hand = in_step(tail(followed, 0))
    hand.until(NextEvents("r", 2, 1.0), ())
    (run,) = watched
    run.learn(progress(last=2), 0)
    run.wakes += 1
    hand.until(NextEvents("r", 2, 2.0), ())
    run.learn(None, 0)
    run.wakes += 1
    hand.until(fetch(2), EventsPage((), None, 0))
    assert hand.end() is None


def test_a_follower_that_is_woken_while_it_asks_still_hears_another_node(
    followed: Followed, watched: WatchedRuns
) -> None:
    hand = in_step(tail(followed, 0))
    hand.until(NextEvents("r", 2, 1.0), ())
    hand.until(fetch(2), EventsPage((), "RUNNING", 2, held=True))
    watched.runs["r"].wakes += 1
    hand.until(Nudge(watch_topic("main")), None)
    hand.until(NextEvents("r", 2, 2.0), ())  # another node said something meanwhile
    hand.until(fetch(2), EventsPage(events(3), "RUNNING", 3, held=True))
    hand.until(NextEvents("r", 3, 1.0), None)


def test_a_clock_that_is_set_back_costs_a_comment_and_nothing_else(
    followed: Followed, watched: WatchedRuns
) -> None:
    hand = Hand(tail_of_member(followed, 0))
    hand.until(NextEvents("r", 0, 0.05), events(1))
    hand.until(NextEvents("r", 1, 1.0), None)
    hand.now_us = -SECOND
    hand.until(NextEvents("r", 1, 2.0), None)
    hand.now_us = 3600 * SECOND
    hand.until(NextEvents("r", 1, 4.0), None)


def test_a_stream_of_a_member_says_that_it_is_there_while_others_speak(
    followed: Followed, watched: WatchedRuns
) -> None:
    hand = Hand(tail_of_member(followed, 0))
    hand.until(NextEvents("r", 0, 0.05), events(1))
    other = (StoredEvent(2, "RunContent", '{"run_id":"other"}'),)
    hand.until(NextEvents("r", 1, 1.0), other)
    hand.now_us = 14_500_000
    hand.until(NextEvents("r", 2, 0.5), None)


def test_a_follower_that_has_it_all_ends_with_the_run(
    followed: Followed, watched: WatchedRuns
) -> None:
    hand = in_step(tail(followed, 0))
    hand.until(NextEvents("r", 2, 1.0), ())
    watched.runs["r"].changes = 1
    hand.until(fetch(2), EventsPage((), "COMPLETED", 2))
    assert hand.end() is None
    assert not followed.is_over()


def test_a_stream_of_a_member_shows_nothing_twice(followed: Followed, watched: WatchedRuns) -> None:
    program = tail_of_member(followed, 2)
    assert isinstance(program.send(None), Now)
    assert program.send(0) == NextEvents("r", 0, 0.05)
    assert isinstance(program.send(events(1, 2)), Now)
    assert program.send(0) == NextEvents("r", 2, 1.0)
    assert isinstance(program.send(events(3)), Emit)
    program.close()


def test_a_follower_gives_up_what_is_stalled(followed: Followed, watched: WatchedRuns) -> None:
    program = join("main", "ada", "r", watched=watched)
    hand = in_step(program)
    hand.until(NextEvents("r", 2, 1.0), ())
    (run,) = watched
    run.stalled, run.changes = True, 1
    hand.until(fetch(2), EventsPage((), "RUNNING", 2))
    hand.until(Log("warning", "run_stalled", (("run_id", "r"), ("database", "main"))), None)
    with pytest.raises(RunStalled):
        hand.end()
    assert len(watched) == 0


def test_a_follower_stays_with_what_somebody_holds_again(
    followed: Followed, watched: WatchedRuns
) -> None:
    hand = in_step(join("main", "ada", "r", watched=watched))
    hand.until(NextEvents("r", 2, 1.0), ())
    watched.awake = True
    (run,) = watched
    run.stalled, run.changes = True, 1
    hand.until(fetch(2), EventsPage((), "RUNNING", 2, held=True))
    hand.until(NextEvents("r", 2, 2.0), None)


def test_who_joins_without_a_register_asks_by_itself() -> None:
    hand = in_step(join("main", "ada", "r"))
    for seconds in (0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0):
        hand.until(NextEvents("r", 2, seconds), None)
        hand.until(fetch(2), EventsPage((), "RUNNING", 2, held=True))


# --- The watcher, effect by effect ---------------------------------------------------------------


def test_a_round_asks_soon_after_something_happened_and_less_and_less_often(
    platform: Platform, watched: WatchedRuns
) -> None:
    watch = WatchFollowed(platform.context.cluster, "main")
    watched.enter("r")
    pauses: list[float] = []
    for seconds, last in enumerate((2, 2, 2, 2, 2, 2, 2, 3, 3)):
        found = {"r": progress(last=last)}
        asked = Transact("main", FindProgress(("r",)))
        woken = [(Publish("r", ()), None)] if seconds in (0, 7) else []
        again = [(Publish("r", ()), None)] if seconds in (1, 8) else []
        play(watch.round(), [(Now(), seconds * SECOND), *again, (asked, found), *woken])
        pause = watch.pause
        assert isinstance(pause, AwaitNudge)
        pauses.append(pause.timeout_seconds)

    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 0.05, 0.1]


def test_a_round_of_a_process_without_followers_asks_nothing(
    platform: Platform, watched: WatchedRuns
) -> None:
    watch = WatchFollowed(platform.context.cluster, "main")

    play(watch.round(), [(Now(), 0)])
    assert watch.pause == AwaitNudge("followed:main", 1.0)


def test_followers_look_at_their_tokens_when_others_are_trusted(
    platform: Platform, watched: WatchedRuns
) -> None:
    trusted: Callable[[int], bytes] = lambda now_us: b"%d" % (now_us // SECOND)  # noqa: E731
    platform.context.cluster.trust = trusted
    watch = WatchFollowed(platform.context.cluster, "main")
    watched.enter("r")
    asked = (Transact("main", FindProgress(("r",))), {"r": progress(last=0)})

    play(watch.round(), [(Now(), 0), asked])
    woken = (Publish("r", ()), None)
    play(watch.round(), [(Now(), SECOND), woken, asked])
    play(watch.round(), [(Now(), SECOND), woken, asked])  # for who was about to wait
    play(watch.round(), [(Now(), SECOND), asked])
