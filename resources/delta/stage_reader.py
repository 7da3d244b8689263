"""Read the staged log in offset order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from resources.delta.file_names import digest_of, file_digest
from schemas.errors.lake import LakeError, StagedFileError
from schemas.kafka.partition import SourcePartition

BATCH_ROWS = 32_768
DICTIONARY_COLUMNS = ["topic", "topic_id"]


class StageReader:
    """Reader of the files of a source cluster's `records`.

    Files of a slot, in order of sequence, hold increasing offsets of each partition. Within a file
    rows are sorted by topic, partition and offset. So one pass over the files gives each
    partition's records in order; the reader still checks that offsets increase.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def rows(
        self, files: Sequence[str], wanted: Mapping[SourcePartition, int]
    ) -> Iterator[tuple[SourcePartition, pa.RecordBatch]]:
        """Yield the rows of *wanted* partitions from their offsets on; *files* are in order.

        A batch holds one partition of one incarnation. Raises StagedFileError, before any row of
        the file is yielded, if a file is missing or its digest differs; LakeError if offsets do
        not increase.
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
        """Yield every row of *files* in file order. Raises StagedFileError as `rows` does."""
        for file in files:
            try:
                for batch in self._batches(file):
                    yield from _split_by_partition(batch)
            except (OSError, pa.ArrowException) as error:
                raise self._error(file, error) from error

    def memory_bytes(self, file: str) -> int:
        """Return the approximate memory in bytes that all rows of *file* take.

        Raises StagedFileError.
        """
        try:
            metadata = pq.read_metadata(self._path / file)
        except (OSError, pa.ArrowException) as error:
            raise self._error(file, error) from error
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        return sum(int(group.total_byte_size) for group in groups)

    def _batches(
        self, file: str, wanted: Mapping[SourcePartition, int] | None = None
    ) -> Iterator[pa.RecordBatch]:
        # Checked before the file is parsed: a truncated file can crash the parsing process.
        digest = digest_of(file)
        if digest is not None and file_digest(self._path / file) != digest:
            raise StagedFileError(self._path / file, reason="its content does not match its digest")
        with pq.ParquetFile(self._path / file, read_dictionary=DICTIONARY_COLUMNS) as parquet:
            groups = [
                i
                for i in range(parquet.metadata.num_row_groups)
                if wanted is None or _may_hold(parquet.metadata.row_group(i), wanted)
            ]
            for group in groups:
                # A batch across row groups would be bounded by its rows only, not by their size.
                yield from parquet.iter_batches(BATCH_ROWS, [group], use_threads=False)

    def _error(self, file: str, error: Exception) -> StagedFileError:
        return StagedFileError(self._path / file, reason=str(error).splitlines()[0])


def _may_hold(group: pq.RowGroupMetaData, wanted: Mapping[SourcePartition, int]) -> bool:
    """Return whether a row group may hold a wanted record, by its statistics."""
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
    """Yield slices of *batch*, split at every change of topic, incarnation or partition."""
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
    """Return *rows* from offset *at* on, and the next offset.

    Raises LakeError if offsets do not increase.
    """
    offsets = rows.column("offset").to_numpy()
    if (offsets[1:] <= offsets[:-1]).any():
        raise LakeError(f"{file}: the offsets of {source} do not increase")
    kept = rows.slice(int(np.searchsorted(offsets, at)))
    return kept, max(at, int(offsets[-1]) + 1)
