from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any, get_args, get_origin

import pytest
from attrs import frozen

from legation import effects
from legation.effects import (
    Asks,
    Effect,
    Emit,
    Fetch,
    FetchReply,
    Job,
    Now,
    Outcome,
    Program,
    Raised,
    RandomBytes,
    Spawn,
    Unreachable,
)
from legation.store.run_rows import StoredEvent
from legation_testing import close_at_every_effect, play

MEMBERS: set[type[Any]] = {get_origin(member) or member for member in get_args(Effect)}


def subclasses(of: type[Any]) -> Iterator[type[Any]]:
    for kind in of.__subclasses__():
        yield kind
        yield from subclasses(kind)


def program() -> Program[tuple[int, bytes]]:
    now_us = yield from Now()
    return now_us, (yield from RandomBytes(2))


def test_an_effect_is_what_its_answer_comes_back_from() -> None:
    script = [(Now(), 7), (RandomBytes(2), b"ab")]

    assert play(program(), script) == (7, b"ab")
    assert close_at_every_effect(program, script) == 2


def test_an_effect_may_be_answered_with_an_exception() -> None:
    with pytest.raises(LookupError):
        play(program(), [(Now(), LookupError())])


def test_the_union_holds_every_effect_of_the_module() -> None:
    gc.collect()  # attrs makes each class anew, with slots; the first is a subclass until then
    ours = [kind for kind in subclasses(Asks) if kind.__module__ == effects.__name__]
    defined = {kind for kind in ours if not kind.__name__.startswith("_")}  # which is a base

    assert defined == MEMBERS
    assert {kind.__name__ for kind in MEMBERS} <= set(effects.__all__)


@pytest.mark.parametrize("kind", sorted(MEMBERS, key=str))
def test_every_effect_is_a_frozen_value_that_says_what_it_is(kind: type[Any]) -> None:
    assert "__setattr__" in vars(kind)
    assert "__eq__" in vars(kind)
    assert (kind.__doc__ or "").strip()


def test_effects_are_equal_by_value() -> None:
    assert Fetch("GET", "https://a") == Fetch("GET", "https://a")
    assert Emit(b"a") != Emit(b"b")
    assert StoredEvent(1, "a", "{}") == StoredEvent(1, "a", "{}", final=False)
    assert FetchReply(200, {}, b"") == FetchReply(200, {}, b"")
    assert Unreachable("connect") == Unreachable("connect")


def test_the_headers_of_a_request_sent_out_do_not_show() -> None:
    assert "hunter2" not in repr(Fetch("GET", "https://a", (("authorization", "hunter2"),)))


@frozen
class Twice:
    def program(self) -> Program[None]:
        yield from Now()
        yield from Now()


def test_a_job_is_anything_with_a_program() -> None:
    assert isinstance(Twice(), Job)
    assert Spawn(Twice()) == Spawn(Twice(), Outcome[None]())
    assert not isinstance(object(), Job)
    play(Twice().program(), [(Now(), 1), (Now(), 2)])


def test_a_function_fails_by_an_exception_whatever_it_raises() -> None:
    error, leaving = KeyError("x"), SystemExit(3)

    assert Raised.by(error) == Raised(error)
    told = Raised.by(leaving).error
    assert (type(told), told.args, told.__cause__) == (RuntimeError, ("SystemExit",), leaving)


def test_an_outcome_is_told_once_to_whoever_waits_for_it() -> None:
    outcome = Outcome[str]()
    outcome.waiter = "somebody"

    assert outcome.tell("done") == "somebody"
    assert (outcome.over, outcome.result) == (True, "done")
    assert outcome.tell("done") is None
