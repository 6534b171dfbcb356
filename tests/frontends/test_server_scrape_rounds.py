"""The rounds of a scrape: who is asked, who is waited for, and what is told of whom."""

from __future__ import annotations

import math
from collections import Counter
from typing import Final

from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from legation.observability.merging import Snapshot
from legation.observability.prometheus import Family, Sample
from legation_server.scrape_rounds import ANSWER_SECONDS, Answer, Ask, Rounds, Step


def measured(done: int, busy: int = 0, surveyed_us: int | None = None) -> Snapshot:
    families = (
        Family("done_total", "counter", "", (Sample(done),)),
        Family("busy", "gauge", "", (Sample(busy),)),
    )
    survey = (Family("runs", "gauge", "", (Sample(surveyed_us or 0),)),)
    return Snapshot(families, None if surveyed_us is None else (surveyed_us, survey))


def values(snapshot: Snapshot) -> dict[str, float]:
    """Return the one value of each family."""
    return {family.name: family.samples[0].value for family in snapshot.families}


def whole(workers: int, scraped: int, done: int, busy: int) -> dict[str, float]:
    return {
        "done_total": done,
        "busy": busy,
        "legation_workers": workers,
        "legation_workers_scraped": scraped,
    }


def told(steps: list[Step]) -> dict[int, dict[str, float]]:
    """Return what each worker is answered; nothing else is a step."""
    answers = {step.pid: values(step.snapshot) for step in steps if isinstance(step, Answer)}
    assert len(answers) == len(steps)
    return answers


def three() -> Rounds:
    rounds = Rounds()
    for pid in (1, 2, 3):
        assert rounds.come_up(pid) == []
    return rounds


def test_all_are_asked_and_who_was_scraped_is_told_the_sum() -> None:
    rounds = three()

    assert rounds.gather(2, 0.0) == [Ask(1), Ask(2), Ask(3)]
    assert rounds.due == ANSWER_SECONDS
    assert rounds.take(1, measured(1, 1), 0.0) == []
    assert rounds.take(3, measured(3, 1), 0.0) == []
    assert told(rounds.take(2, measured(2, 1), 0.0)) == {2: whole(3, 3, 6, 3)}
    assert rounds.due == math.inf


def test_who_comes_while_a_round_goes_on_waits_for_the_next() -> None:
    rounds = three()
    rounds.gather(1, 0.0)
    rounds.take(1, measured(1), 0.0)
    rounds.take(2, measured(2), 0.0)

    assert rounds.gather(2, 0.5) == rounds.gather(3, 0.6) == []
    steps = rounds.take(3, measured(3), 1.0)
    assert told(steps[:1]) == {1: whole(3, 3, 6, 0)}
    assert steps[1:] == [Ask(1), Ask(2), Ask(3)]
    assert rounds.due == 1.0 + ANSWER_SECONDS
    for pid in (1, 2):
        rounds.take(pid, measured(10), 1.0)
    assert told(rounds.take(3, measured(10), 1.0)) == {
        2: whole(3, 3, 30, 0),
        3: whole(3, 3, 30, 0),
    }


def test_who_hangs_is_told_of_and_its_counters_are_those_it_had() -> None:
    rounds = three()
    rounds.gather(1, 0.0)
    for pid in (1, 2, 3):
        rounds.take(pid, measured(10, 1), 0.0)

    assert rounds.gather(1, 5.0) == [Ask(1), Ask(2), Ask(3)]
    rounds.take(1, measured(11, 1), 5.0)
    rounds.take(3, measured(11, 1), 5.0)
    assert rounds.advance(6.9) == []
    assert told(rounds.advance(7.0)) == {1: whole(3, 2, 32, 2)}
    # It owes an answer, and is not asked again before it gives that.
    assert rounds.gather(1, 8.0) == [Ask(1), Ask(3)]
    assert rounds.take(2, measured(12, 1), 8.5) == [Ask(2)]
    rounds.take(1, measured(11, 1), 8.5)
    rounds.take(3, measured(11, 1), 8.5)
    assert told(rounds.take(2, measured(13, 1), 9.0)) == {1: whole(3, 3, 35, 3)}


