"""`legation runs`: list runs, show one, cancel it, and follow its events, beside the servers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from attrs import evolve

from legation.access.decide import owner_of
from legation.api.handlers.all_runs import ListAllRunsQuery, MergedRuns, describe_run, merge_runs
from legation.hosted.audit_settings import AUDIT_KEYS
from legation.http.sse import Decoder, ForeignEvent
from legation.runs.found_runs import (
    FoundRun,
    cancel_run,
    describe_found,
    find_run,
    follow,
    wait_for_end,
)
from legation.store.failures import StoreFailure
from legation.store.listed_runs import ListRuns
from legation.store.run_states import RunState
from legation.values import frozen

from .audit_export import MomentText
from .beside import change_beside, check_schemas, record_change
from .cells import fit_cell, show_fields, show_rows
from .failing import CannotGoOn, sentences, why
from .json_output import json_option, print_json
from .target import check_database, complete_platform, load_target, require_secrets
from .terminal import show_progress

if TYPE_CHECKING:
    from legation import Platform
    from legation.effects import Program

    from .chat_actions import Say, Tell

__all__ = ["cancel", "follow_run", "list_runs", "runs", "show"]

R = TypeVar("R")

_HEADS: Final = ("run", "status", "component", "user", "session", "began", "tokens", "database")
_PAGE: Final = 200
_STATES: Final = tuple(state.value for state in RunState)


@click.group(short_help="List runs, show one, cancel it, follow its events.")
def runs() -> None:
    """List runs, show one, cancel it, and follow its events.

    The commands go by the databases, beside whoever serves them, and see the runs of every user.
    They need no secret of a channel or a model.
    """


_PLATFORM: Final = click.argument(
    "platform_name",
    required=False,
    metavar="[PLATFORM.TOML | MODULE:ATTRIBUTE]",
    shell_complete=complete_platform,
)
_DATABASE: Final = click.option("--database", help="In this database; in all, unless given.")


@runs.command("list", short_help="List runs, the newest first.")
@_PLATFORM
@click.option("--status", type=click.Choice(_STATES, case_sensitive=False), help="In this state.")
@click.option("--component", help="Of this agent or team, as agent:ID or team:ID.")
@click.option("--user", help="Of this user.")
@click.option("--session", help="Of this session.")
@_DATABASE
@click.option("--since", type=MomentText(), help="Begun then or later: a day, or a time.")
@click.option("--until", type=MomentText(), help="Begun before: a day, or a time.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, help="So many at most.")
@json_option
def list_runs(
    platform_name: str | None, database: str | None, limit: int, as_json: bool, **options: Any
) -> None:
    """List the runs that clients asked for, of every user, the newest first.

    Runs of members of a team are part of the team's run, and are not listed.
    Without a platform, platform.toml of this folder is taken, or else the demonstration.
    Exit code 2 says that a database does not answer; the runs of the others are listed.

    \b
    Examples:
      legation runs list --status PAUSED
      legation runs list platform.toml --component agent:desk --user ada --since 2026-01-01
      legation runs list --status ERROR --json | jq -r '.runs[] | [.run_id, .incident] | @tsv'
    """
    with sentences():
        one = _Target.load(platform_name, database)
        merged = one.read(_list(one.databases, _choose(options), limit), "Reading runs")
    listed = [describe_run(one.platform.registry, name, run) for name, run in merged.runs]
    if as_json:
        print_json({"runs": listed, "more": merged.end is not None, "absent": [*merged.absent]})
    elif listed:
        show_rows(_HEADS, [_cells(run) for run in listed], ("tokens",))
    else:
        click.echo("No run.")
    if merged.end is not None and not as_json:
        click.echo("There may be more; --limit shows more.", err=True)
    if merged.absent:
        raise CannotGoOn(f"without those of: {', '.join(merged.absent)}, which does not answer")


@runs.command(short_help="Show one run: its state, its input, its answer.")
@click.argument("run_id", metavar="RUN")
@_PLATFORM
@_DATABASE
@json_option
def show(run_id: str, platform_name: str | None, database: str | None, as_json: bool) -> None:
    """Show the run RUN: where it stands, who executes it, what was asked and answered.

    With --json it is whole, and its member `run` is what `GET …/runs/{run_id}` returns.
    Without a platform, platform.toml of this folder is taken, or else the demonstration.

    \b
    Examples:
      legation runs show 0199c2f4
      legation runs show 0199c2f4 platform.toml --database main --json | jq .run.content
    """
    with sentences():
        one = _Target.load(platform_name, database)
        found = one.find(run_id)
    described = describe_found(found)
    if as_json:
        print_json(described)
        return
    run = described.pop("run")
    component = "{kind}:{id}".format(**described["component"])
    shown = {"component": component, "input": _as_object(run.get("input")).get("input_content")}
    show_fields({**described, **shown, "content": run.get("content")})


@runs.command(short_help="Cancel a run.")
@click.argument("run_id", metavar="RUN")
@_PLATFORM
@_DATABASE
@click.option(
    "--wait", type=click.FloatRange(0, 3_600), default=30.0, help="So many seconds for its end."
)
@json_option
def cancel(
    run_id: str, platform_name: str | None, database: str | None, wait: float, as_json: bool
) -> None:
    """Cancel the run RUN.

    One that waits, or is paused, is cancelled at once.  One that is executed is ended by its node,
    which hears of it within a second or two.  A run that is over stays as it is.  Each has an audit
    entry (runs.cancel).

    Without a platform, platform.toml of this folder is taken, or else the demonstration.
    Exit code 1 says that the run has not ended yet: the request is stored, and holds.

    \b
    Examples:
      legation runs cancel 0199c2f4
      legation runs list --status PAUSED --until 2026-01-01 --json | jq -r '.runs[].run_id' |
        xargs -n 1 legation runs cancel
    """
    with sentences():
        one = _Target.load(platform_name, database)
        require_secrets(one.platform, AUDIT_KEYS)
        found = one.find(run_id)
        if found.row.parent_run_id is not None and not found.is_over:
            sentence = f"the run is that of a member: cancel {found.row.parent_run_id!r} instead"
            raise CannotGoOn(sentence)
        ended = found if found.is_over else _cancel(one, found, wait)
    if as_json:
        print_json({"run_id": run_id, "db_id": ended.database, "status": ended.row.status})
    elif found.is_over:
        click.echo(f"{run_id} was over before: {found.row.status}")
    elif ended.is_over:
        click.echo(f"{run_id} has ended: {ended.row.status}")
    if not ended.is_over:
        holder = ended.row.lease_by or "nobody yet"
        click.echo(f"{run_id} is to be cancelled; {holder} has not ended it yet", err=True)
        raise SystemExit(1)


@click.command("follow", short_help="Print the events of a run as they are stored.")
@click.argument("run_id", metavar="RUN")
@_PLATFORM
@_DATABASE
@click.option("--after", type=click.IntRange(0), default=0, help="Behind the event of this number.")
@json_option
def follow_run(
    run_id: str, platform_name: str | None, database: str | None, after: int, as_json: bool
) -> None:
    """Print the events of the run RUN, those that are there and those to come, until it ends.

    It reads the database alone, so that it works beside servers, on any machine that reaches the
    database.  Of a run of a member of a team, the events of that member are printed.

    With --json an event is a line, with the id at which `GET …/events` goes on behind it.
    Without a platform, platform.toml of this folder is taken, or else the demonstration.
    Exit code 0 says that the run is completed; 1 that it failed, was cancelled, or waits for a
    person; 2 that nobody executes it, or that the database cannot be read.

    \b
    Examples:
      legation runs follow 0199c2f4
      legation runs follow 0199c2f4 platform.toml --json | jq -r .event
    """
    with sentences():
        one = _Target.load(platform_name, database)
        found = one.find(run_id)
        printer = _Printer(as_json=as_json)
        program = follow(one.platform.context, found, after)
        unfinished = one.read(program, None, printer.feed)
        printer.end()
        if unfinished is not None:
            raise CannotGoOn(f"nobody executes the run, or ends it: it is {found.row.status}")
        now = one.read(find_run((found.database,), run_id), None)
    status = now[0].row.status if now else "deleted with its session"
    if status != RunState.COMPLETED:
        click.echo(f"{run_id}: {status}", err=True)
        raise SystemExit(1)


runs.add_command(follow_run)


# --- Where the runs are -------------------------------------------------------------------------


@frozen
class _Target:
    """A platform, and the databases whose runs are meant."""

    platform: Platform
    databases: tuple[str, ...]

    @classmethod
    def load(cls, name: str | None, database: str | None) -> _Target:
        """Load the platform, and see to it that the databases are known."""
        platform = load_target(name, needs_secrets=False)
        databases = tuple(platform.registry.databases) if database is None else (database,)
        for one in databases:
            check_database(platform, one)
        return cls(platform, databases)

    def read(
        self,
        program: Program[R],
        shown: str | None,
        emit: Callable[[bytes], object] = lambda _: None,
    ) -> R:
        """Run a program that reads, beside whoever serves the databases."""
        from .reading import read_beside  # it loads the host

        urls = {name: self.platform.databases[name] for name in self.databases}
        try:
            if shown is None:
                return read_beside(urls, program, emit=emit)
            with show_progress(shown) as advance:
                return read_beside(urls, program, advance=advance, emit=emit)
        except StoreFailure as failure:
            raise CannotGoOn(f"the runs cannot be read: {why(failure)}") from None

    def find(self, run_id: str) -> FoundRun:
        """Return the one run of this id.

        Raises:
            SystemExit: There is none: the answer is no.
            CannotGoOn: There is one in each of several databases.
        """
        found = self.read(find_run(self.databases, run_id), "Looking for the run")
        if not found:
            click.echo(f"there is no run {run_id!r}", err=True)
            raise SystemExit(1)
        first, *others = found
        if others:
            names = ", ".join(one.database for one in found)
            raise CannotGoOn(f"several databases have a run {run_id!r}: add --database ({names})")
        return first


# --- Lists --------------------------------------------------------------------------------------


def _choose(options: Mapping[str, Any]) -> ListRuns:
    """Return the choice of runs, as a query of the interface makes it."""
    component: str | None = options["component"]
    if component is not None and component.partition(":")[0] not in ("agent", "team"):
        raise click.UsageError("write --component as agent:ID or team:ID")
    query = ListAllRunsQuery(
        status=options["status"], component=component, session_id=options["session"]
    )
    user: str | None = options["user"]
    listed = evolve(query.list_runs(), size=_PAGE, pauses=False)
    if options["since"] is not None:
        listed = evolve(listed, since_us=options["since"])
    if options["until"] is not None:
        listed = evolve(listed, until_us=options["until"])
    return listed if user is None else evolve(listed, owner=owner_of(user), alias=user)


def _list(databases: tuple[str, ...], listed: ListRuns, limit: int) -> Program[MergedRuns]:
    """Return the first `limit` runs, read page by page."""
    merged, cursor = MergedRuns((), None, ()), None
    while True:
        asked = evolve(listed, size=min(_PAGE, limit - len(merged.runs)))
        page = yield from merge_runs(databases, asked, cursor)
        absent = tuple(dict.fromkeys((*merged.absent, *page.absent)))
        merged = MergedRuns((*merged.runs, *page.runs), page.end, absent)
        if page.end is None or len(merged.runs) >= limit:
            return merged
        cursor = page.end


def _as_object(value: Any) -> Mapping[str, Any]:
    return value or {}


def _cells(run: Mapping[str, Any]) -> Sequence[str]:
    component, tokens = run["component"], _as_object(run["tokens"])
    began = run["started_at"] or run["created_at"]
    cells = (
        *(run["run_id"], run["status"], f"{component['kind']}:{component['id']}"),
        *(run["user_id"] or "", run["session_id"], began),
        *(tokens.get("total_tokens", ""), run["db_id"]),
    )
    return tuple(map(fit_cell, cells))


# --- Changes ------------------------------------------------------------------------------------


def _cancel(one: _Target, found: FoundRun, wait: float) -> FoundRun:
    """Cancel a run, and return it as it is once it has ended, or the patience is over."""
    databases = (found.database,)
    with show_progress("Waiting for the end of the run", wait or None):
        program = check_schemas(one.platform, databases, _cancel_and_wait(one, found, wait))
        try:
            ended = change_beside(one.platform, databases, program)
        except StoreFailure as failure:
            raise CannotGoOn(f"the run cannot be cancelled: {why(failure)}") from None
    if ended is None:
        raise CannotGoOn("the run was deleted with its session")
    return ended


def _cancel_and_wait(one: _Target, found: FoundRun, wait: float) -> Program[FoundRun | None]:
    row = found.row
    change = record_change(one.platform, "runs.cancel", row.component_id, row.run_id)
    yield from cancel_run(one.platform.context, found, change)
    return (yield from wait_for_end(found, wait))


# --- Events -------------------------------------------------------------------------------------


class _Printer:
    """Prints the events of a stream: as lines of JSON, or as a person reads them."""

    def __init__(self, *, as_json: bool) -> None:
        from .chat_screen import Screen  # for who follows a run alone

        self.as_json = as_json
        self._decoder, self._screen = Decoder(), Screen()

    def feed(self, data: bytes) -> None:
        """Print the events that are whole by now."""
        from .chat_actions import Event

        for event in self._decoder.feed(data):
            if self.as_json:
                click.echo(_as_line(event))
            else:
                _print(self._screen.show(Event(event.name, json.loads(event.data))))

    def end(self) -> None:
        """End the line."""
        _print(self._screen.end())


def _print(pieces: Iterable[Say | Tell]) -> None:
    from .chat_actions import Say
    from .chat_screen import make_harmless

    for piece in pieces:
        click.echo(make_harmless(piece.text), nl=not isinstance(piece, Say))


def _as_line(event: ForeignEvent) -> str:
    return json.dumps({"event": event.name, "id": event.id, "data": json.loads(event.data)})
