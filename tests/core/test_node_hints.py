"""Which words go to which node, and what becomes of words that others send, or make up."""

from __future__ import annotations

from typing import Final

import pytest
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from legation.node_hints import (
    EVERYBODY,
    FOLLOWED_RUNS,
    FOLLOWING_NODES,
    KEPT_SECONDS,
    PAYLOAD_BYTES,
    PENDING_WORDS,
    RENEWED_SECONDS,
    NodeHints,
)
from legation.node_state import NodeState, digest

HERE: Final = "here"
THERE: Final = digest("there")
RUN: Final = digest("r")
ALL: Final = 1_000
LOOK: Final = f"e{RUN}:1000000000"


@define
class Heard:
    """What a node hears."""

    nudges: list[str] = field(factory=list[str])
    events: list[tuple[str, int]] = field(factory=list[tuple[str, int]])

    def hear_nudge(self, key: str) -> None:
        self.nudges.append(key)

    def hear_event(self, key: str, seq: int) -> None:
        self.events.append((key, seq))


@pytest.fixture
def hints() -> NodeHints:
    return NodeHints(HERE)


def hear(hints: NodeHints, payload: str, now: float = 0.0) -> int:
    return hints.hear(payload, Heard(), now)


def follows(number: int = 0, run: str = RUN) -> str:
    return f"f{run}:{digest(f'node {number}')}"


# --- To whom it goes ---------------------------------------------------------------------------


def test_a_nudge_goes_to_the_node_that_is_named_or_to_all_and_never_to_itself(
    hints: NodeHints,
) -> None:
    hints.nudge("t", "there")
    hints.nudge("u")
    hints.nudge("t", HERE)

    assert hints.is_pending
    assert hints.take(ALL) == ((THERE, f"n{digest('t')}"), (EVERYBODY, f"n{digest('u')}"))
    assert not hints.is_pending


def test_an_event_of_a_run_that_nobody_follows_goes_nowhere(hints: NodeHints) -> None:
    hints.event("r", 1, 0.0)
    hear(hints, follows(run=digest("another")))
    hints.take(ALL)
    hints.event("r", 2, 0.0)

    assert hints.take(ALL) == ()


def test_whoever_follows_a_run_looks_once_and_is_told_of_its_events_from_then_on() -> None:
    one, other = NodeHints("one"), NodeHints("other")
    other.follow("r", "one", 0.0)
    ((address, payload),) = other.take(ALL)

    assert address == one.address
    assert hear(one, payload) == 1
    assert one.take(ALL) == ((other.address, LOOK),)
    one.event("r", 7, 1.0)
    one.event("r", 8, 1.0)
    ((address, payload),) = one.take(ALL)
    heard = Heard()
    assert other.hear(payload, heard, 1.0) == 1
    assert (address, heard.events) == (other.address, [(RUN, 8)])


def test_a_look_that_finds_nothing_is_one_look() -> None:
    state = NodeState[str]()
    NodeHints(HERE).hear(LOOK, state, 0.0)

    assert state.next_events("r", 5, "me") == ()
    assert state.next_events("r", 5, "me") is None


def test_whoever_follows_says_so_again_and_not_each_time(hints: NodeHints) -> None:
    said: list[float] = []
    for tenth in range(300):
        hints.follow("r", "there", tenth / 10)
        said += [tenth / 10] * len(hints.take(ALL))

    assert said == [0.0, RENEWED_SECONDS, 2 * RENEWED_SECONDS]


def test_who_executes_a_run_itself_tells_nobody(hints: NodeHints) -> None:
    hints.follow("r", HERE, 0.0)

    assert not hints.is_pending


def test_another_holder_of_the_run_is_told_at_once(hints: NodeHints) -> None:
    hints.follow("r", "there", 0.0)
    hints.follow("r", "elsewhere", 1.0)

    assert [address for address, _ in hints.take(ALL)] == [THERE, digest("elsewhere")]


def test_a_follower_that_falls_silent_is_told_no_more(hints: NodeHints) -> None:
    hear(hints, follows(1))
    hear(hints, follows(2), 5.0)
    hear(hints, follows(1), KEPT_SECONDS)  # renewed: it need not look
    hints.take(ALL)

    hints.event("r", 1, KEPT_SECONDS + 6)
    assert hints.take(ALL) == ((digest("node 1"), f"e{RUN}:1"),)
    hints.event("r", 2, 2 * KEPT_SECONDS + 1)
    assert not hints.is_pending
    assert not hints._followers
    hear(hints, follows(1), 3 * KEPT_SECONDS)
    assert hints.take(ALL) == ((digest("node 1"), LOOK),)


