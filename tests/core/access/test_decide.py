from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.access.decide import (
    Allow,
    AllowOnly,
    Deny,
    Principal,
    decide,
    find_ids,
    name_of,
    owner_of,
)
from legation.access.scopes import AnyToken, Open, Public, Scoped, Signed

READ = Scoped("agents", ("read",), parameter="agent_id")
EITHER = Scoped("agents", ("read", "run"), parameter="agent_id")
LIST = Scoped("agents", ("read", "run"), listing=True)
PLAIN = Scoped("sessions", ("read",))
OLDER = Scoped("databases", ("migrate",), parameter="db_id", also=("config:write",))


def told(need: Any, *scopes: str, named: str | None = None) -> Any:
    return decide(need, Principal("ada", frozenset(scopes)), named)


@pytest.mark.parametrize("need", [Public(), Open(), Signed(), AnyToken()])
def test_where_no_scope_is_needed_none_is_looked_at(need: Any) -> None:
    assert told(need) == Allow()


@pytest.mark.parametrize("need", [READ, LIST, PLAIN, OLDER])
def test_admin_and_trusted_callers_may_do_everything(need: Any) -> None:
    assert decide(need, Principal(trusted=True)) == Allow()
    assert decide(need, Principal(admin_scope="root")) == Allow("root")


@pytest.mark.parametrize(
    ("need", "scopes", "named", "decision"),
    [
        (READ, ("agents:read",), "a", Allow("agents:read")),
        (READ, ("agents:*:read",), "a", Allow("agents:*:read")),
        (READ, ("agents:a:read",), "a", Allow("agents:a:read")),
        (READ, ("agents:b:read",), "a", Deny("agents:a:read")),
        (READ, ("agents:run",), "a", Deny("agents:a:read")),
        (READ, (), None, Deny("agents:read")),
        (READ, ("agents:a:read",), None, Deny("agents:read")),
        (EITHER, ("agents:a:run",), "a", Allow("agents:a:run")),
        (EITHER, (), "a", Deny("agents:a:read")),
        # What is no id can be named by nothing, and is not repeated in a header.
        (READ, ("agents:a:b:read",), "a:b", Deny("agents:read")),
        (READ, ("agents::read",), "", Deny("agents:read")),
        (READ, ("agents:*:read",), "a:b", Allow("agents:*:read")),
        (READ, ("agents:read",), 'a"b', Allow("agents:read")),
        (LIST, ("agents:run",), None, Allow("agents:run")),
        (LIST, ("agents:*:run",), None, Allow("agents:*:run")),
        (LIST, ("agents:a:run", "agents:b:read"), None, AllowOnly(frozenset("ab"), "agents:read")),
        (LIST, ("teams:a:run", "agents:a:write", "agents:*:x"), None, Deny("agents:read")),
        (PLAIN, ("sessions:read",), None, Allow("sessions:read")),
        (PLAIN, ("sessions:*:read", "sessions:a:read"), None, Deny("sessions:read")),
        (OLDER, ("config:write",), "main", Allow("config:write")),
        (OLDER, ("databases:main:migrate",), "main", Allow("databases:main:migrate")),
        (OLDER, ("config:main:write",), "main", Deny("databases:main:migrate")),
    ],
)
def test_a_decision(need: Any, scopes: tuple[str, ...], named: str | None, decision: Any) -> None:
    assert told(need, *scopes, named=named) == decision


@pytest.mark.parametrize(
    "scope",
    ["agents:READ", "Agents:read", "agents:read ", " agents:read", "agents", "agents:", ":read",
     "agents:*", "*", "*:*", "*:read", "agents:read:", "agents:*:*", "agents:?:read", "",
     "agents:read agents:run", "\uff41gents:read", "agents:read\n"],
)  # fmt: skip
def test_what_is_no_scope_of_ours_allows_nothing(scope: str) -> None:
    assert isinstance(told(READ, scope, named="a"), Deny)
    assert isinstance(told(LIST, scope), Deny)


def test_every_need_caller_and_id_has_an_answer() -> None:
    needs: tuple[Any, ...] = (Public(), Signed(), AnyToken(), READ, EITHER, LIST, PLAIN, OLDER)
    callers = (
        Principal(),
        Principal("ada", frozenset({"agents:read"})),
        Principal(admin_scope="root"),
        Principal(trusted=True),
    )
    for need, caller, named in product(needs, callers, (None, "", "a", "*", "a:b", "\0")):
        assert isinstance(decide(need, caller, named), Allow | AllowOnly | Deny)


def test_the_ids_held_are_those_of_scopes_with_three_parts() -> None:
    scopes = ("agents:a:read", "agents:b:run", "agents:*:read", "agents::read", "agents:c:d:read")
    principal = Principal("ada", frozenset(scopes))

    assert find_ids(LIST, principal) == frozenset("ab")
    assert find_ids(READ, principal) == frozenset("a")
    assert find_ids(PLAIN, principal) == frozenset()
    assert find_ids(AnyToken(), principal) == frozenset()


# --- whose data ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("principal", "owner", "sees"),
    [
        (Principal("ada"), "ada", {"ada"}),
        (Principal(), None, set[str]()),
        (Principal(""), "", {""}),
        (Principal("~nobody:x"), "~~nobody:x", set[str]()),
        (Principal("~"), "~~", set[str]()),
        (Principal("ada", admin_scope="root"), "ada", {"ada", "eve", "", "~nobody:x"}),
        (Principal(trusted=True), None, {"ada", "eve", "", "~nobody:x"}),
    ],
)
def test_a_caller_sees_its_own_rows(
    principal: Principal, owner: str | None, sees: set[str]
) -> None:
    assert principal.owner == owner
    owners = {"ada", "eve", "", "~nobody:x"}
    assert (owners if principal.sees_all else owners & {principal.owner}) == sees


@given(
    st.text(alphabet="~", max_size=3),
    st.text(alphabet="~xn:", max_size=6) | st.sampled_from(["nobody:x", "channel:c:1"]),
)
def test_the_owner_of_a_name_leads_back_to_it(tildes: str, text: str) -> None:
    name = tildes + text

    assert name_of(owner_of(name)) == name


@pytest.mark.parametrize("subject", ["~x", "~~x", "~", "ann", "~nobody:x", "~~channel:c:1"])
def test_a_subject_is_shown_by_its_name_unless_that_is_the_platforms_own(subject: str) -> None:
    owner = Principal(subject).owner or ""
    reserved = subject.lstrip("~").startswith(("nobody:", "channel:"))

    assert name_of(owner) == (f"~{subject}" if reserved else subject)
    assert owner_of(name_of(owner)) == owner


def test_an_administrator_is_one_whose_token_says_so() -> None:
    assert Principal(admin_scope="root").admin
    assert not Principal("root", frozenset({"root"})).admin
    assert not Principal(trusted=True).admin


@pytest.mark.parametrize("admin_scope", ["", "root"])
def test_a_token_for_one_session_is_for_no_other(admin_scope: str) -> None:
    pinned = Principal("ada", session_id="s", admin_scope=admin_scope)

    assert pinned.enters("s")
    assert not any(map(pinned.enters, ("S", "s ", "", "t")))
    assert Principal("ada", admin_scope=admin_scope).enters("t")
