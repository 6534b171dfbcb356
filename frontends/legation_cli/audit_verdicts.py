"""Verdicts on an audit trail, for people and for scripts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import click

from legation.api.handlers.audit_export import verdict_json
from legation.runs.output import iso_time
from legation.store.audit_export import BadLine, ExportVerdict
from legation.store.audit_pages import Head, parse_head
from legation.store.audit_verify import Broken, Doubt, Finding, Intact, Prune

__all__ = ["HeadText", "describe_verdict", "is_proven", "verdict_as_json"]

_DOUBTS: Final = {
    Doubt.NO_KEY: "the chain is not signed",
    Doubt.UNKNOWN_KEY: "the key {} is not known",
    Doubt.UNSIGNED_PRUNE: "the prune {} is not signed",
}


class HeadText(click.ParamType[Head]):
    """A head as `legation audit verify` prints it: writer, number and hash, between colons."""

    name = "head"

    def convert(self, value: Any, param: Any, ctx: Any) -> Head:
        """Return the head that `value` names."""
        head = parse_head(str(value))
        if head is None:
            self.fail(f"{value!r} is no head; write it as it was printed", param, ctx)
        return head


def is_proven(verdict: ExportVerdict) -> bool:
    """Return whether nothing contradicts the trail, and nothing is left to acknowledge."""
    return isinstance(verdict, Intact) and verdict.proven


def describe_verdict(name: str, verdict: ExportVerdict) -> str:
    """Return `verdict` on the trail, or the export, of this name for people, in several lines."""
    if isinstance(verdict, BadLine):
        at = f"{name}: broken at line {verdict.number}"
        return click.style(f"{at}: {verdict.reason}", fg="red")
    if isinstance(verdict, Broken):
        at = f"{name}: broken at number {verdict.seq} of {verdict.writer}"
        return click.style(f"{at}: {verdict.reason}", fg="red")
    word, tint = ("intact", "green") if verdict.proven else ("not proven", "yellow")
    return "\n".join(
        (
            f"{click.style(f'{name}: {word}', fg=tint)}, {_count(verdict)}",
            *(f"  {head}" for head in verdict.heads),
            *map(_describe_prune, verdict.prunes),
            *_describe_findings(verdict.findings),
        )
    )


def _count(verdict: Intact) -> str:
    chains = verdict.signed + verdict.chained
    old = f" ({verdict.old_rows} from before 2.12.0)" if verdict.old_rows else ""
    pruned = f", and {verdict.pruned} pruned" if verdict.pruned else ""
    unsigned = "" if not verdict.chained else f" ({verdict.chained} not signed, only chained)"
    plural = "" if chains == 1 else "s"
    return f"{verdict.entries} rows{old} in {chains} chain{plural}{unsigned}{pruned}"


def _describe_prune(one: Prune) -> str:
    anchor = one.anchor
    signed = "signed" if one.signed else "not signed"
    what = f"{anchor.count} rows up to number {anchor.seq} of {anchor.writer}"
    excused = f", excuses {len(one.excuses)}" if one.excuses else ""
    return f"  pruned by {one.by or 'nobody'} at {iso_time(one.at_us)}: {what}, {signed}{excused}"


def _describe_findings(findings: Iterable[Finding]) -> Iterator[str]:
    for finding in findings:
        reason = _DOUBTS[finding.doubt].format(finding.detail)
        yield click.style(f"  {reason}", fg="yellow")
        yield f"    --acknowledge {finding.head}"


def verdict_as_json(name: str, verdict: ExportVerdict) -> dict[str, Any]:
    """Return `verdict` on the trail, or the export, of this name for scripts."""
    if isinstance(verdict, BadLine):
        at = {"line": verdict.number, "reason": verdict.reason}
        return {"database": name, "intact": False, "proven": False, "broken": at}
    return verdict_json(name, verdict)
