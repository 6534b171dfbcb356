from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from legation.api.call import resource_of, with_owner
from legation.effects import Program, Transact
from legation.store.sessions import CreateSession, OwnersOf
from legation.store.units import Unit
from legation_testing import Client, ClientResponse

from ....callers import Issuer, demo

R = TypeVar("R")

ISSUER: Final = Issuer(ed25519.Ed25519PrivateKey.generate())
SEVERAL: Final = "Several users have a session with id 'main': name the one you mean in user_id"
DELETE: Final = {"session_ids": ["main"], "session_types": ["agent"]}


@pytest.fixture
def guarded() -> Iterator[Client]:
    with Client(lambda: demo(ISSUER)) as client:
        yield client


@pytest.fixture
def unguarded() -> Iterator[Client]:
    with Client(lambda: demo(None)) as client:
        yield client


def user(sub: str) -> str:
    return ISSUER.token("agents:run", "sessions:read", "sessions:delete", sub=sub)


def root(sub: str | None = "root") -> str:
    return ISSUER.token("platform:admin", sub=sub)


def say(client: Client, message: str, token: str | None = None, **form: Any) -> dict[str, Any]:
    sent = {"message": message, "stream": False, "session_id": "main", **form}
    answer = client.post("/agents/alpha/runs", form=sent, token=token).expect_success()
    return dict(answer.json())


def asked(client: Client, token: str | None = None, more: str = "") -> list[str]:
    answer = client.get(f"/sessions/main/runs{more}", token=token).expect_success()
    return [run["run_input"] for run in answer.json()]


def two_users(client: Client) -> None:
    """Let ann and bob have a session of one id."""
    for name in ("ann", "bob"):
        say(client, f"of {name}", root(), user_id=name)
        client.advance(1)


def ids(client: Client, token: str | None, name: str) -> list[str]:
    page = client.get(f"/sessions?user_id={name}", token=token).expect_success().json()
    return [item["session_id"] for item in page["data"]]


# --- runs ---------------------------------------------------------------------------------------


def test_an_administrators_conversation_stays_his_whoever_uses_its_id(guarded: Client) -> None:
    say(guarded, "salary plan", root())
    guarded.advance(1)
    say(guarded, "hello", user("ann"))
    guarded.advance(1)
    run = say(guarded, "dismiss ann", root())

    assert run["user_id"] == "root"
    assert asked(guarded, user("ann")) == ["hello"]
    assert asked(guarded, root()) == ["salary plan", "dismiss ann"]


@pytest.mark.parametrize("sub", ["root", None])
def test_a_run_of_who_sees_all_goes_into_anothers_session_where_user_id_names_him(
    guarded: Client, sub: str | None
) -> None:
    say(guarded, "hello", user("ann"))
    say(guarded, "mine", root(sub))
    say(guarded, "from the desk", root(sub), user_id="ann")

    assert asked(guarded, user("ann")) == ["hello", "from the desk"]
    assert asked(guarded, root(sub)) == ["mine"]


def test_without_authorization_a_run_goes_on_with_the_session_of_its_only_owner(
    unguarded: Client,
) -> None:
    say(unguarded, "hello", user_id="ann")

    assert say(unguarded, "more")["user_id"] == "ann"


def test_without_authorization_a_run_goes_into_no_session_of_several_owners(
    unguarded: Client,
) -> None:
    for name in ("ann", "bob"):
        say(unguarded, f"of {name}", user_id=name)

    assert say(unguarded, "more")["user_id"] == ""
    assert asked(unguarded) == ["more"]
    assert asked(unguarded, more="?user_id=bob") == ["of bob"]


def test_a_run_that_is_sent_again_is_that_of_the_owner_it_had(unguarded: Client) -> None:
    say(unguarded, "hello", user_id="ann")
    form = {"message": "more", "stream": True, "session_id": "main"}
    again = {"idempotency-key": "k"}
    first = unguarded.post("/agents/alpha/runs", form=form, headers=again)
    say(unguarded, "hello", user_id="bob")
    second = unguarded.post("/agents/alpha/runs", form=form, headers=again)

    assert first.body == second.body
    assert asked(unguarded, more="?user_id=ann") == ["hello", "more"]
    assert asked(unguarded, more="?user_id=bob") == ["hello"]


# --- reading and changing -----------------------------------------------------------------------

