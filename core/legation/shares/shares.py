"""Shares: what subjects hold of a process now, and how much each may hold."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from attrs import field

from ..values import define, frozen
from .budgets import Budgets
from .exceeded import Exceeded
from .fair_queue import FairQueue
from .held import Held
from .rates import Rates
from .slots import Slots
from .subjects import ADDRESS, address_subject, is_near
from .table import Account, LimitTable

__all__ = ["Level", "Shares"]


@frozen
class Level:
    """The level of a share: its limit, and how much of it is used.

    Attributes:
        share: One of `SHARES`.
        limit: None where there is none.
        used: By the subject.
        reset_seconds: Until all of it is there again, where that is a matter of time.
    """

    share: str
    limit: int | None
    used: int
    reset_seconds: int | None = None


@define(eq=False)
class Shares:
    """The shares of one process, of all its databases together.

    Attributes:
        table: Who has which limits.
        rates: When each subject may ask again.
        streams: Places of streamed answers.
        followers: Places of requests that wait for a run.
        calls: Places of calls of models, and who waits for one.
        runs: Places of runs.
        bodies: Bytes of bodies that are being read.
        parsing: A long body is being parsed: the next one has its turn behind it.
        addresses: Streams, and requests that wait for a run, by the client's network: whatever the
            name of a caller, who has one address leaves room for others.
        refused: How many requests were refused, by share.
        claims: The databases from which a program claims runs that wait, and whether it is to look
            once more.
        budgets: The tokens of the day, of the subjects that have runs under way.
        expenses: What they cost, in nano-USD.
        nodes: The living nodes, with this one: of rates, streams and calls each has its part.
    """

    table: LimitTable = field(factory=LimitTable)
    rates: Rates = field(factory=Rates, init=False)
    streams: Slots = field(init=False)
    followers: Slots = field(init=False)
    calls: FairQueue = field(init=False)
    runs: Slots = field(init=False)
    bodies: Slots = field(init=False)
    parsing: bool = field(default=False, init=False)
    addresses: Slots = field(init=False)
    refused: dict[str, int] = field(factory=dict[str, int], init=False)
    claims: dict[str, bool] = field(factory=dict[str, bool], init=False)
    budgets: Budgets = field(factory=Budgets, init=False)
    expenses: Budgets = field(factory=Budgets, init=False)
    nodes: int = field(default=1, init=False)
    _others: dict[str, int] = field(factory=dict[str, int], init=False)

    def __attrs_post_init__(self) -> None:
        node = self.table.node
        self.streams = Slots(node.streams)
        self.followers = Slots(node.followers)
        self.calls = FairQueue(node.model_calls)
        self.runs = Slots(node.runs)
        self.bodies = Slots(node.body_bytes)
        self.addresses = Slots(max(node.streams, node.followers))

    def places(self) -> Mapping[str, Slots]:
        """Return the places of this process, by share."""
        return {
            "runs": self.runs,
            "model_calls": self.calls,
            "streams": self.streams,
            "followers": self.followers,
            "bodies": self.bodies,
        }

    def note_others(self, database: str, others: int) -> None:
        """Note how many other nodes live in the cluster of `database`."""
        self._others[database] = others
        self.nodes = 1 + max(self._others.values())

    def count_request(
        self, owner: str | None, scopes: frozenset[str], client: str, now_us: int
    ) -> Exceeded | None:
        """Count a request of who asks, or say that it has made too many.

        Every request passes here: an account that is known is found without a call.
        """
        key = (owner, True, scopes, None) if owner else (client, False, scopes, None)
        account = self.table.known.get(key) or self.table.account(owner, scopes, client)
        limits, nodes = account.limits, self.nodes
        wait_us = self.rates.take(account.subject, limits, nodes, now_us)
        if not wait_us:
            return None
        burst = limits.request_burst // nodes or 1
        window = math.ceil(nodes * burst / limits.requests_per_second)
        return Exceeded("requests", burst, math.ceil(wait_us / 1e6), window)

    def hold_places(
        self, account: Account, client: str, *, stream: bool, follows: bool
    ) -> Held | Exceeded:
        """Take the places of a request that is going to last, or say which share is used up.

        Args:
            account: Of who asks.
            client: The address; one that is near has all clients of a proxy behind it.
            stream: It is answered by a stream.
            follows: It waits for a run.
        """
        subject, limits, held = account.subject, account.limits, Held()
        for name, slots, limit in (
            ("streams", self.streams, limits.streams if stream else 0),
            ("followers", self.followers, limits.followers if follows else 0),
        ):
            most = limit // self.nodes or 1
            if limit and not slots.enter(subject, most, 1, limits.weight):
                held.release()
                return Exceeded(name, most)
            if limit:
                held.taken.append((slots, subject, 1))
        if client and not is_near(client) and not subject.startswith(ADDRESS):
            network, capacity = address_subject(client), self.addresses.capacity
            if not self.addresses.enter(network, capacity):
                held.release()
                return Exceeded("streams" if stream else "followers", capacity)
            held.taken.append((self.addresses, network, 1))
        return held

    def hold_bytes(self, account: Account, amount: int) -> Held | Exceeded:
        """Take `amount` bytes for a body, or say that there is no room for it now."""
        bodies = self.bodies
        if not bodies.enter(account.subject, bodies.capacity, amount, account.limits.weight):
            return Exceeded("bodies", bodies.capacity)
        held = Held()
        held.taken.append((bodies, account.subject, amount))
        return held

    def list_levels(self, account: Account, now_us: int) -> Iterator[Level]:
        """Yield what `account` has used of the shares that this process counts."""
        subject, limits = account.subject, account.limits
        if limits.requests_per_second:
            burst = limits.request_burst // self.nodes or 1
            left, seconds = self.rates.count_remaining(subject, limits, self.nodes, now_us)
            yield Level("requests", burst, burst - left, math.ceil(seconds))
        yield Level("streams", self.part(limits.streams), self.streams.count_held(subject))
        yield Level("followers", self.part(limits.followers), self.followers.count_held(subject))
        yield Level("model_calls", self.part(limits.model_calls), self.calls.count_held(subject))

    def part(self, limit: int) -> int:
        """Return this node's part of a limit, at least 1."""
        return max(1, limit // self.nodes)

    def count_refusal(self, share: str) -> None:
        """Count a request that was refused for want of a share."""
        self.refused[share] = self.refused.get(share, 0) + 1
