"""The table of limits: one row for every share, and whoever it is of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest
from attrs import fields

from legation.shares.limits import LimitOverrides, Limits, PlatformLimits
from legation.shares.table import LimitTable, make_table

SHARES: Final = tuple(attribute.name for attribute in fields(Limits))
BASE: Final = 10
ELSEWHERE: Final[Mapping[str, int]] = {"anonymous": 20, "scope": 30, "subject": 40, "agent": 50}
BATCH: Final = frozenset({"batch:run", "agents:run"})
DESK: Final = ("agent", "desk")


def said(share: str, value: int) -> Any:
    return LimitOverrides(**{share: value})


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


WHO: Final[Mapping[str, tuple[tuple[Any, ...], int, str]]] = {
    "a name": (("bob",), BASE, "bob"),
    "a name with a scope": (("bob", BATCH), ELSEWHERE["scope"], "bob"),
    "a name with another scope": (("bob", frozenset({"agents:read"})), BASE, "bob"),
    "a name with limits and a scope": (("ada", BATCH), ELSEWHERE["subject"], "ada"),
    "a name that begins like ours": (("~~eve",), 41, "~~eve"),
    "a person on a channel": (("~channel:desk:1",), BASE, "~channel:desk:1"),
    "no name": ((None, frozenset(), "192.0.2.7"), ELSEWHERE["anonymous"], "~address:192.0.2.7"),
    "no name, with a scope": ((None, BATCH, "::1"), ELSEWHERE["scope"], "~address:::/64"),
    "nobody's run": (
        ("~nobody:r1", frozenset(), "2001:db8::5"),
        ELSEWHERE["anonymous"],
        "~address:2001:db8::/64",
    ),
    "the empty name": (("",), ELSEWHERE["anonymous"], "~address:"),
    "an agent": (("bob", frozenset(), "", DESK), ELSEWHERE["agent"], "~agent:desk:bob"),
    "an agent, for a name with limits": (
        ("ada", BATCH, "", DESK),
        ELSEWHERE["agent"],
        "~agent:desk:ada",
    ),
    "an agent, for no name": (
        (None, frozenset(), "::1", DESK),
        ELSEWHERE["agent"],
        "~agent:desk:~address:::/64",
    ),
    "a team of that id without an account": (
        ("ada", frozenset(), "", ("team", "desk")),
        ELSEWHERE["subject"],
        "ada",
    ),
    "an agent that is not hosted": (("bob", frozenset(), "", ("agent", "gone")), BASE, "bob"),
}


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("share", SHARES)
def test_a_limit_is_that_of_whom_it_is_for(share: str, who: str) -> None:
    asked, limit, subject = WHO[who]
    table = table_of(share)

    account = table.account(*asked)

    assert (account.subject, getattr(account.limits, share)) == (subject, limit)
    others = [name for name in SHARES if name != share]
    assert [getattr(account.limits, name) for name in others] == [
        getattr(Limits(), name) for name in others
    ]


@pytest.mark.parametrize("who", [who for who in WHO if "scope" not in who])
def test_the_text_of_a_subject_leads_to_its_limits(who: str) -> None:
    table = table_of("runs")
    asked, _, subject = WHO[who]

    assert table.limits_of(subject) == table.account(*asked).limits


def test_an_account_that_was_asked_for_before_is_at_hand() -> None:
    table = table_of("runs")

    assert table.account("bob", BATCH) is table.account("bob", BATCH)
    assert table.account("bob") is not table.account("bob", BATCH)


def test_accounts_of_many_addresses_take_bounded_memory() -> None:
    table = LimitTable()
    for number in range(10_000):
        table.account(None, client=f"192.0.2.{number}")

    assert len(table.known) <= 4096


def test_who_has_no_name_is_not_who_is_named_like_its_address() -> None:
    table = table_of("runs")

    assert table.account(None, client="bob").limits.runs == ELSEWHERE["anonymous"]
    assert table.account("bob").limits.runs == BASE
