"""Reading the staged log back, in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from resources.delta.file_names import digest_of, file_digest
from schemas.errors import LakeError, StagedFileError
from schemas.kafka.partition import SourcePartition

BATCH_ROWS = 32_768
DICTIONARY_COLUMNS = ["topic", "topic_id"]


class StageReader:
    """The files of a source cluster's `records`, read along their offsets.

    Files of a slot, in order of sequence, hold rising offsets of a partition, and in a file rows
    are sorted by topic, partition and offset. So one pass over them in order is in order for each
    partition; that offsets rise is checked all the same.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def rows(
        self, files: Sequence[str], wanted: Mapping[SourcePartition, int]
    ) -> Iterator[tuple[SourcePartition, pa.RecordBatch]]:
        """Return rows of *wanted* partitions at or past their offsets; *files* in order.

        Batches hold one partition of one incarnation each. Raises StagedFileError: a file is
        missing or not what was written, and none of its rows was given; LakeError: out of order.
        """
        if not wanted:
            return
        next_offset = dict(wanted)
        for file in files:
            try:
                for batch in self._batches(file, wanted):
                    for source, rows in _split_by_partition(batch):
                        at = next_offset.get(source)
                        if at is None:
                            continue
                        rows, next_offset[source] = _rows_from(rows, at, source, file)
                        if rows.num_rows:
                            yield source, rows
            except (OSError, pa.ArrowException) as error:
                raise self._error(file, error) from error

    def all_rows(self, files: Sequence[str]) -> Iterator[tuple[SourcePartition, pa.RecordBatch]]:
        """Return every row of *files* as they lie there. Raises StagedFileError as `rows` does."""
        for file in files:
            try:
                for batch in self._batches(file):
                    yield from _split_by_partition(batch)
            except (OSError, pa.ArrowException) as error:
                raise self._error(file, error) from error

    def memory_bytes(self, file: str) -> int:
        """Return about how much memory all rows of *file* take. Raises StagedFileError."""
        try:
            metadata = pq.read_metadata(self._path / file)
        except (OSError, pa.ArrowException) as error:
            raise self._error(file, error) from error
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        return sum(int(group.total_byte_size) for group in groups)

    def _batches(
        self, file: str, wanted: Mapping[SourcePartition, int] | None = None
    ) -> Iterator[pa.RecordBatch]:
        # Before it is parsed: a torn file can end the process that parses it.
        digest = digest_of(file)
        if digest is not None and file_digest(self._path / file) != digest:
            raise StagedFileError(self._path / file, reason="it is not what was written")
        with pq.ParquetFile(self._path / file, read_dictionary=DICTIONARY_COLUMNS) as parquet:
            groups = [
                i
                for i in range(parquet.metadata.num_row_groups)
                if wanted is None or _may_hold(parquet.metadata.row_group(i), wanted)
            ]
            for group in groups:
                # Over several at once a batch would be bounded by rows alone, whatever their size.
                yield from parquet.iter_batches(BATCH_ROWS, [group], use_threads=False)

    def _error(self, file: str, error: Exception) -> StagedFileError:
        return StagedFileError(self._path / file, reason=str(error).splitlines()[0])


def _may_hold(group: pq.RowGroupMetaData, wanted: Mapping[SourcePartition, int]) -> bool:
    """Return whether the statistics of a row group leave room for a wanted record."""
    columns = {group.column(i).path_in_schema: i for i in range(3 + 1)}
    stats = {n: group.column(columns[n]).statistics for n in ("topic", "partition", "offset")}
    if any(s is None or not s.has_min_max for s in stats.values()):
        return True
    topic, partition, offset = stats["topic"], stats["partition"], stats["offset"]
    return any(
        topic.min <= p.topic <= topic.max
        and partition.min <= p.partition <= partition.max
        and offset.max >= start
        for p, start in wanted.items()
    )


def _split_by_partition(batch: pa.RecordBatch) -> Iterator[tuple[SourcePartition, pa.RecordBatch]]:
    """Return *batch* cut where topic, incarnation or partition change."""
    topics, ids = batch.column("topic"), batch.column("topic_id")
    partitions = batch.column("partition").to_numpy()
    codes = [topics.indices.to_numpy(), ids.indices.to_numpy(), partitions]
    changes = np.flatnonzero(np.any([c[1:] != c[:-1] for c in codes], axis=0)) + 1
    edges = [0, *changes.tolist(), batch.num_rows]
    for start, end in pairwise(edges):
        if end > start:
            source = SourcePartition(
                topics[start].as_py(), ids[start].as_py(), int(partitions[start])
            )
            yield source, batch.slice(start, end - start)


def _rows_from(
    rows: pa.RecordBatch, at: int, source: SourcePartition, file: str
) -> tuple[pa.RecordBatch, int]:
    """Return *rows* from offset *at* on, and the next offset; they must rise."""
    offsets = rows.column("offset").to_numpy()
    if (offsets[1:] <= offsets[:-1]).any():
        raise LakeError(f"{file}: the offsets of {source} do not rise")
    kept = rows.slice(int(np.searchsorted(offsets, at)))
    return kept, max(at, int(offsets[-1]) + 1)