def test_who_dies_in_a_round_is_not_waited_for_and_its_counters_stay() -> None:
    rounds = three()
    rounds.gather(1, 0.0)
    for pid in (1, 2, 3):
        rounds.take(pid, measured(10, 1), 0.0)
    rounds.gather(1, 5.0)
    rounds.take(1, measured(11, 1), 5.0)
    rounds.take(3, measured(11, 1), 5.0)

    assert told(rounds.remove(2, 5.0)) == {1: whole(2, 2, 32, 2)}
    assert rounds.gather(3, 6.0) == [Ask(1), Ask(3)]
    rounds.take(1, measured(11, 1), 6.0)
    assert told(rounds.take(3, measured(11, 1), 6.0)) == {3: whole(2, 2, 32, 2)}


def test_the_last_word_of_a_worker_counts() -> None:
    rounds = three()
    rounds.take(2, measured(50, 1), 0.0)
    rounds.remove(2, 0.0)
    rounds.come_up(4)

    assert rounds.gather(1, 1.0) == [Ask(1), Ask(3), Ask(4)]
    rounds.take(4, measured(1), 1.0)
    rounds.take(1, measured(1), 1.0)
    assert told(rounds.take(3, measured(1), 1.0)) == {1: whole(3, 3, 53, 0)}


def test_the_last_word_is_an_answer_to_a_round() -> None:
    rounds = three()
    rounds.gather(1, 0.0)
    for pid in (1, 3, 2):
        steps = rounds.take(pid, measured(1, 1), 0.0)
    assert told(steps) == {1: whole(3, 3, 3, 3)}
    assert rounds.gather(1, 1.0) == [Ask(1), Ask(2), Ask(3)]
    rounds.take(2, measured(7), 1.0)
    rounds.take(2, measured(8), 1.0)
    rounds.silence(2, 1.0)
    rounds.take(1, measured(1), 1.0)

    assert told(rounds.take(3, measured(1), 1.0)) == {1: whole(3, 3, 10, 0)}


def test_who_comes_up_in_a_round_is_asked_as_well() -> None:
    rounds = three()
    rounds.gather(1, 0.0)
    assert rounds.come_up(4) == [Ask(4)]
    for pid in (1, 2, 3):
        assert rounds.take(pid, measured(1), 0.0) == []

    assert told(rounds.take(4, measured(1), 0.0)) == {1: whole(4, 4, 4, 0)}


def test_who_cannot_be_asked_is_told_of_and_not_waited_for() -> None:
    rounds = three()
    rounds.take(3, measured(9, 9), 0.0)
    assert rounds.silence(3, 0.0) == []

    assert rounds.gather(1, 1.0) == [Ask(1), Ask(2)]
    rounds.take(1, measured(1), 1.0)
    assert told(rounds.take(2, measured(1), 1.0)) == {1: whole(3, 2, 11, 0)}


def test_nobody_is_told_what_nobody_waits_for() -> None:
    rounds = three()
    rounds.gather(1, 0.0)
    rounds.silence(1, 0.0)
    rounds.take(2, measured(1), 0.0)

    assert rounds.take(3, measured(1), 0.0) == []
    assert rounds.due == math.inf
    rounds.gather(2, 0.0)
    rounds.gather(3, 0.0)
    rounds.silence(3, 0.0)
    assert told(rounds.take(2, measured(1), 0.0)) == {2: whole(3, 1, 2, 0)}


def test_who_never_served_is_not_of_them() -> None:
    rounds = three()

    assert rounds.take(9, measured(100), 0.0) == []
    assert rounds.silence(9, 0.0) == []
    assert rounds.remove(9, 0.0) == []
    assert rounds.gather(9, 0.0) == [Ask(1), Ask(2), Ask(3)]
    for pid in (1, 2):
        rounds.take(pid, measured(1), 0.0)
    assert told(rounds.take(3, measured(1), 0.0)) == {9: whole(3, 3, 3, 0)}


def test_where_nobody_is_left_the_counters_are() -> None:
    rounds = Rounds()
    rounds.come_up(1)
    rounds.take(1, measured(5), 0.0)
    rounds.remove(1, 0.0)
    [answer] = rounds.gather(2, 0.0)

    assert isinstance(answer, Answer)
    assert values(answer.snapshot) == {
        "done_total": 5,
        "legation_workers": 0,
        "legation_workers_scraped": 0,
    }


