"""Agents and teams of agno, hosted as they are.

platform = Platform(agents=[hosted(agent)])

Each run has a copy of the agent.  What its models answer and what its tools return are recorded
steps of the run: a run that a crash interrupted goes on after the last of them, and no tool is
called twice.  The conversation is that of the session, in the database of the platform; the copy
has it in a database in memory, so that `add_history_to_context`, `num_history_runs` and their like
work.  A database that the agent names has its memories, and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import aclosing
from copy import copy
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from attrs import define, field

from legation import Agent, RunFile, ToolError
from legation.models.trouble import SENTENCES

from .agno_models import record
from .agno_steps import STEPS, Steps, plain
from .agno_tools import find_unhosted
from .frameworks import load
from .recorder import Recorder, host

__all__ = ["hosted"]

_agents: Any = load("agno.agent", "agno")
_bases: Any = load("agno.run.base", "agno")
_databases: Any = load("agno.db.in_memory", "agno")
_errors: Any = load("agno.exceptions", "agno")
_media: Any = load("agno.media", "agno")
_messages: Any = load("agno.models.message", "agno")
_models: Any = load("agno.models.base", "agno")
_sessions: Any = load("agno.session", "agno")
_team_runs: Any = load("agno.run.team", "agno")
_teams: Any = load("agno.team", "agno")

_AGENTS: Final = (_agents.Agent, _teams.Team)
_CONTENT: Final = (_agents.RunContentEvent, _team_runs.RunContentEvent)
_ERRORS: Final = (_agents.RunErrorEvent, _team_runs.RunErrorEvent)
_OUTPUTS: Final = (_agents.RunOutput, _team_runs.TeamRunOutput)
_CHECKS: Final = ("input_check_error", "output_check_error")
_MEDIA: Final = {
    "image": ("images", _media.Image),
    "audio": ("audio", _media.Audio),
    "video": ("videos", _media.Video),
}
_NAMELESS: Final = "needs an id or a name: that of agno is another in each process"
_NO_LIST: Final = "must be a list: a run that goes on after a crash needs the same members"
_OFF: Final[Mapping[str, Any]] = {
    "db": None,
    "enable_session_summaries": False,
    "session_summary_manager": None,
    "telemetry": False,
}
"""The members of an agent that a hosted one goes without."""
_OWN_STATE: Final = ("current_user_id", "current_session_id", "current_run_id", "current_team_id")
"""What agno puts into the state of a session for the time of a run."""
_TASKS: Final = (
    "a team in the mode `tasks` cannot be hosted, since its tasks have other ids in each attempt at"
    " a run; the modes coordinate, route and broadcast can"
)
_WAITS: Final = (
    "{} waits for input of the user (requires_user_input), which a hosted agent cannot have;"
    " requires_confirmation and external_execution can be had"
)
_WRONG: Final = "{}: must be an Agent or a Team of agno, not {}"


def hosted(agent: Any, *, id: str | None = None, name: str | None = None, **settings: Any) -> Agent:  # noqa: A002
    """Return an agent of this platform that is `agent`, an agent or a team of agno.

    Args:
        agent: It is copied now, and again for each run.
        id: By default that of `agent`.
        name: By default that of `agent`.
        settings: The other members of an `Agent`, as `database`.

    Raises:
        TypeError: It is no agent and no team, or a member is not.
        ValueError: It is something that cannot be hosted; the text says what, and why.
    """
    if not _is(agent, _AGENTS):
        raise TypeError(_WRONG.format("agent", type(agent).__name__))
    template: Any = agent.deep_copy()
    if template.id is None and template.name is None:
        if id is None:
            raise ValueError(f"agent: {_NAMELESS}")
        template.id = id
    _Preparation().prepare(template, "agent")
    own_id = str(template.id)
    return Agent(
        id=id or own_id,
        name=name or template.name or own_id,
        description=settings.pop("description", template.description),
        again="safe",  # what has an effect is a step
        run=host(partial(_take, template, frozenset(_find_ids(template)))),
        **settings,
    )


@define(eq=False)
class _Preparation:
    """Makes a copy of an agent fit to be hosted: its models record, and it has no database.

    A manager of memories has the database that agno gives it now; those of sessions are ours.
    """

    _copies: dict[tuple[int, str], tuple[Any, Any]] = field(
        factory=dict[tuple[int, str], tuple[Any, Any]], init=False
    )

    def prepare(self, agent: Any, place: str) -> None:
        """Prepare `agent`, its members and the agent that reasons for it."""
        if _is(agent, _teams.Team):
            self._prepare_members(agent, place)
            agent.initialize_team()
        else:
            agent.initialize_agent()
        waits = find_unhosted(agent.tools if _is(agent.tools, list) else ())
        if waits is not None:
            raise ValueError(f"{place}.tools: {_WAITS.format(waits)}")
        for name, value in _OFF.items():
            setattr(agent, name, value)
        members: dict[str, Any] = {**agent.__dict__}
        for name, value in members.items():
            if _is(value, _agents.Agent):
                self.prepare(value, f"{place}.{name}")
            else:
                setattr(agent, name, self._record(value, f"{place}.{name}"))

    def _prepare_members(self, team: Any, place: str) -> None:
        if team.mode == "tasks":
            raise ValueError(f"{place}.mode: {_TASKS}")
        if not _is(team.members, list):
            raise ValueError(f"{place}.members: {_NO_LIST}")
        for number, member in enumerate(team.members):
            at = f"{place}.members[{number}]"
            if not _is(member, _AGENTS):
                raise TypeError(_WRONG.format(at, type(member).__name__))
            member.model = member.model or team.model
            if member.id is None and member.name is None:
                member.id = f"member-{number + 1}"  # that of agno is another in each process
            self.prepare(member, at)

    def _record(self, value: Any, place: str, purpose: str = "") -> Any:
        """Return `value` with each model in it replaced by one that records."""
        if _is(value, _models.Model):
            key = (id(value), purpose)
            if key not in self._copies:
                self._copies[key] = (record(value, purpose), value)  # whose identity is taken
            return self._copies[key][0]
        if _is(value, list) and any(_is(one, _models.Model) for one in value):
            return [self._record(one, place, purpose) for one in value]
        if type(value).__module__.startswith("agno."):  # such as a manager of memories
            return self._record_within(value, place)
        return value

    def _record_within(self, value: Any, place: str) -> Any:
        held: dict[str, Any] = getattr(value, "__dict__", {})
        own = {name: self._record_one(one, place) for name, one in held.items()}
        own = {name: one for name, one in own.items() if one is not held[name]}
        if not own:
            return value
        made = copy(value)
        for name, one in own.items():
            setattr(made, name, one)
        return made

    def _record_one(self, value: Any, place: str) -> Any:
        direct = _is(value, _models.Model) or _is(value, list)
        return self._record(value, place, place) if direct else value


def _is(value: Any, kinds: Any) -> bool:
    return isinstance(value, kinds)


def _find_ids(agent: Any) -> Iterator[str]:
    """Yield the ids of an agent and of its members."""
    yield agent.id
    for member in getattr(agent, "members", ()):
        yield from _find_ids(member)


async def _take(template: Any, ids: frozenset[str], recorder: Recorder) -> Any:
    """Take one attempt at a run; return the answer, as JSON."""
    steps = Steps(recorder, ids)
    STEPS.set(steps)
    agent = template.deep_copy(update={"db": _make_session(template, recorder)})
    task = asyncio.ensure_future(_run(agent, recorder, steps))
    try:
        return await task
    finally:
        await steps.close(task)


async def _run(agent: Any, recorder: Recorder, steps: Steps) -> Any:
    """Run `agent`, a copy; return the answer, as JSON."""
    output: Any = None
    events = agent.arun(
        recorder.message,
        stream=True,
        yield_run_output=True,
        run_id=recorder.run_id,
        session_id=recorder.session_id,
        user_id=recorder.user_id,
        dependencies=recorder.run.dependencies or None,
        metadata=dict(recorder.run.metadata) or None,
        **_read_files(recorder.run.files),
    )
    async with aclosing(events):
        async for event in events:
            if event.run_id != recorder.run_id:
                continue  # of a member
            if isinstance(event, _ERRORS):
                raise _translate_error(event, steps.failure)
            if isinstance(event, _OUTPUTS):
                output = event
            elif isinstance(event, _CONTENT) and isinstance(event.content, str):
                recorder.hear(event.content)
    if output is None:
        raise RuntimeError("agno ended the run without an answer")
    _keep_state(recorder, output.session_state)
    content = output.content
    return plain(content)


def _read_files(files: Iterable[RunFile]) -> dict[str, Any]:
    """Return the files of a message as arguments of agno, by their kinds."""
    made: dict[str, list[Any]] = {}
    for file in files:
        name, kind = _MEDIA.get(file.media_type.partition("/")[0], ("files", _media.File))
        told = {"mime_type": file.media_type} if file.media_type else {}
        if kind is _media.File:
            told["filename"] = file.name
        made.setdefault(name, []).append(kind(content=file.content, **told))
    return made


def _translate_error(event: Any, failure: Exception | None) -> Exception:
    """Return what ends the run: a sentence of its author, one on its model, or the error itself.

    What a provider says is not for the caller: it may quote a key.
    """
    if event.error_type in _CHECKS:
        return ToolError(event.content)
    if _is(failure, _errors.ModelProviderError) and str(failure) == event.content:
        status: int = getattr(failure, "status_code", 0)
        limited = status == HTTPStatus.TOO_MANY_REQUESTS
        failing = status >= HTTPStatus.INTERNAL_SERVER_ERROR
        return ToolError(
            SENTENCES["rate_limited" if limited else "unreachable" if failing else "rejected"]
        )
    return RuntimeError(event.content)


def _keep_state(recorder: Recorder, state: Any) -> None:
    """Let what the run left in the state be that of the session."""
    left: dict[str, Any] = state or {}
    kept = {name: value for name, value in left.items() if name not in _OWN_STATE}
    recorder.state.clear()
    recorder.state.update(plain(kept))


def _make_session(agent: Any, recorder: Recorder) -> Any:
    """Return a database of agno, in memory, with the session as it was before this run."""
    is_team = isinstance(agent, _teams.Team)
    owner = {"team_id" if is_team else "agent_id": agent.id}
    made_run = _OUTPUTS[is_team]
    made_session = _sessions.TeamSession if is_team else _sessions.AgentSession
    runs = [
        made_run(
            run_id=f"{recorder.session_id}-{number}",
            session_id=recorder.session_id,
            messages=messages,
            status=_bases.RunStatus.completed,
            **owner,
        )
        for number, messages in enumerate(_split_history(recorder.history))
    ]
    session = made_session(
        session_id=recorder.session_id,
        user_id=recorder.user_id,
        runs=runs,
        session_data={"session_state": {**(agent.session_state or {}), **recorder.state}},
        created_at=0,
        **owner,
    )
    database = _databases.InMemoryDb()
    database.upsert_session(session)
    return database


def _split_history(history: list[dict[str, str]]) -> list[list[Any]]:
    """Return the messages by run: each begins with one of the user."""
    runs: list[list[Any]] = []
    for message in history:
        if message["role"] == "user" or not runs:
            runs.append([])
        runs[-1].append(_messages.Message(role=message["role"], content=message["content"]))
    return runs