# --- Bounds ------------------------------------------------------------------------------------


def test_a_run_is_told_of_to_so_many_nodes_and_the_rest_ask() -> None:
    hints = NodeHints(HERE)
    for number in range(FOLLOWING_NODES + 5):
        hear(hints, follows(number))
    hints.take(ALL)
    hints.event("r", 1, 0.0)

    assert len(hints.take(ALL)) == FOLLOWING_NODES


def test_so_many_runs_are_followed_and_those_of_the_silent_make_room() -> None:
    hints = NodeHints(HERE)
    for number in range(FOLLOWED_RUNS + 5):
        hints.follow(str(number), "there", 0.0)
        hear(hints, follows(run=digest(str(number))))
    assert len(hints._followed) == len(hints._followers) == FOLLOWED_RUNS

    hints.follow("late", "there", KEPT_SECONDS + 1)
    hear(hints, follows(run=digest("late")), KEPT_SECONDS + 1)
    assert list(hints._followed) == [("there", "late")]
    assert list(hints._followers) == [digest("late")]


def test_what_is_to_be_told_is_bounded_and_dropped_where_nobody_can_be(hints: NodeHints) -> None:
    for number in range(PENDING_WORDS + 10):
        hints.nudge(str(number), f"node {number % 7}")
        hints.nudge("0", "node 0")  # the same again takes no room

    assert sum(len(words) for words in hints._pending.values()) == PENDING_WORDS
    hints.clear()
    assert not hints.is_pending
    hints.nudge("t")
    assert len(hints.take(ALL)) == 1


def test_payloads_are_as_long_as_postgresql_takes_and_the_rest_is_kept(hints: NodeHints) -> None:
    for number in range(1_000):
        hints.nudge(str(number), "there")
        hints.nudge(str(number), "elsewhere")
    payloads: list[tuple[str, str]] = []
    while taken := hints.take(1):
        payloads += taken

    assert max(len(payload) for _, payload in payloads) <= PAYLOAD_BYTES
    for node in (THERE, digest("elsewhere")):
        words = [word for to, payload in payloads if to == node for word in payload.split(" ")]
        assert words == [f"n{digest(str(number))}" for number in range(1_000)]
    assert hints._size == 0


# --- What is heard -----------------------------------------------------------------------------


@given(st.dictionaries(st.text(max_size=20), st.integers(1, 10**12), max_size=40))
def test_what_is_told_is_heard_and_no_name_leaves_as_it_is(told: dict[str, int]) -> None:
    hints, heard = NodeHints(HERE), Heard()
    hear(hints, " ".join(follows(run=digest(name)) for name in told))
    hints.take(ALL)
    for name, seq in told.items():
        hints.nudge(name, "node 0")
        hints.event(name, seq, 0.0)
    for _, payload in hints.take(ALL):
        hints.hear(payload, heard, 0.0)

    assert heard.nudges == [digest(name) for name in told]
    assert heard.events == [(digest(name), seq) for name, seq in told.items()]


@given(st.from_regex(r"([enf][a-zA-Z0-9_-]{0,13}(:[0-9x]{0,25})? ?){0,9}") | st.text(max_size=99))
def test_whatever_is_heard_is_taken_or_passed_over(payload: str) -> None:
    assert 0 <= hear(NodeHints(HERE), payload) <= payload.count(" ") + 1


@pytest.mark.parametrize(
    "word", ["", "n", "nt:1", "er", "er:x", "er:", "e:1", "x", f"f{RUN}", f"f{RUN}:x", f"fx:{RUN}"]
)
def test_words_of_another_kind_are_passed_over(word: str, hints: NodeHints) -> None:
    assert hear(hints, word) == 0


def test_a_follower_that_is_made_up_is_no_word_of_sql(hints: NodeHints) -> None:
    hear(hints, "f" + RUN + ':"},{"x","y')
    hints.event("r", 1, 0.0)

    assert hints.take(ALL) == ()
