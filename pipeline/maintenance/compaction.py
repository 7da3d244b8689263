"""Compaction: select the small files to join, sort and check their rows.

    file 1   orders[0] 0-9     orders[1] 0-4
    file 2   orders[0] 10-19   users[0]  0-3
    becomes  orders[0] 0-19    orders[1] 0-4    users[0] 0-3

A partition's offsets increase along the sequence numbers of a slot's files. So a compaction joins
all files of a run of consecutive sequences, into one file for each slot. The new files take the
highest sequence of the run, so a reader that searches for the first file at or after an old file's
sequence finds them.

Files are joined level by level: many files of staging become files of level 1, some of these
become files of level 2, and so on. So a record is written again once for each level.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import groupby
from operator import or_

import numpy as np
import pyarrow as pa
import xxhash

from pipeline.record_digest import Digest
from schemas.errors.lake import LakeError
from schemas.kafka.partition import SourcePartition
from schemas.staging.segment import FOREIGN_SEQUENCE, RecordsFile

SEQUENCES_PER_LEVEL = (256, 16, 16)
"""Sequences of levels 0, 1 and 2 that are joined. Files of level 3 are not joined."""

FULL_BYTES = 64 * 2**20
"""Bytes for each slot from which on files are not joined."""

MIN_FILES_PER_FILE = 4
"""Files that a compaction replaces for each file that it writes, at least."""

PartitionRows = tuple[SourcePartition, pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class FileStats:
    """A partition's records in a file: their *count*, digests of their content and offsets."""

    count: int
    content: str
    offsets: str


def select_run(
    files: Iterable[RecordsFile],
    min_sequences: int = SEQUENCES_PER_LEVEL[0],
    damaged: Collection[str] = (),
) -> list[RecordsFile]:
    """Return the files to join next, empty if there are none; *files* are in order of sequence.

    They are all files of consecutive sequences, so that no other file lies between them. A run of
    the first level has *min_sequences*, or is full. A run ends before a file of *damaged* paths.
    """
    managed = (file for file in files if file.sequence != FOREIGN_SEQUENCE)
    sequences = [list(members) for _, members in groupby(managed, key=lambda f: f.sequence)]
    for level, least in enumerate((min_sequences, *SEQUENCES_PER_LEVEL[1:])):
        # The newest files will be files of this level first. Others below it are joined with it.
        while sequences and _level(sequences[-1]) < level:
            sequences.pop()
        for run in _runs(sequences, level, damaged):
            is_complete = run.sequences >= least or run.bytes_per_slot >= FULL_BYTES
            if is_complete and len(run.files) >= MIN_FILES_PER_FILE * run.slots.bit_count():
                return run.files
    return []


@dataclass
class _Run:
    """The files of consecutive sequences, and the number of those of the run's level."""

    files: list[RecordsFile] = field(default_factory=list)
    slots: int = 0
    size_bytes: int = 0
    sequences: int = 0

    @property
    def bytes_per_slot(self) -> float:
        return self.size_bytes / max(1, self.slots.bit_count())


def _runs(
    sequences: Iterable[list[RecordsFile]], level: int, damaged: Collection[str]
) -> Iterator[_Run]:
    """Yield runs of sequences of *level* or a lower one, which are not full."""
    run = _Run()
    for members in sequences:
        is_damaged = any(file.path in damaged for file in members)
        if is_damaged or _level(members) > level or _bytes_per_slot(members) >= FULL_BYTES:
            yield run
            run = _Run()
            continue
        run.files += members
        run.slots |= slot_mask(members)
        run.size_bytes += sum(file.size_bytes for file in members)
        run.sequences += _level(members) == level
        if run.sequences >= SEQUENCES_PER_LEVEL[level] or run.bytes_per_slot >= FULL_BYTES:
            yield run
            run = _Run()
    yield run


def _level(files: Iterable[RecordsFile]) -> int:
    return max(file.level for file in files)


def _bytes_per_slot(files: Sequence[RecordsFile]) -> float:
    return sum(file.size_bytes for file in files) / slot_mask(files).bit_count()


def slot_mask(files: Iterable[RecordsFile]) -> int:
    """Return a bit for each slot of *files*."""
    return reduce(or_, (file.slots for file in files), 0)


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
    before: Mapping[SourcePartition, FileStats],
    after: Mapping[SourcePartition, FileStats],
    rows: int,
) -> None:
    """Raise LakeError if the new files do not hold exactly the records of the old ones.

    *rows* is the number of rows in the old files.
    """
    for source in sorted(before.keys() | after.keys()):
        if before.get(source) != after.get(source):
            counts = [h.count if h else 0 for h in (before.get(source), after.get(source))]
            raise LakeError(
                f"{source}: compaction changed the records ({counts[0]} before, {counts[1]} "
                "after); nothing was committed"
            )
    if (found := sum(stats.count for stats in after.values())) != rows:
        raise LakeError(f"compaction read {found} of {rows} records; nothing was committed")
