"""The table of limits: whose they are, and which of them count for a subject."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from attrs import field, fields

from ..values import define, frozen
from .limits import LimitOverrides, Limits, NodeLimits, PlatformLimits, apply_overrides
from .subjects import ADDRESS, address_subject, component_subject, split_subject

__all__ = ["Account", "LimitTable", "make_table"]


@frozen
class Account:
    """The account that something is counted in: a subject, and its limits."""

    subject: str
    limits: Limits


_NO_SCOPES: Final = frozenset[str]()
_MOST_KEPT: Final = 4096


@define(eq=False)
class LimitTable:
    """The limits of a platform, ready to be looked up.

    Attributes:
        platform: Those of each subject that has no others.
        anonymous: Those of who has no name.
        scopes: By a scope of the token; the first that it holds counts.
        subjects: By owner.
        components: How agents and teams with an account of their own differ, by kind and id.
        node: Those of one process.
        known: Accounts that were asked for lately.
        of_subject: Limits that were asked for lately, by the text of the subject.
    """

    platform: Limits = field(factory=Limits)
    anonymous: Limits = field(factory=Limits)
    scopes: tuple[tuple[str, Limits], ...] = ()
    subjects: Mapping[str, Limits] = field(factory=dict[str, Limits])
    components: Mapping[tuple[str, str], LimitOverrides] = field(
        factory=dict[tuple[str, str], LimitOverrides]
    )
    node: NodeLimits = field(factory=NodeLimits)
    known: dict[tuple[object, ...], Account] = field(
        factory=dict[tuple[object, ...], Account], init=False
    )
    of_subject: dict[str, Limits] = field(factory=dict[str, Limits], init=False)

    def find(self, owner: str | None, scopes: Collection[str] = _NO_SCOPES) -> Limits:
        """Return the limits of who has the name `owner` and holds `scopes`.  Total."""
        if owner is not None and owner in self.subjects:
            return self.subjects[owner]
        for scope, limits in self.scopes:
            if scope in scopes:
                return limits
        return self.platform if owner else self.anonymous

    def account(
        self,
        owner: str | None,
        scopes: frozenset[str] = _NO_SCOPES,
        client: str = "",
        component: tuple[str, str] | None = None,
    ) -> Account:
        """Return the account of who asks, or of the owner of a run.

        Args:
            owner: The name under which its rows are kept; without one, or where it stands for
                nobody, it is counted by address.
            scopes: Those of its token.
            client: Its address.
            component: Kind and id of the agent or team that a run is of.
        """
        named = owner if owner and not owner.startswith("~nobody:") else None
        own = component if component in self.components else None
        key = (named or client, named is not None, scopes, own)
        if (known := self.known.get(key)) is not None:
            return known
        limits = self.find(named, scopes)
        subject = named or address_subject(client)
        if own is not None:
            limits = apply_overrides(limits, self.components[own])
            subject = component_subject(*own, subject)
        if len(self.known) >= _MOST_KEPT:
            self.known.clear()
        made = self.known[key] = Account(subject, limits)
        return made

    def limits_of(self, subject: str) -> Limits:
        """Return the limits of a subject, where no more is known of it than its text."""
        own, base = split_subject(subject)
        limits = self.find(None if base.startswith(ADDRESS) else base)
        if own is not None:
            limits = apply_overrides(limits, self.components.get(own))
        if len(self.of_subject) >= _MOST_KEPT:
            self.of_subject.clear()
        self.of_subject[subject] = limits
        return limits


def make_table(
    limits: PlatformLimits,
    owners: Mapping[str, LimitOverrides],
    components: Mapping[tuple[str, str], LimitOverrides | None],
) -> LimitTable:
    """Return the table of a configuration.

    Args:
        limits: As configured.
        owners: Its `subjects`, by the names under which their rows are kept.
        components: The limits of agents and teams, by kind and id.
    """
    cls: type[Limits] = Limits
    platform = cls(**{a.name: getattr(limits, a.name) for a in fields(cls)})
    return LimitTable(
        platform,
        apply_overrides(platform, limits.anonymous),
        tuple((scope, apply_overrides(platform, own)) for scope, own in limits.scopes.items()),
        {owner: apply_overrides(platform, own) for owner, own in owners.items()},
        {key: own for key, own in components.items() if own is not None},
        limits.node,
    )
