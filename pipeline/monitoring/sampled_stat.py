"""Sampled statistics over the last 30 to 60 s, as Kafka's clients compute them.

Source: SampledStat and Rate of org.apache.kafka.common.metrics, with their defaults of
two samples of 30 s (`metrics.num.samples`, `metrics.sample.window.ms`).

    time      ...│ former sample │ present one ─ now
    counts        30 s             up to 30 s          rate = amount / time since the former's start
"""

from __future__ import annotations

from schemas.monitoring.stats import EMPTY, ValueStats

WINDOW_S = 30.0
"""Length of a sample; the present sample and the one before it count."""


class SampledStat:
    """Statistics of the values added in the last 30 to 60 s. Times are monotonic, in seconds."""

    __slots__ = ("_former", "_index", "_present")

    def __init__(self) -> None:
        self._index = -1
        self._former = self._present = EMPTY

    def add(self, numbers: ValueStats, now_s: float) -> None:
        """Add *numbers*, measured at *now_s*."""
        index = int(now_s // WINDOW_S)
        if index != self._index:
            self._former = self._present if index == self._index + 1 else EMPTY
            self._present, self._index = EMPTY, index
        self._present += numbers

    def read(self, now_s: float) -> ValueStats:
        """Return the statistics at *now_s*."""
        age = int(now_s // WINDOW_S) - self._index
        if age == 0:
            return self._former + self._present
        return self._present if age == 1 else EMPTY


def per_second(amount: float, now_s: float) -> float:
    """Return the rate per second for *amount*, a sum that `read` returned at *now_s*."""
    return amount / (WINDOW_S + now_s % WINDOW_S)
