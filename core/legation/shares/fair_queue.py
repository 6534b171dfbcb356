"""A fair queue: places, and who waits for one, with turns that no subject takes from another.

Who may have a place, as `Slots` says, has it at once.  Who may not waits, and has a turn by
start-time fair queuing (Goyal, Vin and Cheng, 1996): the later of the turn that was given a place
last and the end of the subject's own turn before, which ends after the reciprocal of its weight.
So of two that wait, each has every second place, however many the one asks for.
"""

from __future__ import annotations

from attrs import field

from ..values import define
from .slots import Slots

__all__ = ["FairQueue", "Ticket"]


@define(eq=False)
class Ticket:
    """The claim of one who waits.

    Attributes:
        subject: Whose it is.
        most: How many places the subject may hold.
        weight: Of the subject.
        turn: Where it stands in the queue.
        topic: Who waits is nudged under it.
        admitted: It has its place.
    """

    subject: str
    most: int
    weight: float
    turn: float
    topic: str
    admitted: bool = False


@define(eq=False)
class FairQueue(Slots):
    """Places with a queue: whoever waits in it may not have one of those that are free."""

    _waiting: dict[str, list[Ticket]] = field(factory=dict[str, list[Ticket]], init=False)
    _turn: float = field(default=0.0, init=False)
    _count: int = field(default=0, init=False)

    def ask(self, subject: str, most: int, weight: float) -> Ticket | None:
        """Take a place, or return the ticket to wait with."""
        holds, free = self._held.get(subject, 0) + 1, self.capacity - self.total
        waiting = self._waiting.get(subject)
        if not waiting and holds <= most and (holds <= weight * free or holds == 1 <= free):
            self._held[subject] = holds
            self.total += 1
            return None
        self._count += 1
        turn = self._turn if not waiting else max(self._turn, waiting[-1].turn + 1 / weight)
        ticket = Ticket(subject, most, weight, turn, f"place:{self._count}")
        self._waiting.setdefault(subject, []).append(ticket)
        return ticket

    def leave(self, subject: str) -> tuple[Ticket, ...]:
        """Give a place back; return those who have one now."""
        left, self.total = self._held[subject] - 1, self.total - 1
        if left:
            self._held[subject] = left
        else:
            del self._held[subject]
        return self._admit() if self._waiting else ()

    def give_up(self, ticket: Ticket) -> None:
        """Wait no more with `ticket`, or give its place back."""
        if ticket.admitted:
            self.leave(ticket.subject)
            return
        waiting = self._waiting[ticket.subject]
        waiting.remove(ticket)
        if not waiting:
            del self._waiting[ticket.subject]

    def _admit(self) -> tuple[Ticket, ...]:
        """Give places to those who may have one, by their turns."""
        admitted: list[Ticket] = []
        while (ticket := self._find_next()) is not None:
            waiting = self._waiting[ticket.subject]
            del waiting[0]
            if not waiting:
                del self._waiting[ticket.subject]
            self.take(ticket.subject)
            self._turn, ticket.admitted = ticket.turn, True
            admitted.append(ticket)
        return tuple(admitted)

    def _find_next(self) -> Ticket | None:
        heads = (tickets[0] for tickets in self._waiting.values())
        able = (
            head for head in heads if self.has_room(head.subject, head.most, weight=head.weight)
        )
        return min(able, key=lambda ticket: ticket.turn, default=None)
