"""Small files of a slot become few, and every partition's records keep their order.

    file 1   orders[0] 0-9     orders[1] 0-4
    file 2   orders[0] 10-19   users[0]  0-3
    becomes  orders[0] 0-19    orders[1] 0-4    users[0] 0-3

Files of a slot follow one another by their sequence, and a partition's offsets rise along them.
So neighbours can be joined, never files with another one in between; the joined file takes the
highest sequence of its parts, and whoever looks for a part's sequence finds it at or behind that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import xxhash

from pipeline.record_digest import Digest
from schemas.errors import LakeError
from schemas.kafka.partition import SourcePartition

MIB = 1024 * 1024
SMALL_FILE_BYTES = 64 * MIB
"""Files from this size on are left as they are."""

GROUP_MEMORY_BYTES = 256 * MIB
"""How much is held in memory at a time: the joined files' rows, uncompressed."""

MIN_GROUP_FILES = 4
"""Fewer neighbours than this are not worth a commit."""

PartitionRows = tuple[SourcePartition, pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class CompactionInput:
    """A file that could be joined: its size on disk, and its rows' in memory, in bytes."""

    path: str
    sequence: int
    size_bytes: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class FileStats:
    """What is there of a partition: *count* records, digests of their content and offsets."""

    count: int
    content: str
    offsets: str


def select_groups(parts: Iterable[CompactionInput]) -> list[list[CompactionInput]]:
    """Return the groups to join, of one slot's *parts* in order of sequence.

    A group is at least FEWEST neighbours that are small and fit into memory together.
    """
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
    """Return *rows*, given along the files, by topic and partition; each keeps its own order."""
    return sorted(rows, key=lambda each: (each[0].topic, each[0].partition))


def collect_stats(rows: Iterable[PartitionRows]) -> dict[SourcePartition, FileStats]:
    """Return what *rows* hold of each partition. Raises LakeError where offsets do not rise."""
    counts: dict[SourcePartition, int] = {}
    last: dict[SourcePartition, int] = {}
    content: dict[SourcePartition, Digest] = {}
    offset_digests: dict[SourcePartition, xxhash.xxh3_128] = {}
    for source, batch in rows:
        offsets = batch.column("offset").to_numpy()
        is_rising = np.diff(offsets, prepend=last.get(source, -1)) > 0
        if not is_rising.all():
            raise LakeError(f"the staged offsets of {source} do not rise")
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
    """Raise LakeError where the joined file does not hold exactly what its parts hold."""
    for source in sorted(before.keys() | after.keys()):
        if before.get(source) != after.get(source):
            counts = [h.count if h else 0 for h in (before.get(source), after.get(source))]
            raise LakeError(
                f"{source}: {counts[0]} records before compaction and {counts[1]} after it, or "
                "other ones; nothing was committed"
            )
