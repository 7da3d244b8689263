"""Retention: select the staged files that have expired."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.arrays import group_rows
from schemas.kafka.partition import SLOT_COUNT, SourcePartition, TopicPartition
from schemas.staging.segment import RecordsFile

_SOURCE = ("topic", "topic_id", "partition")
HELD_COLUMNS = (*_SOURCE, "start", "end", "count", "staged_at_ms", "sequence", "version")
"""The columns of `segments` that retention needs."""


@dataclass(frozen=True, slots=True)
class HeldRange:
    """The segments of one partition in one file, up to offset *end*.

    *staged_at_ms* is when the newest of them was staged, *sequence* that of the file.
    """

    source: SourcePartition
    end: int
    staged_at_ms: int
    sequence: int


def held_ranges(files: Iterable[RecordsFile], segments: Iterable[pa.Table]) -> list[HeldRange]:
    """Return what each of *files* holds, from *segments* in any order.

    The result has a few rows for each file, however many segments there are: one table of
    *segments* is in memory at a time.
    """
    of_slot: dict[int, list[int]] = {slot: [] for slot in range(SLOT_COUNT)}
    for file in files:
        for slot in of_slot:
            if file.has_slot(slot):
                of_slot[slot].append(file.sequence)
    sequences = {slot: np.unique(np.array(each, np.int64)) for slot, each in of_slot.items()}
    found: dict[tuple[SourcePartition, int], tuple[int, int]] = {}
    for table in segments:
        rows = table.filter(pc.field("count") > 0).sort_by([(n, "ascending") for n in _SOURCE])
        for key, members in group_rows(rows, _SOURCE):
            source = SourcePartition(*key)
            known = sequences[source.slot]
            at = np.searchsorted(known, members["sequence"].to_numpy())
            ends, times = members["end"].to_numpy(), members["staged_at_ms"].to_numpy()
            for i in np.unique(at[at < len(known)]):
                place = source, int(known[i])
                end, time_ms = found.get(place, (0, 0))
                mine = at == i
                found[place] = max(end, int(ends[mine].max())), max(time_ms, int(times[mine].max()))
    return [
        HeldRange(source, end, staged_at_ms, sequence)
        for (source, sequence), (end, staged_at_ms) in found.items()
    ]


class IncarnationOrder:
    """The incarnations of each partition, in the order of staging."""

    def __init__(self) -> None:
        self._begins: dict[TopicPartition, dict[str, tuple[int, int]]] = {}

    def watch(self, segments: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Yield the tables of *segments*, in any order, and remember the incarnations in them."""
        for table in segments:
            first = table.group_by(list(_SOURCE)).aggregate([("version", "min"), ("start", "min")])
            for row in first.to_pylist():
                partition = TopicPartition(row["topic"], row["partition"])
                begin = row["version_min"], row["start_min"]
                begins = self._begins.setdefault(partition, {})
                begins[row["topic_id"]] = min(begin, begins.get(row["topic_id"], begin))
            yield table

    def of(self, partition: TopicPartition) -> list[str]:
        """Return the incarnations of *partition*."""
        begins = self._begins.get(partition, {})
        return sorted(begins, key=lambda topic_id: begins[topic_id])

    def partitions(self) -> list[TopicPartition]:
        """Return all partitions with a segment."""
        return list(self._begins)


def select_expired(
    files: Sequence[RecordsFile],
    ranges: Sequence[HeldRange],
    is_replayed: Callable[[HeldRange], bool],
    *,
    before_ms: int | None,
    max_bytes: int | None,
) -> tuple[list[RecordsFile], dict[SourcePartition, int]]:
    """Return the expired files, oldest first, and each partition's first offset after them.

    A file is free if each of the *ranges* in it is replayed and every earlier file of its slots is
    free. As Kafka deletes a log's segments, a free file expires if it was staged before *before_ms*
    (ms since 1970), or while all files together are larger than *max_bytes*. None: no such bound.
    """
    total = sum(file.size_bytes for file in files)
    gone: list[RecordsFile] = []
    kept: dict[SourcePartition, int] = {}
    free_files = _free_files(files, ranges, is_replayed)
    for staged_at_ms, file, held in sorted(
        free_files, key=lambda free: (free[0], free[1].sequence)
    ):
        is_old = before_ms is not None and staged_at_ms < before_ms
        is_too_much = max_bytes is not None and total > max_bytes
        if not (is_old or is_too_much):
            continue
        gone.append(file)
        total -= file.size_bytes
        for each in held:
            kept[each.source] = max(each.end, kept.get(each.source, 0))
    return gone, kept


def _free_files(
    files: Sequence[RecordsFile],
    ranges: Sequence[HeldRange],
    is_replayed: Callable[[HeldRange], bool],
) -> Iterator[tuple[int, RecordsFile, list[HeldRange]]]:
    """Yield the time of staging (ms since 1970), the file and its ranges, for each free file."""
    of_file: dict[tuple[int, int], list[HeldRange]] = {}
    for each in ranges:
        of_file.setdefault((each.source.slot, each.sequence), []).append(each)
    staged_at_ms = dict.fromkeys(range(SLOT_COUNT), 0)
    blocked: set[int] = set()
    for file in sorted(files, key=lambda f: f.sequence):
        slots = [slot for slot in staged_at_ms if file.has_slot(slot)]
        held = [each for slot in slots for each in of_file.get((slot, file.sequence), ())]
        # A file without a segment was just committed; its segments are not committed yet.
        if not held or not blocked.isdisjoint(slots) or not all(map(is_replayed, held)):
            blocked.update(slots)
            continue
        # Not older than earlier files of its slots, even if the clock was set back: the order of
        # expiry must follow the order of the files.
        newest = max([each.staged_at_ms for each in held] + [staged_at_ms[i] for i in slots])
        staged_at_ms.update(dict.fromkeys(slots, newest))
        yield newest, file, held
