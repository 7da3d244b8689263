"""Mergeable statistics: min, max, mean and last value; record count and byte sizes of a batch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ValueStats:
    """Count, sum, min, max and last of some numbers in order.

    If *count* is 0, the other values have no meaning. For integers all but the mean are integers.
    """

    count: int = 0
    total: float = 0
    low: float = 0
    high: float = 0
    last: float = 0

    @property
    def mean(self) -> float:
        """Return the mean. Raises ZeroDivisionError without numbers."""
        return self.total / self.count

    def __add__(self, later: ValueStats) -> ValueStats:
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
        """Return the statistics of *now* minus each number: the ages, for timestamps."""
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
    """Bytes of some records' values, and statistics of their timestamps (ms since 1970).

    Keys and headers do not count, as in MirrorMaker 2's `byte-count`. Records without a timestamp
    are not in *timestamps*.
    """

    value_bytes: int = 0
    timestamps: ValueStats = EMPTY

    def __add__(self, later: RecordStats) -> RecordStats:
        return RecordStats(self.value_bytes + later.value_bytes, self.timestamps + later.timestamps)
