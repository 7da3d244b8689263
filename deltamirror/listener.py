"""Listener interface: what the loops of a run report, and the listeners that are installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points

from schemas.config.flow import Flow
from schemas.errors.base import DeltamirrorError, PartitionError
from schemas.kafka.partition import TopicPartition, Watermarks
from schemas.monitoring.flow_state import PartitionLag
from schemas.monitoring.stats import ValueStats
from schemas.replay.slot_work import CommittedBatch
from schemas.staging.segment import Segment


class Listener:
    """Observer of a run's loops. Every method does nothing; a listener overrides some of them.

    The loops' threads call the methods, so a listener may be called by several threads at once.
    No method may raise. *role* names a loop: `stage us-east` or `replay us-east->eu-west`.
    """

    def tick_started(self, role: str) -> None:
        """Handle the start of a tick."""

    def tick_succeeded(
        self, role: str, errors: Mapping[TopicPartition, PartitionError], *, is_paused: bool = False
    ) -> None:
        """Handle a tick that left out the partitions in *errors*; *is_paused*: all are paused."""

    def tick_failed(self, role: str, error: DeltamirrorError) -> None:
        """Handle a tick that failed. The loop tries again."""

    def lease_refused(self, role: str) -> None:
        """Handle a tick that did nothing because another process holds the lease."""

    def loop_stopped(
        self,
        role: str,
        error: DeltamirrorError | None,
        errors: Mapping[TopicPartition, PartitionError],
    ) -> None:
        """Handle the end of a loop; *error* is that of its last tick, if it failed."""

    def watermarks_read(
        self,
        alias: str,
        watermarks: Mapping[TopicPartition, Watermarks],
        errors: Mapping[TopicPartition, PartitionError],
    ) -> None:
        """Handle the watermarks that staging read; those of partitions in *errors* are missing."""

    def staged(
        self, alias: str, segments: Sequence[Segment], timestamps: Sequence[ValueStats] = ()
    ) -> None:
        """Handle committed *segments* of source cluster *alias*, each with its *timestamps*."""

    def replayed(self, flow: Flow, moves: Sequence[CommittedBatch]) -> None:
        """Handle *moves* of *flow* that were committed on its target."""

    def lag_measured(self, flow: Flow, partition_lags: Sequence[PartitionLag]) -> None:
        """Handle the lag of every partition of *flow*."""


def installed_listeners() -> list[Listener]:
    """Return a listener of each installed package that offers one and has something to report to.

    A package offers a function without arguments, under the entry point group
    `deltamirror.listeners`. It returns None if there is nothing to report to.
    """
    offered = [point.load()() for point in entry_points(group="deltamirror.listeners")]
    return [listener for listener in offered if listener is not None]
