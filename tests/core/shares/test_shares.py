"""Shares: the places of one process, its part of a limit, and its refusals."""

from __future__ import annotations

from legation.shares.limits import NodeLimits
from legation.shares.shares import Shares
from legation.shares.table import LimitTable


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
