"""A run as AgentOS stores it, made a run of ours.

It has neither events nor steps: those are ours alone.  So it can be read, and is told to later runs
of its session, but it does not go on, and a fork of it begins anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from attrs import evolve, field

from ..http.bodies.json_text import BadJson
from ..http.messages import compact_json
from ..models.conversation import Usage, storable
from ..money import nano_of
from ..runs.output import render_input
from ..runs.payloads import tokens
from ..store.imports import ImportedRun
from ..store.run_states import RunState
from ..store.session_state import EMPTY, MAX_STATE, encode_value
from ..store.usage import count_octets
from ..tools.accepted import is_object
from ..values import define, frozen
from .media import FileReader
from .messages import ConversationReader, read_tools, text_of_content
from .report import LeftOut, Reason
from .values import clean, count_of, id_of, list_of, microseconds_of, object_of, text_of

__all__ = ["MAX_RUN", "ForeignRun", "RunReader", "render_run"]

MAX_RUN: Final = 16 << 20
"""How much of a run is stored, its input and its output together, in bytes."""

_STATES: Final[Mapping[str, RunState]] = {
    "": RunState.COMPLETED,  # the first releases of agno 2 kept none
    "PENDING": RunState.PENDING,
    "RUNNING": RunState.RUNNING,
    "PAUSED": RunState.PAUSED,
    "COMPLETED": RunState.COMPLETED,
    "CANCELLED": RunState.CANCELLED,
    "CANCELED": RunState.CANCELLED,
    "REGENERATED": RunState.CANCELLED,  # another one took its place
    "ERROR": RunState.ERROR,
}
"""By the status there, in capitals."""

# What a run becomes that comes to no end any more.
_ENDS: Final[Mapping[RunState, RunState]] = {
    RunState.PENDING: RunState.ERROR,
    RunState.RUNNING: RunState.ERROR,
    RunState.PAUSED: RunState.CANCELLED,
}
_INTERRUPTED: Final = "The run was interrupted: it was under way when it was imported"
INTERRUPTED: Final = "interrupted"
IMPORTED: Final = "imported"
_LONGEST_DURATION: Final = 366 * 86_400.0
_LONGEST_NAME: Final = 255

# Members of a run that stand in its output, or in its row, in a form of ours.
_READ: Final = frozenset(
    """run_id agent_id agent_name team_id team_name workflow_id session_id parent_run_id user_id
    status input content content_type reasoning_content model model_provider created_at metrics
    messages tools metadata session_state member_responses requirements images videos audio files
    response_audio references citations reasoning_steps reasoning_messages""".split()
)
_PASSED_ON: Final = ("references", "reasoning_steps", "reasoning_messages")


@frozen
class ForeignRun:
    """A run as it was read: its row but for its output, and the members of that.

    Attributes:
        shown: The output, without the runs of members.
        name: Of its agent or team.
        left_out: What is not in it.
        messages: How many there are.
        files: How many there are.
    """

    row: ImportedRun
    shown: Mapping[str, Any]
    left_out: tuple[LeftOut, ...] = ()
    messages: int = 0
    files: int = 0

    @property
    def size(self) -> int:
        """The bytes that are stored of it, as far as it is known."""
        return count_octets((self.row.input, compact_json(self.shown)))


@frozen
class RunReader:
    """Reads the runs of one session.

    Attributes:
        kind: Of the session: agent or team.
        component_id: Of the session.
        user: The name of its owner, as clients are shown it.
        created_us: When the session was made, for runs that do not say it.
        final: Runs that are not over have come to their end.
    """

    session_id: str
    kind: str
    component_id: str
    user: str
    created_us: int
    final: bool

    def read(self, stored: object) -> ForeignRun | LeftOut:
        """Return a run, or the reason why it is left out."""
        cleaned = clean(stored)
        if not is_object(cleaned):
            detail = cleaned.reason if isinstance(cleaned, BadJson) else "no object"
            return self._leave_out(Reason.RUN_UNREADABLE, "", detail)
        return self._read_run(cleaned)

    def _leave_out(self, reason: Reason, run_id: str, detail: str = "") -> LeftOut:
        return LeftOut(reason, self.session_id, run_id, detail)

    def _read_run(self, run: Mapping[str, Any]) -> ForeignRun | LeftOut:
        shown_id = text_of(run.get("run_id"))
        run_id = id_of(run.get("run_id"))
        kind, component = self._component(run)
        if kind == "workflow":
            return self._leave_out(Reason.RUN_UNREADABLE, shown_id, "a run of a workflow")
        component_id = id_of(component)
        if run_id is None or component_id is None:
            return self._leave_out(Reason.RUN_ID, shown_id)
        status = _STATES.get(text_of(run.get("status")).upper())
        if status is None:
            return self._leave_out(Reason.RUN_UNREADABLE, run_id, text_of(run.get("status")))
        if not status.final and not self.final:
            return self._leave_out(Reason.RUN_UNFINISHED, run_id, status.value)
        parent = id_of(run.get("parent_run_id"))
        end, (created_us, ended_us) = _ENDS.get(status, status), self._times(run)
        row = ImportedRun(run_id, parent, kind, component_id, end.value, created_us, ended_us)
        found = _Builder(self, run, row, interrupted=status in _ENDS).build()
        if found.size > MAX_RUN:
            return self._leave_out(Reason.RUN_TOO_LARGE, run_id)
        return found

    def _component(self, run: Mapping[str, Any]) -> tuple[str, object]:
        """Return the kind and the id of what the run is of."""
        for kind in ("agent", "team", "workflow"):
            if (component := run.get(f"{kind}_id")) is not None:
                return kind, component
        return self.kind, self.component_id

    def _times(self, run: Mapping[str, Any]) -> tuple[int, int]:
        created_us = microseconds_of(run.get("created_at"), self.created_us)
        duration = object_of(run.get("metrics")).get("duration")
        took = duration if isinstance(duration, int | float) else 0
        took_us = round(took * 1_000_000) if 0 < took < _LONGEST_DURATION else 0
        return created_us, created_us + took_us


@define
class _Builder:
    """Builds the row and the output of one run."""

    reader: RunReader
    run: Mapping[str, Any]
    row: ImportedRun
    interrupted: bool
    _files: FileReader = field(factory=FileReader, init=False)
    _notes: list[LeftOut] = field(factory=list[LeftOut], init=False)

    def build(self) -> ForeignRun:
        """Return the run, with what is left out of it."""
        conversation = ConversationReader(self.row.run_id, self.row.created_us)
        messages = conversation.read(self.run.get("messages"))
        asked = self._ask()
        shown = {**self._show(messages), **render_input(asked)}
        state = "" if self.row.parent_run_id else self._state()
        row = evolve(
            self.row,
            input=compact_json(asked),
            reason=shown.get("error_type"),
            usage=_usage(self.run),
            model=shown.get("model", "")[:_LONGEST_NAME] or None,
            state=state,
        )
        self._note(*((reason, "") for reason in conversation.left_out))
        self._note(*((Reason.MEDIA, fault) for fault in self._files.faults))
        others = (name for name in self.run if name not in _READ and self.run[name])
        self._note(*((Reason.OTHER, name) for name in others))
        return ForeignRun(row, shown, tuple(self._notes), len(messages), self._files.count)

    def _note(self, *reasons: tuple[Reason, str]) -> None:
        at = self.reader.session_id, self.row.run_id
        self._notes += [LeftOut(reason, *at, detail) for reason, detail in reasons]

    def _show(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the output; all members before its content are ids and names."""
        run, row = self.run, self.row
        status = RunState(row.status)
        content, tools = self._content(), read_tools(run.get("tools"))
        return {
            "run_id": row.run_id,
            f"{row.kind}_id": row.component_id,
            f"{row.kind}_name": _name(run.get(f"{row.kind}_name"), row.component_id),
            "session_id": self.reader.session_id,
            **({} if row.parent_run_id is None else {"parent_run_id": row.parent_run_id}),
            "user_id": self.reader.user,
            "content": content,
            "content_type": _content_type(run, content),
            **_texts(run, "reasoning_content", "model", "model_provider"),
            "created_at": row.created_us // 1_000_000,
            "status": status.value,
            "metrics": dict(object_of(run.get("metrics"))),
            **({"messages": messages} if messages else {}),
            **({"tools": tools} if tools else {}),
            **self._failure(status),
            **dict(self._beside()),
        }

    def _content(self) -> Any:
        content = self.run.get("content")
        if self.row.status == RunState.ERROR and self.interrupted:
            return content or _INTERRUPTED
        return "" if content is None else content

    def _failure(self, status: RunState) -> dict[str, str]:
        if status is not RunState.ERROR:
            return {}
        return {"error_type": INTERRUPTED if self.interrupted else IMPORTED}

    def _beside(self) -> Iterator[tuple[str, Any]]:
        """Yield what an answer of ours does not have, and theirs may."""
        for name in _PASSED_ON:
            if items := [one for one in list_of(self.run.get(name)) if is_object(one)]:
                yield name, items
        if citations := object_of(self.run.get("citations")):
            yield "citations", dict(citations)
        voice = self.run.get("response_audio")
        made = self._files.read(self.run)
        yield from made.items()
        if is_object(voice) and (found := self._files.read({"audio": [voice]})):
            yield "response_audio", found["audio"][0]

    def _ask(self) -> dict[str, Any]:
        """Return the input of the run; its message comes first, as that of every run."""
        given = object_of(self.run.get("input"))
        message = given.get("input_content")
        if message is None:
            message = _last_of_user(self.run.get("messages"))
        metadata = object_of(self.run.get("metadata"))
        return {
            "message": text_of_content(message),
            "stream": False,
            **({"metadata": dict(metadata)} if metadata else {}),
            **self._files.read(given),
        }

    def _state(self) -> str:
        state = encode_value(dict(object_of(self.run.get("session_state"))))
        if count_octets((state,)) > MAX_STATE:
            self._note((Reason.STATE, ""))
            return EMPTY
        return state


