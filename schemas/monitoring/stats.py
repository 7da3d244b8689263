"""How some numbers spread: enough to tell least, greatest, mean and last of any joined lot."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ValueStats:
    """Some numbers in order: how many, their sum, the least, the greatest and the last one.

    Of no numbers only *count* means anything. Of integers everything but the mean is one.
    """

    count: int = 0
    total: float = 0
    low: float = 0
    high: float = 0
    last: float = 0

    @property
    def mean(self) -> float:
        """Return the mean. Raises ZeroDivisionError: there are no numbers."""
        return self.total / self.count

    def __add__(self, later: ValueStats) -> ValueStats:
        """Return the spread of these numbers and *later* ones together."""
        if not self.count or not later.count:
            return later if later.count else self
        return ValueStats(
            self.count + later.count,
            self.total + later.total,
            min(self.low, later.low),
            max(self.high, later.high),
            later.last,
        )

    def ages_at(self, now: float) -> ValueStats:
        """Return how these numbers' distances to *now* spread: of timestamps, the ages."""
        return ValueStats(
            self.count,
            self.count * now - self.total,
            now - self.high,
            now - self.low,
            now - self.last,
        )


EMPTY = ValueStats()


@dataclass(frozen=True, slots=True)
class RecordStats:
    """The bytes of some records' values, and how their timestamps (ms since 1970) spread.

    Keys and headers do not count, as in MirrorMaker 2's `byte-count`. Records without a timestamp
    are left out of *timestamps*.
    """

    value_bytes: int = 0
    timestamps: ValueStats = EMPTY

    def __add__(self, later: RecordStats) -> RecordStats:
        """Return the load of these records and *later* ones together."""
        return RecordStats(self.value_bytes + later.value_bytes, self.timestamps + later.timestamps)
