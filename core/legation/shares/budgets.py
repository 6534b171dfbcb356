"""Budgets: the tokens of models that a subject may still use today, as one process knows.

So is counted what they cost, in nano-USD, in budgets of their own.

What the runs of all nodes have used is in the database, and known from where a run began or ended.
What the runs under way here have used since is added, so that several of them do not each take all
that is left.  What a run used counts for the day on which it ends, or pauses.
"""

from __future__ import annotations

from attrs import field

from ..store.run_rows import DAY_US
from ..values import define

__all__ = ["Budgets", "Spending", "day_of", "seconds_left"]


def day_of(at_us: int) -> int:
    """Return the day of a time, in days since 1970, UTC."""
    return at_us // DAY_US


def seconds_left(at_us: int) -> int:
    """Return how long the day of a time still lasts, in seconds, and 1 at least."""
    return max(1, -(-(DAY_US - at_us % DAY_US) // 1_000_000))


@define(eq=False)
class _Budget:
    """The tokens of a day that one subject has used in one database.

    Attributes:
        day: In days since 1970, UTC.
        stored: What runs of all nodes had used that are over, or wait, as it was last read.
        unstored: What the runs under way here have used.
        runs: How many those are.
    """

    day: int
    stored: int = 0
    unstored: int = 0
    runs: int = 0

    def learn(self, day: int, stored: int) -> None:
        """Note what was read; of one day the greatest is the newest."""
        if day > self.day:
            self.day, self.stored = day, stored
        elif day == self.day:
            self.stored = max(self.stored, stored)


@define(eq=False)
class Spending:
    """The tokens of one run under way, whose subject may use `limit` a day.

    Attributes:
        spent: What it has used that is not stored.
    """

    limit: int
    key: tuple[str, str]
    _budget: _Budget
    spent: int = field(default=0, init=False)

    def spend(self, tokens: int) -> None:
        """Note that the run has used `tokens`."""
        self.spent += tokens
        self._budget.unstored += tokens

    def count_left(self, now_us: int) -> int:
        """Return what the subject may still use; less than nothing where it has used more."""
        budget = self._budget
        budget.learn(day_of(now_us), 0)
        return self.limit - budget.stored - budget.unstored

    def settle(self, day: int, stored: int) -> None:
        """Note that what the run has used is stored: with it, `stored` were used on `day`."""
        self._budget.learn(day, stored)
        self._budget.unstored -= self.spent
        self.spent = 0


@define(eq=False)
class Budgets:
    """The budgets of the subjects that have runs under way here, by database and subject."""

    _budgets: dict[tuple[str, str], _Budget] = field(
        factory=dict[tuple[str, str], _Budget], init=False
    )

    def enter(self, database: str, subject: str, limit: int, now_us: int, stored: int) -> Spending:
        """Begin with a run; `stored` is what its subject had used of the day as it was claimed."""
        key, day = (database, subject), day_of(now_us)
        budget = self._budgets.setdefault(key, _Budget(day))
        budget.learn(day, stored)
        budget.runs += 1
        return Spending(limit, key, budget)

    def leave(self, spending: Spending) -> None:
        """End with a run; what it used and did not store is somebody else's to count."""
        budget = self._budgets[spending.key]
        budget.unstored -= spending.spent
        budget.runs -= 1
        if not budget.runs:
            del self._budgets[spending.key]
