"""The table of limits: one row for every share, and whoever it is of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import pytest
from attrs import fields

from legation.shares.limits import LimitOverrides, Limits, PlatformLimits
from legation.shares.table import Account, LimitTable, make_table

SHARES: Final = tuple(attribute.name for attribute in fields(Limits))
BASE: Final = 10
ELSEWHERE: Final[Mapping[str, int]] = {"anonymous": 20, "scope": 30, "subject": 40, "agent": 50}
BATCH: Final = frozenset({"batch:run", "agents:run"})
DESK: Final = ("agent", "desk")


def said(share: str, value: int) -> Any:
    given: dict[str, Any] = {share: value}
    return LimitOverrides(**given)


def table_of(share: str) -> LimitTable:
    """Return a table in which `share` is another for each sort of subject."""
    limits: Any = {share: BASE}
    platform = PlatformLimits(
        **limits,
        anonymous=said(share, ELSEWHERE["anonymous"]),
        scopes={"batch:run": said(share, ELSEWHERE["scope"]), "agents:run": said(share, 31)},
    )
    owners = {"ada": said(share, ELSEWHERE["subject"]), "~~eve": said(share, 41)}
    own = {DESK: said(share, ELSEWHERE["agent"]), ("team", "desk"): None}
    return make_table(platform, owners, own)


NOBODY: Final = frozenset[str]()


class Who(NamedTuple):
    """Who asks, the limit that counts then, and the subject."""

    owner: str | None
    limit: int
    subject: str
    scopes: frozenset[str] = NOBODY
    client: str = ""
    component: tuple[str, str] | None = None

    def account(self, table: LimitTable) -> Account:
        """Return the account in `table`."""
        return table.account(self.owner, self.scopes, self.client, self.component)


WHO: Final = {
    "a name": Who("bob", BASE, "bob"),
    "a name with a scope": Who("bob", ELSEWHERE["scope"], "bob", BATCH),
    "a name with another scope": Who("bob", BASE, "bob", frozenset({"agents:read"})),
    "a name with limits and a scope": Who("ada", ELSEWHERE["subject"], "ada", BATCH),
    "a name that begins like ours": Who("~~eve", 41, "~~eve"),
    "a person on a channel": Who("~channel:desk:1", BASE, "~channel:desk:1"),
    "no name": Who(None, ELSEWHERE["anonymous"], "~address:192.0.2.7", NOBODY, "192.0.2.7"),
    "no name, with a scope": Who(None, ELSEWHERE["scope"], "~address:::/64", BATCH, "::1"),
    "nobody's run": Who(
        "~nobody:r1", ELSEWHERE["anonymous"], "~address:2001:db8::/64", NOBODY, "2001:db8::5"
    ),
    "the empty name": Who("", ELSEWHERE["anonymous"], "~address:"),
    "an agent": Who("bob", ELSEWHERE["agent"], "~agent:desk:bob", NOBODY, "", DESK),
    "an agent, for a name with limits": Who(
        "ada", ELSEWHERE["agent"], "~agent:desk:ada", BATCH, "", DESK
    ),
    "an agent, for no name": Who(
        None, ELSEWHERE["agent"], "~agent:desk:~address:::/64", NOBODY, "::1", DESK
    ),
    "a team of that id without an account": Who(
        "ada", ELSEWHERE["subject"], "ada", NOBODY, "", ("team", "desk")
    ),
    "an agent that is not hosted": Who("bob", BASE, "bob", NOBODY, "", ("agent", "gone")),
}


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("share", SHARES)
def test_a_limit_is_that_of_whom_it_is_for(share: str, who: str) -> None:
    asked = WHO[who]

    account = asked.account(table_of(share))

    assert (account.subject, getattr(account.limits, share)) == (asked.subject, asked.limit)
    others = [name for name in SHARES if name != share]
    assert [getattr(account.limits, name) for name in others] == [
        getattr(Limits(), name) for name in others
    ]


@pytest.mark.parametrize("who", [who for who in WHO if "scope" not in who])
def test_the_text_of_a_subject_leads_to_its_limits(who: str) -> None:
    table, asked = table_of("runs"), WHO[who]

    assert table.limits_of(asked.subject) == asked.account(table).limits


def test_an_account_that_was_asked_for_before_is_at_hand() -> None:
    table = table_of("runs")

    assert table.account("bob", BATCH) is table.account("bob", BATCH)
    assert table.account("bob") is not table.account("bob", BATCH)


def test_accounts_of_many_addresses_take_bounded_memory() -> None:
    table = LimitTable()
    for number in range(10_000):
        table.account(None, client=f"192.0.2.{number}")
        table.limits_of(f"ada-{number}")

    assert len(table.known) <= 4096
    assert len(table.of_subject) <= 4096


def test_who_has_no_name_is_not_who_is_named_like_its_address() -> None:
    table = table_of("runs")

    assert table.account(None, client="bob").limits.runs == ELSEWHERE["anonymous"]
    assert table.account("bob").limits.runs == BASE
