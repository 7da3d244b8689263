"""Report staged and replayed records to Dagster as asset materializations, with a limited rate.

An event takes about 9 kB in Dagster's SQLite permanently. Counts are added up between events.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import dagster as dg

from assets.keys import offset_map_key, records_key, topic_partitions_def
from deltamirror.listener import Listener
from schemas.config.flow import Flow
from schemas.monitoring.stats import ValueStats
from schemas.replay.slot_work import CommittedBatch
from schemas.staging.segment import Segment

log = logging.getLogger(__name__)

TOPIC_INTERVAL_S = 30.0
"""Minimum seconds between two events of the same topic of an asset."""

PUBLISH_INTERVAL_S = 1.0
"""Minimum seconds between two events."""

CLOSE_TIMEOUT_S = 10.0
"""Seconds that `close` waits for the last events."""


@dataclass(slots=True)
class EventCounts:
    """Records, bytes, gaps and offsets of a topic since its last event."""

    owner: str
    records: int = 0
    size_bytes: int = 0
    gaps: int = 0
    runs: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    published_at: float = float("-inf")
    has_changes: bool = False

    def extend_offsets(self, first: int | None, last: int | None) -> None:
        """Extend the offset bounds by records from *first* to *last*; both None: no records."""
        known = [at for at in (first, last, self.first_offset, self.last_offset) if at is not None]
        if known:
            self.first_offset, self.last_offset = min(known), max(known)


class EventBuffer(Listener):
    """A listener that adds up counts until the next event is taken. Thread-safe.

    *row_counts* are the records that each topic of each asset had at the start. Without them events
    have no `dagster/row_count`.
    """

    def __init__(self, row_counts: Mapping[tuple[dg.AssetKey, str], int] | None = None) -> None:
        self._lock = threading.Lock()
        self._counts: dict[tuple[dg.AssetKey, str], EventCounts] = {}
        self._row_counts = None if row_counts is None else dict(row_counts)

    def staged(
        self, alias: str, segments: Sequence[Segment], timestamps: Sequence[ValueStats] = ()
    ) -> None:
        with self._lock:
            for segment in segments:
                counts = self._count(records_key(alias), alias, segment.topic, segment.count)
                counts.size_bytes += segment.size_bytes
                counts.gaps += segment.gaps
                counts.extend_offsets(segment.first, segment.last)

    def replayed(self, flow: Flow, moves: Sequence[CommittedBatch]) -> None:
        with self._lock:
            for move in moves:
                topic = move.partition.topic
                counts = self._count(offset_map_key(flow), flow.key, topic, move.records)
                counts.runs += len(move.runs)
                counts.extend_offsets(
                    min((run.downstream_start for run in move.runs), default=None),
                    max((run.downstream_end - 1 for run in move.runs), default=None),
                )

    def _count(self, key: dg.AssetKey, owner: str, topic: str, records: int) -> EventCounts:
        counts = self._counts.setdefault((key, topic), EventCounts(owner))
        counts.records += records
        counts.has_changes = True
        if self._row_counts is not None:
            self._row_counts[key, topic] = self._row_counts.get((key, topic), 0) + records
        return counts

    def next_event(self, now: float, *, is_last: bool = False) -> PartitionEvent | None:
        """Return the due event that waited longest, or None if none is due.

        *now* is in seconds of the monotonic clock. With *is_last* all remaining counts are due.
        """
        with self._lock:
            due = [
                (key, topic)
                for (key, topic), counts in self._counts.items()
                if counts.has_changes and (is_last or now - counts.published_at >= TOPIC_INTERVAL_S)
            ]
            if not due:
                return None
            key, topic = min(due, key=lambda each: self._counts[each].published_at)
            counts = self._counts[key, topic]
            self._counts[key, topic] = EventCounts(counts.owner, published_at=now)
            row_count = (self._row_counts or {}).get((key, topic))
        return PartitionEvent(key, counts.owner, topic, _metadata(counts, row_count))


@dataclass(frozen=True, slots=True)
class PartitionEvent:
    """Counts of *topic* of the asset *key*; *owner* is its cluster's alias or its flow's key."""

    key: dg.AssetKey
    owner: str
    topic: str
    metadata: Mapping[str, int]


@dataclass(slots=True)
class EventPublisher:
    """Publish *events* to a Dagster *instance* and add new topics as partitions."""

    events: EventBuffer
    instance: dg.DagsterInstance
    report_event: Callable[[dg.AssetMaterialization], None]
    known: set[tuple[str, str]] = field(default_factory=set)

    def publish_due(self, now: float) -> None:
        """Publish one event, if one is due."""
        self._publish_event(self.events.next_event(now))

    def publish_rest(self, now: float) -> None:
        """Publish all remaining counts."""
        while (event := self.events.next_event(now, is_last=True)) is not None:
            self._publish_event(event)

    def _publish_event(self, event: PartitionEvent | None) -> None:
        if event is None:
            return
        if (event.owner, event.topic) not in self.known:
            name = topic_partitions_def(event.owner).name
            self.instance.add_dynamic_partitions(str(name), [event.topic])
            self.known.add((event.owner, event.topic))
        self.report_event(
            dg.AssetMaterialization(event.key, partition=event.topic, metadata=event.metadata)
        )


def _metadata(counts: EventCounts, row_count: int | None) -> dict[str, int]:
    found = {
        "records": counts.records,
        "size_bytes": counts.size_bytes or None,
        "gaps": counts.gaps,
        "runs": counts.runs or None,
        "first_offset": counts.first_offset,
        "last_offset": counts.last_offset,
        "dagster/row_count": row_count,
    }
    return {name: value for name, value in found.items() if value is not None}


class DagsterListener(EventBuffer):
    """A listener that publishes from its own thread, so that a slow Dagster delays no loop."""

    def __init__(self) -> None:
        super().__init__()
        self._instance = dg.DagsterInstance.get()
        report = self._instance.report_runless_asset_event
        self._publisher = EventPublisher(self, self._instance, report)
        self._stop = threading.Event()
        self._failed = False
        self._thread = threading.Thread(target=self._run, name="dagster reporter", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def close(self) -> None:
        """Publish the rest and stop the thread. A second call has no effect."""
        atexit.unregister(self.close)
        self._stop.set()
        self._thread.join(CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        while not self._stop.wait(PUBLISH_INTERVAL_S):
            self._publish_safely(self._publisher.publish_due)
        self._publish_safely(self._publisher.publish_rest)
        self._instance.dispose()

    def _publish_safely(self, publish: Callable[[float], None]) -> None:
        """Publish events. Of consecutive failures only the first is logged."""
        try:
            publish(time.monotonic())
        except Exception as error:
            if not self._failed:
                log.warning("events cannot be reported to Dagster: %s", _first_line(error))
            self._failed = True
        else:
            self._failed = False


def _first_line(error: BaseException) -> str:
    """Return the first line of an error's text, or its type if it has no text."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
