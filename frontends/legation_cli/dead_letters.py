"""`legation dead-letters`: messages and replies that failed for good, many at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from legation.api.handlers.channels import describe_message, describe_reply
from legation.hosted.audit_settings import AUDIT_KEYS
from legation.messaging.dead_letters import (
    QUEUES,
    DeadLetters,
    LetterFilter,
    LettersChanged,
    MakeChange,
    change_dead_letters,
    find_dead_letters,
    read_dead_letters,
)
from legation.store.dead_letters import DiscardLetters, RetryLetters
from legation.store.failures import StoreFailure
from legation.store.letters import FetchMessageRecord
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
    from legation.runs.retry import Change
    from legation.store.units import Unit
    from legation_cli.terminal import Advance

__all__ = ["dead_letters", "discard", "list_letters", "retry", "show"]

R = TypeVar("R")

_HEADS: Final = ("channel", "what", "id", "with", "stored", "tries", "error", "database")
_Command = Callable[..., Any]


@click.group("dead-letters", short_help="Messages and replies that failed for good.")
def dead_letters() -> None:
    """List, show, retry and discard dead letters: messages and replies that failed for good.

    A message is one that somebody sent to a channel and no run answered; a reply is one that its
    provider did not take.  `legation channels` counts them.  The commands go by the databases,
    beside whoever serves them, and need no secret of a channel or a model.
    """


_PLATFORM: Final = click.argument(
    "platform_name",
    required=False,
    metavar="[PLATFORM.TOML | MODULE:ATTRIBUTE]",
    shell_complete=complete_platform,
)
_PLACE: Final = (
    click.option("--channel", help="Of this channel; it need not be in the configuration."),
    click.option("--database", help="In this database; in all of them, unless given."),
)
_FILTER: Final = (
    *_PLACE,
    click.option("--what", type=click.Choice(tuple(QUEUES)), help="Messages alone, or replies."),
    click.option("--id", "ids", multiple=True, help="That of this id.  May be repeated."),
    click.option("--reason", help="Those whose error has this text in it."),
    click.option("--since", type=MomentText(), help="Stored then or later: a day, or a time."),
    click.option("--until", type=MomentText(), help="Stored before: a day, or a time."),
)
_ALL: Final = click.option("--all", "every", is_flag=True, help="All, where nothing narrows it.")
_DRY_RUN: Final = click.option("--dry-run", is_flag=True, help="Count them, and change nothing.")


def _with(options: Sequence[Callable[[_Command], _Command]]) -> Callable[[_Command], _Command]:
    def decorate(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


@click.command("list", short_help="List dead letters, the oldest first.")
@_PLATFORM
@_with(_FILTER)
@click.option(
    "--limit", type=click.IntRange(1, 100_000), default=100, help="So many at most, of all."
)
@json_option
def list_letters(platform_name: str | None, limit: int, as_json: bool, **options: Any) -> None:
    """List dead letters, channel by channel, the oldest first.

    The text of a message is never shown; whoever may read it asks for the session.
    Without a platform, platform.toml of this folder is taken, or else the demonstration.

    \b
    Examples:
      legation dead-letters list
      legation dead-letters list platform.toml --channel help --reason "HTTP 500"
      legation dead-letters list --since 2026-01-01 --json | jq -r '.letters[].id'
    """
    with sentences():
        one = _Selection.load(platform_name, options)
        total, letters = one.read(_list(one, limit))
    if as_json:
        print_json({"total": total, "letters": letters})
        return
    if not letters:
        click.echo("No dead letter.")
        return
    rows = [_cells(letter) for letter in letters]
    show_rows(_HEADS, rows, ("tries",))
    if total > len(letters):
        click.echo(f"{len(letters)} of {total} are shown; --limit shows more.", err=True)


@dead_letters.command(short_help="Show one dead letter; of a message, with its replies.")
@click.argument("letter_id", metavar="ID")
@_PLATFORM
@_with(_PLACE)
@json_option
def show(letter_id: str, platform_name: str | None, as_json: bool, **options: Any) -> None:
    """Show the dead letter ID, a message with the replies to it; but no text.

    Where several channels have the id, all of them are shown.
    Without a platform, platform.toml of this folder is taken, or else the demonstration.

    \b
    Examples:
      legation dead-letters show wamid.HBgL
      legation dead-letters show 41.7 platform.toml --channel help --json
    """
    with sentences():
        one = _Selection.load(platform_name, {**options, "ids": (letter_id,)})
        letters = one.read(_describe_whole(one))
    if not letters:
        click.echo(f"there is no dead letter {letter_id!r}", err=True)
        raise SystemExit(1)
    if as_json:
        print_json(letters)
        return
    for letter in letters:
        show_fields(letter)


@dead_letters.command(short_help="Give dead letters one attempt more.")
@_PLATFORM
@_with(_FILTER)
@_ALL
@_DRY_RUN
@json_option
def retry(platform_name: str | None, **options: Any) -> None:
    """Give dead letters one attempt more each: all that meet every option.

    A server takes them up within a second or two.  With a part of a long answer come its other
    parts that are dead.  Where the channel is held, it is tried again at once.  A letter that dies
    again meanwhile is not tried a second time.

    It goes on in small transactions, each with an audit entry (dead_letters.retry).  Where it ends
    half-way, it says what was done; typed again, it goes on with the rest.

    Without a platform, platform.toml of this folder is taken, or else the demonstration.
    Exit code 1 says that there is no dead letter of one of the ids.

    \b
    Examples:
      legation dead-letters retry --all --dry-run
      legation dead-letters retry --channel help --reason "HTTP 503" --since 2026-01-01T08:00Z
      legation dead-letters retry platform.toml --id wamid.HBgL --id wamid.HBgM
    """
    _change(_RETRY, platform_name, options)


@dead_letters.command(short_help="Give dead letters up for good.")
@_PLATFORM
@_with(_FILTER)
@_ALL
@click.option("--yes", is_flag=True, help="Do not ask.")
@_DRY_RUN
@json_option
def discard(platform_name: str | None, **options: Any) -> None:
    """Give dead letters up for good: all that meet every option.

    A message is done then, without an answer; its id stays known for 30 days, so that its provider
    cannot bring it again.  A reply is deleted.  It asks before, unless --yes is given.

    It goes on in small transactions, each with an audit entry (dead_letters.discard).  Where it
    ends half-way, it says what was done; typed again, it goes on with the rest.

    Without a platform, platform.toml of this folder is taken, or else the demonstration.
    Exit code 1 says that there is no dead letter of one of the ids, or that you said no.

    \b
    Examples:
      legation dead-letters discard --until 2026-01-01 --dry-run
      legation dead-letters discard platform.toml --channel help --what replies --yes
      legation dead-letters discard --all --yes --json
    """
    _change(_DISCARD, platform_name, options)


dead_letters.add_command(list_letters)


# --- Which letters -----------------------------------------------------------------------------


@frozen
class _Selection:
    """The letters that are meant, and where they are looked for."""

    platform: Platform
    databases: tuple[str, ...]
    wanted: LetterFilter

    @classmethod
    def load(cls, name: str | None, options: Mapping[str, Any]) -> _Selection:
        """Load the platform, and read the options."""
        platform = load_target(name, needs_secrets=False)
        only: str | None = options["database"]
        databases = tuple(platform.registry.databases) if only is None else (only,)
        for database in databases:
            check_database(platform, database)
        what: str | None = options.get("what")
        wanted = LetterFilter(
            tuple(QUEUES) if what is None else (what,),
            options["channel"],
            options.get("ids") or None,
            options.get("reason"),
            options.get("since") or 0,
            1 << 62 if options.get("until") is None else options["until"],
        )
        return cls(platform, databases, wanted)

    def read(self, program: Program[R]) -> R:
        """Run a program that reads, beside whoever serves the databases."""
        from .reading import read_beside  # it loads the host

        urls = {name: self.platform.databases[name] for name in self.databases}
        try:
            with show_progress("Reading dead letters") as advance:
                checked = check_schemas(self.platform, self.databases, program)
                return read_beside(urls, checked, advance=advance)
        except StoreFailure as failure:
            raise CannotGoOn(f"the dead letters cannot be read: {why(failure)}") from None

    def is_hosted(self, letters: DeadLetters) -> bool:
        """Whether a server of this platform takes letters of the channel up, in the database."""
        hosted = self.platform.registry.channels.get(letters.channel)
        return hosted is not None and hosted.component.database == letters.database

    def find(self) -> Program[tuple[DeadLetters, ...]]:
        """Find the letters; a channel that nobody knows is an error."""
        found = yield from find_dead_letters(self.databases, self.wanted)
        channel, known = self.wanted.channel, self.platform.registry.channels
        if channel is not None and not found and channel not in known:
            there = ", ".join(known) or "none"
            raise CannotGoOn(f"no channel {channel!r} has a dead letter; configured are: {there}")
        return found


def _describe(one: _Selection, letters: DeadLetters, row: Any) -> dict[str, Any]:
    place = {"db_id": letters.database, "channel": letters.channel, "what": letters.what}
    if letters.what == "messages":
        hosted = one.platform.registry.channels.get(letters.channel)
        return {**place, **describe_message(hosted, row)}
    return {**place, **describe_reply(row)}


def _list(one: _Selection, limit: int) -> Program[tuple[int, list[dict[str, Any]]]]:
    found = yield from one.find()
    listed: list[dict[str, Any]] = []
    for letters in found:
        rows = yield from read_dead_letters(letters, limit - len(listed))
        listed += [_describe(one, letters, row) for row in rows]
    return sum(letters.count for letters in found), listed


def _describe_whole(one: _Selection) -> Program[list[dict[str, Any]]]:
    from legation.runs.retry import FEW, with_retry

    whole: list[dict[str, Any]] = []
    for letters in (yield from one.find()):
        for row in (yield from read_dead_letters(letters, letters.count)):
            described = _describe(one, letters, row)
            if letters.what == "messages":
                unit = FetchMessageRecord(letters.channel, row.message_id)
                record = yield from with_retry(letters.database, unit, FEW)
                replies = () if record is None else record.replies
                described["replies"] = [describe_reply(reply) for reply in replies]
            whole.append(described)
    return whole


# --- To change them -----------------------------------------------------------------------------


@frozen
class _Deed:
    """A change of letters: its operation, its unit, its words."""

    operation: str
    make: MakeChange
    doing: str
    done: str
    needs_host: bool


_RETRY: Final = _Deed("dead_letters.retry", RetryLetters, "Retrying", "retried", needs_host=True)
_DISCARD: Final = _Deed(
    "dead_letters.discard", DiscardLetters, "Discarding", "discarded", needs_host=False
)
_NARROWING: Final = ("channel", "ids", "reason", "since", "until")


def _change(deed: _Deed, platform_name: str | None, options: Mapping[str, Any]) -> None:
    if not options["every"] and all(options[name] in (None, ()) for name in _NARROWING):
        named = ", ".join(f"--{name.removesuffix('s')}" for name in _NARROWING)
        raise click.UsageError(f"say which letters: by {named}; or --all")
    dry_run: bool = options["dry_run"]
    with sentences():
        one = _Selection.load(platform_name, options)
        if not dry_run:
            require_secrets(one.platform, AUDIT_KEYS)
        found, unknown = one.read(_match(one))
        meant = [each for each in found if one.is_hosted(each) or not deed.needs_host]
        if not dry_run and meant and not options.get("yes", True):
            _ask(sum(each.count for each in meant))
        results = [(each, LettersChanged(each.count)) for each in meant]
        if not dry_run:
            results = _run(one, deed, meant)
    skipped = [each for each in found if each not in meant]
    _report(deed, results, skipped, unknown, options)


def _match(one: _Selection) -> Program[tuple[tuple[DeadLetters, ...], tuple[str, ...]]]:
    """Return the letters, and the ids of which there are none; an id has to be that of one."""
    found, ids = (yield from one.find()), one.wanted.ids
    if ids is None:
        return found, ()
    counts = Counter[str]()
    for letters in found:
        rows = yield from read_dead_letters(letters, letters.count)
        counts.update(getattr(row, letters.chosen.queue.name) for row in rows)
    if several := [name for name in counts if counts[name] > 1]:
        sentence = f"several dead letters have the id {several[0]!r}: add --channel, or --database"
        raise CannotGoOn(sentence)
    return found, tuple(name for name in dict.fromkeys(ids) if name not in counts)


def _ask(count: int) -> None:
    letters = "1 letter" if count == 1 else f"{count} letters"
    click.confirm(f"Discard {letters} for good?", abort=True, err=True)


def _run(
    one: _Selection, deed: _Deed, meant: Sequence[DeadLetters]
) -> list[tuple[DeadLetters, LettersChanged]]:
    databases = tuple(dict.fromkeys(letters.database for letters in meant))
    if not databases:
        return []
    with show_progress(deed.doing) as advance:
        program = check_schemas(one.platform, databases, _change_all(one, deed, meant, advance))
        try:
            return change_beside(one.platform, databases, program)
        except StoreFailure as failure:
            raise CannotGoOn(f"nothing was {deed.done}: {why(failure)}") from None


def _change_all(
    one: _Selection, deed: _Deed, meant: Sequence[DeadLetters], advance: Advance
) -> Program[list[tuple[DeadLetters, LettersChanged]]]:
    results: list[tuple[DeadLetters, LettersChanged]] = []
    for letters in meant:
        record = record_change(one.platform, deed.operation, letters.channel, letters.what)
        counted = _count(record, advance)
        results.append((letters, (yield from change_dead_letters(letters, deed.make, counted))))
    return results


def _count(record: Change, advance: Advance) -> Change:
    def change(database: str, unit: Unit[R]) -> Program[R]:
        result: R = yield from record(database, unit)
        advance()
        return result

    return change


def _report(
    deed: _Deed,
    results: Sequence[tuple[DeadLetters, LettersChanged]],
    skipped: Sequence[DeadLetters],
    unknown: Sequence[str],
    options: Mapping[str, Any],
) -> None:
    """Print what was done, and what was not."""
    dry_run: bool = options["dry_run"]
    if options["as_json"]:
        said = [_as_json(letters, changed) for letters, changed in results]
        left = [_as_json(letters, LettersChanged(0)) for letters in skipped]
        print_json({"dry_run": dry_run, deed.done: said, "skipped": left, "unknown": [*unknown]})
    else:
        for letters, changed in results:
            verb = f"would be {deed.done}" if dry_run else deed.done
            click.echo(f"{_name(letters)}: {changed.count} {verb}")
        if not (results or skipped or unknown):
            click.echo("No dead letter.")
    for letters in skipped:
        sentence = "is not in the configuration, so that no server would take them up: not retried"
        click.echo(f"{_name(letters)}: {letters.count} dead; the channel {sentence}", err=True)
    for name in unknown:
        click.echo(f"there is no dead letter {name!r}", err=True)
    failed = [(letters, one) for letters, one in results if one.failure is not None]
    if failed:
        raise CannotGoOn("\n  ".join(_describe_failure(deed, *one) for one in failed))
    if unknown:
        raise SystemExit(1)


def _name(letters: DeadLetters) -> str:
    return f"{letters.database}: {letters.what} of {fit_cell(letters.channel)}"


def _as_json(letters: DeadLetters, changed: LettersChanged) -> dict[str, Any]:
    failed = None if changed.failure is None else why(changed.failure)
    place = {"db_id": letters.database, "channel": letters.channel, "what": letters.what}
    return {**place, "dead": letters.count, "count": changed.count, "failed": failed}


def _describe_failure(deed: _Deed, letters: DeadLetters, changed: LettersChanged) -> str:
    reason = "" if changed.failure is None else why(changed.failure)
    done = f"{changed.count} of {letters.count} {deed.done}"
    return f"{_name(letters)}: {done}, then: {reason}; typed again, it goes on with the rest"


def _cells(letter: Mapping[str, Any]) -> tuple[str, ...]:
    other = letter.get("sender", letter.get("recipient"))
    stored = letter.get("received_at", letter.get("created_at"))
    cells = (letter["channel"], letter["what"], letter["id"], other, stored, letter["attempts"])
    return tuple(map(fit_cell, (*cells, letter["error"] or "", letter["db_id"])))