Ask = Callable[[Client, str, str], ClientResponse]
ASKED: Final[dict[str, Ask]] = {
    "read": lambda c, t, q: c.get(f"/sessions/main{q}", token=t),
    "its runs": lambda c, t, q: c.get(f"/sessions/main/runs{q}", token=t),
    "rename": lambda c, t, q: c.post(
        f"/sessions/main/rename{q}", json={"session_name": "new"}, token=t
    ),
    "change": lambda c, t, q: c.request(
        "PATCH", f"/sessions/main{q}", json={"session_name": "new"}, token=t
    ),
    "delete": lambda c, t, q: c.delete(f"/sessions/main{q}", token=t),
    "bulk": lambda c, t, q: c.request("DELETE", f"/sessions{q}", json=DELETE, token=t),
    "runs of an agent": lambda c, t, q: c.get(
        f"/agents/alpha/runs{q or '?'}&session_id=main", token=t
    ),
}


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
@pytest.mark.parametrize("sub", ["root", None])
def test_who_sees_all_has_to_say_whose_session_of_several(
    guarded: Client, ask: Ask, sub: str | None
) -> None:
    two_users(guarded)
    refused = ask(guarded, root(sub), "")

    assert (refused.status, refused.json()) == (409, {"detail": SEVERAL, "error_code": "CONFLICT"})
    assert asked(guarded, user("ann")) == ["of ann"]
    assert asked(guarded, user("bob")) == ["of bob"]
    ask(guarded, root(sub), "?user_id=ann").expect_success()


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
def test_ones_own_session_comes_before_anothers(guarded: Client, ask: Ask) -> None:
    say(guarded, "of root", root())
    two_users(guarded)
    ask(guarded, root(), "").expect_success()

    names = {
        name: [
            item["session_name"]
            for item in guarded.get(f"/sessions?user_id={name}", token=root()).json()["data"]
        ]
        for name in ("ann", "bob", "root")
    }
    assert (names["ann"], names["bob"]) == (["of ann"], ["of bob"])
    assert names["root"] in (["of root"], ["new"], [])


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
def test_the_session_of_an_only_owner_needs_no_name(guarded: Client, ask: Ask) -> None:
    say(guarded, "hello", user("ann"))

    ask(guarded, root(), "").expect_success()


def test_the_entries_of_a_list_say_whose_they_are_to_who_sees_all(guarded: Client) -> None:
    two_users(guarded)
    shown = guarded.get("/sessions", token=root()).json()["data"]

    assert [(item["session_id"], item["user_id"]) for item in shown] == [
        ("main", "bob"),
        ("main", "ann"),
    ]
    (own,) = guarded.get("/sessions", token=user("ann")).json()["data"]
    assert "user_id" not in own


def test_an_administrators_token_for_one_session_lists_it_of_every_owner(guarded: Client) -> None:
    two_users(guarded)
    say(guarded, "else", root(), session_id="else", user_id="ann")
    bound = ISSUER.token("platform:admin", sub="root", session_id="main")
    page = guarded.get("/sessions?limit=1&page=2", token=bound).json()

    assert [item["user_id"] for item in page["data"]] == ["ann"]
    assert page["meta"]["total_count"] == 2
    assert ids(guarded, bound, "ann") == ["main"]


# --- deleting -----------------------------------------------------------------------------------


def test_a_deletion_that_is_sent_again_deletes_no_second_users_session(guarded: Client) -> None:
    say(guarded, "of root", root())
    say(guarded, "of ann", user("ann"))

    statuses = [guarded.delete("/sessions/main", token=root()).status for _ in range(3)]
    bulk = guarded.request("DELETE", "/sessions", json=DELETE, token=root()).status

    assert (statuses, bulk) == ([204, 204, 204], 204)
    assert asked(guarded, user("ann")) == ["of ann"]
    assert guarded.delete("/sessions/main?user_id=ann", token=root()).status == 204


def test_what_is_begun_anew_after_a_deletion_is_ones_own(guarded: Client) -> None:
    say(guarded, "of ann", user("ann"))
    for _ in range(2):
        say(guarded, "of root", root())
        assert guarded.delete("/sessions/main", token=root()).status == 204

    assert asked(guarded, user("ann")) == ["of ann"]


def test_a_day_after_a_deletion_the_only_owners_session_is_meant_again(guarded: Client) -> None:
    say(guarded, "of root", root())
    say(guarded, "of ann", user("ann"))
    assert guarded.delete("/sessions/main", token=root()).status == 204
    now_us = guarded.clock.now_us

    def owners(later_us: int) -> Any:
        asking = OwnersOf(("main",), ("root",), others=True, now_us=now_us + later_us)
        return guarded.simulation.run(transacted(asking))

    assert owners(86_399_000_000) == {}
    assert owners(86_400_000_001) == {"main": "ann"}


def test_an_id_that_stands_twice_in_a_deletion_is_deleted_once(unguarded: Client) -> None:
    say(unguarded, "of ann", user_id="ann")
    say(unguarded, "of nobody", user_id="bob", session_id="other")
    unguarded.post("/sessions", json={"session_id": "main"}).expect_success()
    body = {"session_ids": ["main"] * 3, "session_types": ["agent", "agent", "team"]}

    assert unguarded.request("DELETE", "/sessions", json=body).status == 204
    assert ids(unguarded, None, "ann") == ["main"]


