"""Compaction of a slot's small files: select the files to join, sort and check their rows.

    file 1   orders[0] 0-9     orders[1] 0-4
    file 2   orders[0] 10-19   users[0]  0-3
    becomes  orders[0] 0-19    orders[1] 0-4    users[0] 0-3

A partition's offsets increase along the sequence numbers of a slot's files. So only adjacent files
can be joined. The joined file takes the highest sequence of its parts, so a reader that searches
for the first file at or after a part's sequence finds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import xxhash

from pipeline.record_digest import Digest
from schemas.errors.lake import LakeError
from schemas.kafka.partition import SourcePartition

SMALL_FILE_BYTES = 64 * 2**20
"""Files of this size and larger are not compacted."""

GROUP_MEMORY_BYTES = 256 * 2**20
"""Upper bound of the uncompressed rows of one group, which are in memory at the same time."""

MIN_GROUP_FILES = 4
"""A group of fewer adjacent files is not worth a commit."""

PartitionRows = tuple[SourcePartition, pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class CompactionInput:
    """A candidate for compaction: its size on disk and the size of its rows in memory, in bytes."""

    path: str
    sequence: int
    size_bytes: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class FileStats:
    """A partition's records in a file: their *count*, digests of their content and offsets."""

    count: int
    content: str
    offsets: str


def select_groups(parts: Iterable[CompactionInput]) -> list[list[CompactionInput]]:
    """Return the groups of files to join; *parts* are one slot's files in order of sequence."""
    groups: list[list[CompactionInput]] = [[]]
    group_bytes = 0
    for part in parts:
        is_small = part.size_bytes < SMALL_FILE_BYTES and part.memory_bytes <= GROUP_MEMORY_BYTES
        if not is_small or group_bytes + part.memory_bytes > GROUP_MEMORY_BYTES:
            groups.append([])
            group_bytes = 0
        if is_small:
            groups[-1].append(part)
            group_bytes += part.memory_bytes
    return [group for group in groups if len(group) >= MIN_GROUP_FILES]


def sort_by_partition(rows: Iterable[PartitionRows]) -> list[PartitionRows]:
    """Return *rows* sorted by topic and partition; a partition's batches keep their order."""
    return sorted(rows, key=lambda each: (each[0].topic, each[0].partition))


def collect_stats(rows: Iterable[PartitionRows]) -> dict[SourcePartition, FileStats]:
    """Return each partition's stats. Raises LakeError if its offsets do not increase."""
    counts: dict[SourcePartition, int] = {}
    last: dict[SourcePartition, int] = {}
    content: dict[SourcePartition, Digest] = {}
    offset_digests: dict[SourcePartition, xxhash.xxh3_128] = {}
    for source, batch in rows:
        offsets = batch.column("offset").to_numpy()
        is_rising = np.diff(offsets, prepend=last.get(source, -1)) > 0
        if not is_rising.all():
            raise LakeError(f"the staged offsets of {source} do not increase")
        counts[source] = counts.get(source, 0) + batch.num_rows
        last[source] = int(offsets[-1])
        content.setdefault(source, Digest()).add(batch)
        offset_digests.setdefault(source, xxhash.xxh3_128()).update(
            np.ascontiguousarray(offsets).data
        )
    return {
        source: FileStats(count, content[source].hexdigest(), offset_digests[source].hexdigest())
        for source, count in counts.items()
    }


def check_unchanged(
    before: Mapping[SourcePartition, FileStats], after: Mapping[SourcePartition, FileStats]
) -> None:
    """Raise LakeError if the joined file does not hold exactly the records of its parts."""
    for source in sorted(before.keys() | after.keys()):
        if before.get(source) != after.get(source):
            counts = [h.count if h else 0 for h in (before.get(source), after.get(source))]
            raise LakeError(
                f"{source}: compaction changed the records ({counts[0]} before, {counts[1]} "
                "after); nothing was committed"
            )
