"""The pauses of runs as approvals: what was asked of a person, and what came of that."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import ClassVar, Final

from ..values import frozen
from .listed_runs import PAUSE_BYTES
from .once import whole_data
from .units import Dialect, ReadUnit, Sql, Statements, Undo, Unit

__all__ = ["FetchPauses", "ForgetResolution", "Pause", "PauseKey"]

PauseKey = tuple[str, int]
"""A pause of a run: its id, and how many events it had then."""

_OF_KEYS: Final = """from json_each(:keys) k
    join runs r on r.run_id = json_extract(k.value, '$[0]')
    join events e on e.run_id = r.run_id and e.seq = json_extract(k.value, '$[1]')"""
_OF_ANY_KEYS: Final = """from unnest(cast(:ids as text[]), cast(:seqs as bigint[])) as k (id, seq)
    join runs r on r.run_id = k.id join events e on e.run_id = r.run_id and e.seq = k.seq"""


def _true(member: str) -> str:
    """Return a member that is true, in two parts: a colon before a letter makes a parameter."""
    return f"""'"{member}":' || 'true'"""


def _pauses(length: str, keys: str) -> str:
    """Return what reads pauses, and what happened next; a text that is too long is left out.

    Those of the members of a team stand among the events of its run, under the ids of their own.
    """

    def text(events: str) -> str:
        short = f"{length.format(f'{events}.data')} <= :most"
        return f"case when {short} then {whole_data(events, 'r')} end"

    return f"""select e.run_id, e.seq, e.at_us,
        case when instr(e.data, {_true("external_execution_required")}) > 0 then 1 else 0 end,
        case when instr(e.data, {_true("requires_confirmation")}) > 0 then 1 else 0 end,
        {text("e")}, n.name, {text("n")}
    {keys} left join events n on n.run_id = e.run_id and n.seq = e.seq + 1
    where e.name in ('RunPaused', 'TeamRunPaused')
    and instr(e.data, '"run_id":"' || r.run_id || '"') > 0"""


ANY_PAUSES: Final = Sql(
    _pauses("length(cast({} as blob))", _OF_KEYS), _pauses("octet_length({})", _OF_ANY_KEYS)
)
FORGET: Final = Sql(
    """update runs set resolved_us = null, resolved_by = null, resolution = null
    where owner = :owner and run_id = :run_id and resolved_events = :events
    and resolved_us is not null returning run_id"""
)


@frozen
class Pause:
    """One pause of a run.

    Attributes:
        at_us: When it paused.
        external: Whether the client is to execute a call.
        confirms: Whether a person is to confirm a call.
        data: That of the event with which it paused; None where it is long.
        next_name: The name of the event that came next; None where there is none yet.
        next_data: The data of that.
    """

    at_us: int
    external: bool
    confirms: bool
    data: str | None
    next_name: str | None
    next_data: str | None


@frozen
class FetchPauses(ReadUnit[Mapping[PauseKey, Pause]]):
    """The pauses of `keys`, as far as there are any; texts of at most `most` bytes."""

    long: ClassVar[bool] = True

    keys: tuple[PauseKey, ...]
    most: int = PAUSE_BYTES

    def statements(self, dialect: Dialect) -> Statements[Mapping[PauseKey, Pause]]:
        """Yield one read by keys."""
        if dialect is Dialect.SQLITE:
            rows = yield ANY_PAUSES(keys=json.dumps(self.keys), most=self.most)
        else:
            ids, seqs = [run_id for run_id, _ in self.keys], [seq for _, seq in self.keys]
            rows = yield ANY_PAUSES(ids=ids, seqs=seqs, most=self.most)
        return {
            (run_id, seq): Pause(at_us, bool(external), bool(confirms), *texts)
            for run_id, seq, at_us, external, confirms, *texts in rows
        }


@frozen
class ForgetResolution(Unit[bool]):
    """Forget who answered a pause of a run, and when; whether that was known."""

    owner: str
    run_id: str
    events: int

    def statements(self, dialect: Dialect) -> Statements[bool | Undo[bool]]:
        """Yield one update."""
        rows = yield FORGET.of(self)
        return True if rows else Undo(False)
