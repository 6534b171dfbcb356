"""The history of a run: what its model is told of the session, by numbers that are recorded.

It is the last runs of the session, as many as its agent says and as fit into its tokens.  Where
sessions are summarized, it is the newest summary and the runs behind it.  A run that goes on has
the same numbers again; what was deleted meanwhile is left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from attrs import field

from ..config import Summaries
from ..effects import Program
from ..hosted.registry import Component
from ..models.conversation import NO_USAGE, Message, Usage
from ..store.run_reads import LongRecentRuns, RecentRuns, RunsOfNumbers, fit_tokens
from ..store.summaries import FetchSummary, Summary, SummaryOfNumber
from ..values import frozen
from .channel_replies import REPLY_TO
from .event_writer import EventWriter
from .prompt import history
from .retry import persist
from .step_outcomes import OF_SUMMARY, decode_usage, encode_usage
from .summaries import MAX_SUMMARY, Told, find_older, show_summary, summarize
from .terms import HISTORY_RUNS

__all__ = ["NO_HISTORY", "History", "fetch_history", "fetch_same_history"]


@frozen
class History:
    """The messages before those of a run, but for its instructions.

    Attributes:
        members: What the start of the run keeps of it: the numbers of the runs that are told, that
            of the summary, and what the making of this cost in the run.
        usage: The same cost.
    """

    messages: tuple[Message, ...] = ()
    members: Mapping[str, Any] = field(factory=dict[str, Any])
    usage: Usage = NO_USAGE


NO_HISTORY: Final = History()


def fetch_history(
    component: Component, database: str, asked: Mapping[str, Any], writer: EventWriter
) -> Program[History]:
    """Return the history of a run that begins, behind others; make the summary that is due."""
    runs = min(component.history_runs, asked.get(HISTORY_RUNS, component.history_runs))
    if not (runs or component.summaries) or asked.get(HISTORY_RUNS) == 0:
        return NO_HISTORY
    if component.summaries is None:
        recent = yield from _read_recent(
            database, writer, asked, runs, tokens=component.history_tokens
        )
        return _tell(recent, None, NO_USAGE)
    rule = component.summaries
    return (yield from _fetch_summarized(component, rule, database, asked, writer, runs))


def _fetch_summarized(
    component: Component,
    rule: Summaries,
    database: str,
    asked: Mapping[str, Any],
    writer: EventWriter,
    kept: int,
) -> Program[History]:
    """Return a summary and the runs behind it; of these the newest `kept` stay as they were."""
    run, model = writer.origin.run, component.summarizer or component.model
    base = yield from persist(database, FetchSummary(run.owner, run.session_id, run.run_no))
    after = 0 if base is None else base.run_no
    recent = yield from _read_recent(database, writer, asked, rule.after_runs + 1, after=after)
    usage = _count_own(writer, base)
    most = component.history_tokens or rule.after_tokens
    newest = fit_tokens(recent[max(len(recent) - kept, 0) :], most)
    older = find_older(rule, recent, len(newest))
    if older:
        base, made = yield from summarize(writer, rule, model, base, older, component.max_tokens)
        usage = usage if made is None else usage.plus(made)
    behind = 0 if base is None else base.run_no
    told = fit_tokens(tuple(one for one in recent if one[0] > behind), most)
    return _tell(told, base, usage)


def _count_own(writer: EventWriter, summary: Summary | None) -> Usage:
    """Return what an attempt before this one paid for `summary`, and did not come to count."""
    if summary is None or summary.run_id != writer.origin.run.run_id or summary.usage is None:
        return NO_USAGE
    usage = Usage(**json.loads(summary.usage))
    writer.journal.count(usage)
    return usage


def _read_recent(
    database: str,
    writer: EventWriter,
    asked: Mapping[str, Any],
    runs: int,
    *,
    after: int = 0,
    tokens: int | None = None,
) -> Program[tuple[Told, ...]]:
    """Return the last `runs` of the session; for a message of a channel also those that wait."""
    run = writer.origin.run
    place = (run.owner, run.session_id, run.run_no, runs, REPLY_TO in asked, after, tokens)
    recent = yield from persist(database, RecentRuns(*place))
    if recent is None:
        recent = yield from persist(database, LongRecentRuns(*place))
    return recent or ()


def fetch_same_history(
    database: str, writer: EventWriter, start: Mapping[str, Any], *, paid: bool
) -> Program[History]:
    """Return the history that the `start` of a run names, as far as it is there.

    `paid`: the run itself made the summary, and not the one that it is a fork of.
    """
    run, summary, recent = writer.origin.run, None, tuple[Told, ...]()
    if "history" in start:
        numbers = tuple(start["history"])
        recent = yield from persist(database, RunsOfNumbers(run.owner, run.session_id, numbers))
    if "summary" in start:
        unit = SummaryOfNumber(run.owner, run.session_id, start["summary"])
        summary = yield from persist(database, unit)
    usage = NO_USAGE
    if paid and "summary_usage" in start:
        usage = decode_usage(start, OF_SUMMARY)
    return _tell(recent, summary, usage)


def _tell(recent: tuple[Told, ...], summary: Summary | None, usage: Usage) -> History:
    messages, members = history(recent), dict[str, Any]()
    if recent:
        members["history"] = tuple(number for number, _ in recent)
    if summary is not None:
        messages.insert(0, show_summary(summary.text[:MAX_SUMMARY]))
        members["summary"] = summary.run_no
    if usage is not NO_USAGE:
        members |= encode_usage(usage, OF_SUMMARY)
    return History(tuple(messages), members, usage)