def _name(name: object, otherwise: str) -> str:
    return storable(text_of(name))[:_LONGEST_NAME] or otherwise


def _texts(run: Mapping[str, Any], *names: str) -> dict[str, str]:
    return {name: text for name in names if (text := text_of(run.get(name)))}


def _content_type(run: Mapping[str, Any], content: Any) -> str:
    if isinstance(content, str):
        return "str"
    named = text_of(run.get("content_type"))
    return named if named and named != "str" else "dict"


def _last_of_user(messages: object) -> object:
    of_user = [
        said.get("content")
        for item in list_of(messages)
        if (said := object_of(item)).get("role") == "user"
    ]
    return of_user[-1] if of_user else None


def _usage(run: Mapping[str, Any]) -> str | None:
    """Return the tokens of a run as they are counted for its session; None where there are none."""
    metrics = object_of(run.get("metrics"))
    usage = Usage(
        count_of(metrics.get("input_tokens")),
        count_of(metrics.get("output_tokens")),
        count_of(metrics.get("reasoning_tokens")),
        count_of(metrics.get("cache_read_tokens")),
        count_of(metrics.get("cache_write_tokens")),
    )
    if not usage.total_tokens:
        return None
    cost = nano_of(metrics.get("cost"))
    counts = tokens(usage)
    return compact_json(counts if cost is None else {**counts, "cost_nano": cost})


def render_run(run: ForeignRun, members: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the whole output of a run, with those of its `members`; the state comes last."""
    of_team = {"member_responses": list(members)} if run.row.kind == "team" else {}
    state: dict[str, Any] = {"session_state": {}} if run.row.parent_run_id is None else {}
    return {**run.shown, **of_team, **state}