def test_the_newest_survey_is_handed_on() -> None:
    rounds = three()
    rounds.gather(1, 0.0)
    rounds.take(1, measured(1), 0.0)
    rounds.take(2, measured(1, surveyed_us=20), 0.0)
    [answer] = rounds.take(3, measured(1, surveyed_us=10), 0.0)

    assert isinstance(answer, Answer)
    assert answer.snapshot.surveyed is not None
    assert answer.snapshot.surveyed[0] == 20
    rounds.remove(2, 0.0)
    rounds.gather(1, 0.0)
    rounds.take(1, measured(1), 0.0)
    [answer] = rounds.take(3, measured(1, surveyed_us=10), 0.0)
    assert isinstance(answer, Answer)
    assert answer.snapshot.surveyed is not None
    assert answer.snapshot.surveyed[0] == 20


# --- Every order of what can happen -------------------------------------------------------------

WORDS: Final = ("work", "scrape", "answer", "hang", "die", "leave", "start", "wait")


@define(eq=False)
class World:
    """Workers that count, hang, die and leave, and a parent that asks them."""

    rounds: Rounds = field(factory=Rounds)
    now: float = 0.0
    counts: dict[int, int] = field(factory=dict[int, int])
    asked: Counter[int] = field(factory=Counter[int])
    hung: set[int] = field(factory=set[int])
    waiting: set[int] = field(factory=set[int])
    shown: list[float] = field(factory=list[float])
    done: int = 0
    lost: int = 0
    """What was counted by who died, and may be unknown."""
    pids: int = 0

    def start(self) -> None:
        self.pids += 1
        self.counts[self.pids] = 0
        self.act(self.rounds.come_up(self.pids))

    def act(self, steps: list[Step]) -> None:
        for step in steps:
            if isinstance(step, Ask):
                assert not self.asked[step.pid], "it owes an answer"
                self.asked[step.pid] += 1
            else:
                assert step.pid in self.waiting
                self.waiting.discard(step.pid)
                found = values(step.snapshot)
                self.shown.append(found.get("done_total", 0))
                assert found["legation_workers"] == len(self.counts)
                if found["legation_workers_scraped"] == len(self.counts):
                    assert self.done - self.lost <= found["done_total"] <= self.done

    def do(self, word: str, pid: int) -> None:
        if word == "start":
            self.start()
        elif word == "wait":
            self.now += ANSWER_SECONDS
            self.act(self.rounds.advance(self.now))
        elif pid in self.counts:
            self.do_to(word, pid)

    def do_to(self, word: str, pid: int) -> None:
        if word == "work":
            self.counts[pid] += 1
            self.done += 1
        elif word == "scrape" and pid not in self.waiting:
            self.waiting.add(pid)
            self.act(self.rounds.gather(pid, self.now))
        elif word == "hang":
            self.hung ^= {pid}
        elif word == "answer" and self.asked[pid] and pid not in self.hung:
            self.asked[pid] -= 1
            self.act(self.rounds.take(pid, measured(self.counts[pid]), self.now))
        elif word in ("die", "leave"):
            self.end(pid, in_order=word == "leave")

    def end(self, pid: int, *, in_order: bool) -> None:
        if in_order:
            self.asked[pid] = 0
            self.act(self.rounds.take(pid, measured(self.counts[pid]), self.now))
            self.asked[pid] = 0
        else:
            self.lost += self.counts[pid]
        self.waiting.discard(pid)
        del self.counts[pid]
        self.act(self.rounds.remove(pid, self.now))


@given(st.lists(st.tuples(st.sampled_from(WORDS), st.integers(1, 5)), max_size=60))
def test_a_scrape_never_goes_back_and_everybody_is_answered(words: list[tuple[str, int]]) -> None:
    world = World()
    for _ in range(3):
        world.start()
    for word, pid in words:
        world.do(word, pid)
    for _ in range(2):  # the round that goes on, and the next
        world.do("wait", 0)

    assert world.shown == sorted(world.shown)
    assert not world.waiting
    assert world.rounds.due == math.inf
