"""Faults in how names are held, and in how those are found whose process has ended."""

from __future__ import annotations

from itertools import count
from typing import Any, Final

from attrs import evolve

from legation.effects import FindDead, HoldName, NameHeld, Program, Sleep
from legation.programs import Handlers

from .planting import Fault, ask, effects_of

__all__ = ["FAULTS"]

_held: Final[set[str]] = set()


@effects_of("HoldName.same")
def place_changes() -> Handlers:
    numbers = count()

    def hold(effect: HoldName) -> Program[Any]:
        return evolve((yield effect), place=f"place {next(numbers)}")

    return {HoldName: hold}


@effects_of("HoldName.same")
def hold_answers_nothing() -> Handlers:
    def hold(effect: HoldName) -> Program[Any]:
        yield effect

    return {HoldName: hold}


@effects_of("HoldName.of_another")
def hold_waits_for_another() -> Handlers:
    def hold(effect: HoldName) -> Program[Any]:
        answer = yield effect
        if effect.name in _held:
            yield from Sleep(5.0)
        _held.add(effect.name)
        return answer

    return {HoldName: hold}


@effects_of("HoldName.unknown_database")
def names_held_for_any_database() -> Handlers:
    def hold(effect: HoldName) -> Program[Any]:
        yield from ()
        return NameHeld()

    return {HoldName: hold}


@effects_of("FindDead.living")
def living_is_dead() -> Handlers:
    def find(effect: FindDead) -> Program[Any]:
        yield effect
        return effect.names

    return {FindDead: find}


@effects_of("FindDead.living")
def own_name_is_dead() -> Handlers:
    own: list[str] = []

    def hold(effect: HoldName) -> Program[Any]:
        own.append(effect.name)
        return (yield effect)

    def find(effect: FindDead) -> Program[Any]:
        found = yield effect
        return (*found, *(name for name in effect.names if name in own))

    return {HoldName: hold, FindDead: find}


@effects_of("FindDead.ended")
def name_forgotten() -> Handlers:
    def find(effect: FindDead) -> Program[Any]:
        yield effect
        return ()

    return {FindDead: find}


@effects_of("FindDead.ended")
def death_told_once() -> Handlers:
    told: set[str] = set()

    def find(effect: FindDead) -> Program[Any]:
        found = yield effect
        news = tuple(name for name in found if name not in told)
        told.update(found)
        return news

    return {FindDead: find}


@effects_of("FindDead.apart")
def names_of_all_databases_mixed() -> Handlers:
    def hold(effect: HoldName) -> Program[Any]:
        yield HoldName("second", effect.name)
        return (yield effect)

    return {HoldName: hold}


@effects_of("FindDead.unknown")
def missing_is_dead() -> Handlers:
    def find(effect: FindDead) -> Program[Any]:
        yield effect
        return effect.names[:1]

    return {FindDead: find}


@effects_of("FindDead.unknown")
def unknown_name_raises() -> Handlers:
    def find(effect: FindDead) -> Program[Any]:
        found = yield effect
        if effect.names and not found:
            raise KeyError(effect.names[0])
        return found

    return {FindDead: find}


@effects_of("FindDead.unknown_database")
def dead_of_another_database() -> Handlers:
    def find(effect: FindDead) -> Program[Any]:
        return (yield from ask(FindDead("first", effect.names)))

    return {FindDead: find}


FAULTS: Final = tuple(value for value in tuple(globals().values()) if isinstance(value, Fault))