def test_a_deletion_of_many_deletes_none_where_the_owner_of_one_is_not_clear(
    guarded: Client,
) -> None:
    two_users(guarded)
    say(guarded, "of root", root(), session_id="own")
    body = {"session_ids": ["own", "main"], "session_types": ["agent", "agent"]}

    assert guarded.request("DELETE", "/sessions", json=body, token=root()).status == 409
    assert ids(guarded, root(), "root") == ["own"]


def test_a_token_without_a_subject_deletes_nothing(guarded: Client) -> None:
    say(guarded, "of ann", user("ann"))
    token = ISSUER.token("sessions:delete", sub=None)

    assert guarded.delete("/sessions/main", token=token).status == 204
    assert guarded.request("DELETE", "/sessions", json=DELETE, token=token).status == 204
    assert asked(guarded, user("ann")) == ["of ann"]


# --- the trail ----------------------------------------------------------------------------------


def test_the_trail_says_whose_session_or_run_it_was_where_that_is_another(
    guarded: Client,
) -> None:
    run = say(guarded, "of ann", root(), user_id="a/nn")["run_id"]
    say(guarded, "of root", root())
    guarded.get("/sessions/main", token=root())
    guarded.get(f"/sessions/main/runs/{run}?user_id=a/nn", token=root())
    guarded.get(f"/agents/alpha/runs/{run}", token=root())
    bulk = {"session_ids": ["main", "none"], "session_types": ["agent", "agent"]}
    guarded.request("DELETE", "/sessions?user_id=a/nn", json=bulk, token=root())
    guarded.settle()

    told = [(entry.operation, entry.resource) for entry in guarded.audit]
    assert told[0] == ("create_agent_run", f"alpha/{run}/user_id=a%2Fnn")
    assert told[1][1].count("/") == 1
    assert told[2:] == [
        ("get_session_by_id", "main"),
        ("get_session_run", f"main/{run}/user_id=a%2Fnn"),
        ("get_agent_run", f"alpha/{run}/user_id=a%2Fnn"),
        ("delete_sessions", "main/user_id=a%2Fnn/none"),
    ]


def test_what_is_asked_of_a_session_is_found_in_the_trail_whosever_it_was(
    guarded: Client,
) -> None:
    say(guarded, "of ann", user("ann"))
    guarded.get("/sessions/main", token=root())
    guarded.get("/sessions/main", token=user("ann"))
    guarded.settle()
    rows = guarded.get("/audit?resource=main&order=asc", token=root()).json()["data"]

    assert [row["resource"] for row in rows] == ["main/user_id=ann", "main"]


def test_no_id_looks_like_the_owner_in_a_resource() -> None:
    assert resource_of(("main", "user_id=ann")) == "main/user_id%3Dann"
    assert with_owner("main", "user_id=ann/b") == "main/user_id=user_id%3Dann%2Fb"


# --- names that begin with ~ --------------------------------------------------------------------


def test_a_subject_that_begins_with_a_tilde_is_found_under_its_own_name(guarded: Client) -> None:
    run = say(guarded, "hello", user("~x"))
    say(guarded, "from the desk", root(), user_id="~x")

    assert run["user_id"] == "~x"
    assert asked(guarded, user("~x")) == ["hello", "from the desk"]
    assert asked(guarded, root(), "?user_id=~x") == ["hello", "from the desk"]
    assert ids(guarded, root(), "~x") == ["main"]
    assert guarded.get("/sessions", token=root()).json()["data"][0]["user_id"] == "~x"
    assert guarded.get("/sessions", token=user("x")).json()["data"] == []


def test_rows_of_before_names_that_begin_with_a_tilde_had_one_more_are_found(
    guarded: Client,
) -> None:
    for owner in ("~x", "~channel:chat:1"):
        kept = CreateSession(owner, "main", "agent", "alpha", now_us=1, name=owner)
        guarded.simulation.run(transacted(kept))

    for name in ("~x", "~channel:chat:1"):
        assert ids(guarded, root(), name) == ["main"]
        found = guarded.get(f"/sessions/main?user_id={name}", token=root()).json()
        assert (found["user_id"], found["session_name"]) == (name, name)
        assert say(guarded, "more", root(), user_id=name)["user_id"] == name
        assert asked(guarded, root(), f"?user_id={name}") == ["more"]
        deleted = guarded.delete(f"/sessions/main?user_id={name}", token=root())
        assert deleted.status == 204
    assert guarded.get("/sessions", token=root()).json()["data"] == []


def transacted(unit: Unit[R]) -> Program[R]:
    return (yield from Transact("main", unit))
