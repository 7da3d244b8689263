"""Collect the records and the progress of one transaction on the target."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pipeline.arrays import NO_OFFSETS, Offsets, offsets_of
from pipeline.record_stats import measure_records
from schemas.kafka.partition import TopicPartition
from schemas.monitoring.stats import RecordStats
from schemas.replay.slot_work import Progress


class TransactionBatch:
    """Rows for one or more target partitions, and each partition's progress after them."""

    def __init__(self, max_records: int, max_bytes: int) -> None:
        self._max_records, self._max_bytes = max_records, max_bytes
        self.rows: list[tuple[TopicPartition, pa.RecordBatch]] = []
        self.progress: dict[TopicPartition, Progress] = {}
        self.records = 0
        self.size_bytes = 0

    @property
    def is_full(self) -> bool:
        """Return whether the batch reached one of its bounds."""
        return self.records >= self._max_records or self.size_bytes >= self._max_bytes

    def add(
        self, target: TopicPartition, rows: pa.RecordBatch, incarnation: str, topic_id: str
    ) -> int:
        """Add the first of *rows*, as many as fit; return how many."""
        room, room_bytes = self._max_records - self.records, self._max_bytes - self.size_bytes
        fit = max(1, room_bytes * rows.num_rows // max(1, rows.nbytes))
        taken = rows.slice(0, min(room, fit, rows.num_rows))
        self.rows.append((target, taken))
        self.records += taken.num_rows
        self.size_bytes += taken.nbytes
        last = taken.column("offset")[-1].as_py()
        self.progress[target] = Progress(last + 1, incarnation, topic_id)
        return int(taken.num_rows)

    def upstream(self, target: TopicPartition) -> Offsets:
        """Return the source offsets of the records for *target*, in order."""
        return np.concatenate([NO_OFFSETS, *(offsets_of(r) for t, r in self.rows if t == target)])

    def stats_by_target(self) -> dict[TopicPartition, RecordStats]:
        """Return the record stats of each target partition."""
        found: dict[TopicPartition, RecordStats] = {}
        for target, rows in self.rows:
            found[target] = found.get(target, RecordStats()) + measure_records(rows)
        return found

    def targets(self) -> list[TopicPartition]:
        """Return the target partitions of the rows."""
        return list(dict.fromkeys(target for target, _ in self.rows))
