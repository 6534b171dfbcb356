"""Shares: the places of one process, its part of a limit, and its refusals."""

from __future__ import annotations

from legation.shares.exceeded import Exceeded
from legation.shares.held import Held
from legation.shares.limits import Limits, NodeLimits
from legation.shares.shares import Shares
from legation.shares.table import Account, LimitTable


def test_the_places_are_those_of_the_node() -> None:
    node = NodeLimits(runs=1, model_calls=2, streams=3, followers=4, body_bytes=5)
    shares = Shares(LimitTable(node=node))

    slots = (shares.runs, shares.calls, shares.streams, shares.followers, shares.bodies)
    assert [one.capacity for one in slots] == [1, 2, 3, 4, 5]


def test_a_node_has_its_part_of_a_limit_as_the_largest_of_its_clusters_says() -> None:
    shares = Shares()
    assert shares.part(256) == 256

    shares.note_others("main", 3)
    shares.note_others("second", 1)
    assert (shares.nodes, shares.part(256), shares.part(3)) == (4, 64, 1)

    shares.note_others("main", 0)
    assert (shares.nodes, shares.part(256)) == (2, 128)


def test_refusals_are_counted_by_share() -> None:
    shares = Shares()
    for share in ("requests", "streams", "requests"):
        shares.count_refusal(share)

    assert shares.refused == {"requests": 2, "streams": 1}


# --- what a request holds -----------------------------------------------------------------------

ADA = Account("ada", Limits(streams=2, followers=3))
FAR = "192.0.2.7"


def hold(shares: Shares, account: Account = ADA, client: str = FAR, *, stream: bool) -> str:
    """Return the share that is used up; empty where the places were taken."""
    held = shares.hold_places(account, client, stream=stream, follows=True)
    return held.share if isinstance(held, Exceeded) else ""


def test_a_stream_that_follows_a_run_has_a_place_of_each_kind() -> None:
    shares = Shares()

    assert [hold(shares, stream=stream) for stream in (True, True, True, False, False)] == [
        "",
        "",
        "streams",
        "",
        "followers",
    ]
    assert (shares.streams.count_held("ada"), shares.followers.count_held("ada")) == (2, 3)
    assert hold(shares, Account("eve", Limits()), stream=True) == ""


def test_what_is_released_can_be_taken_again() -> None:
    shares = Shares()
    held = [shares.hold_places(ADA, FAR, stream=True, follows=True) for _ in range(2)]
    for one in held:
        assert isinstance(one, Held)
        one.release()

    slots = (shares.streams, shares.followers, shares.addresses)
    assert [one.total for one in slots] == [0, 0, 0]
    assert hold(shares, stream=True) == ""


def test_a_node_has_its_part_of_streams() -> None:
    shares = Shares()
    shares.note_others("main", 1)

    assert [hold(shares, stream=True) for _ in range(2)] == ["", "streams"]


def test_many_names_behind_one_address_leave_room_for_others() -> None:
    shares = Shares(LimitTable(node=NodeLimits(streams=9, followers=9)))
    names = [Account(f"user {number}", Limits()) for number in range(6)]

    assert [hold(shares, one, stream=False) for one in names] == [*[""] * 5, "followers"]
    assert hold(shares, Account("eve", Limits()), "192.0.2.8", stream=False) == ""
    assert hold(shares, names[5], "127.0.0.1", stream=False) == ""
    assert shares.addresses.total == 6


def test_who_has_no_name_is_counted_by_address_once() -> None:
    shares = Shares()
    account = shares.table.account(None, client=FAR)

    assert hold(shares, account, stream=True) == ""
    assert (shares.streams.total, shares.addresses.total) == (1, 0)


def test_all_bodies_together_have_one_budget_of_bytes() -> None:
    shares = Shares(LimitTable(node=NodeLimits(body_bytes=100)))
    held = shares.hold_bytes(ADA, 50)

    assert isinstance(held, Held)
    assert shares.hold_bytes(ADA, 1) == Exceeded("bodies", 100)
    assert isinstance(shares.hold_bytes(Account("eve", Limits()), 25), Held)
    held.release()
    assert isinstance(shares.hold_bytes(ADA, 30), Held)
