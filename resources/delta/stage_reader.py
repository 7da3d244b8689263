"""Read the staged log in offset order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from resources.delta.arrow_schema import file_schema
from resources.delta.file_names import digest_of, file_digest
from resources.delta.stage_writer import DICTIONARY_COLUMNS
from schemas.errors.lake import LakeError, StagedFileError
from schemas.kafka.partition import SourcePartition
from schemas.tables import RECORDS

BATCH_ROWS = 32_768
POSITION_COLUMNS = [*DICTIONARY_COLUMNS, "partition", "offset"]  # the key of a record

FILE_SCHEMA = pa.schema(
    field.with_type(pa.dictionary(pa.int32(), field.type))
    if field.name in DICTIONARY_COLUMNS
    else field
    for field in file_schema(RECORDS)
)


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
        return self._rows(files, wanted)

    def count(
        self, files: Sequence[str], source: SourcePartition, edges: Sequence[int], total: int
    ) -> list[int]:
        """Return the number of rows of *source* between each two neighbours of *edges*.

        *edges* are sorted offsets. Reading ends after *total* rows. Raises errors as `rows` does.
        """
        counts = np.zeros(len(edges) - 1, np.int64)
        for _, rows in self._rows(files, {source: edges[0]}, POSITION_COLUMNS):
            counts += np.diff(np.searchsorted(rows.column("offset").to_numpy(), edges))
            if counts.sum() >= total:
                break
        return counts.tolist()

    def _rows(
        self,
        files: Sequence[str],
        wanted: Mapping[SourcePartition, int],
        columns: list[str] | None = None,
    ) -> Iterator[tuple[SourcePartition, pa.RecordBatch]]:
        if not wanted:
            return
        next_offset = dict(wanted)
        for file in files:
            for batch in self._batches(file, wanted, columns):
                for source, rows in _split_by_partition(batch):
                    if source not in wanted:
                        continue
                    at = next_offset[source]
                    rows, next_offset[source] = _rows_from(rows, at, source, file)
                    if rows.num_rows:
                        yield source, rows

    def all_rows(self, files: Sequence[str]) -> Iterator[tuple[SourcePartition, pa.RecordBatch]]:
        """Yield every row of *files* in file order. Raises StagedFileError as `rows` does."""
        for file in files:
            for batch in self._batches(file):
                yield from _split_by_partition(batch)

    def memory_bytes(self, file: str) -> int:
        """Return about how many bytes all rows of *file* take in memory. Raises StagedFileError."""
        with _converted_errors(self._path / file):
            metadata = pq.read_metadata(self._path / file)
        groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
        return sum(int(group.total_byte_size) for group in groups)

    def _batches(
        self,
        file: str,
        wanted: Mapping[SourcePartition, int] | None = None,
        columns: list[str] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        path, digest = self._path / file, digest_of(file)
        with _converted_errors(path):
            # Checked before the file is parsed: a truncated file can crash the parsing process.
            if digest is not None and file_digest(path) != digest:
                raise StagedFileError(path, reason="its content does not match its digest")
            with pq.ParquetFile(path, read_dictionary=DICTIONARY_COLUMNS) as parquet:
                groups = [
                    i
                    for i in range(parquet.metadata.num_row_groups)
                    if wanted is None or _may_hold(parquet.metadata.row_group(i), wanted)
                ]
                for i in groups:
                    # A batch across row groups would have a bounded number of rows, not bytes.
                    for batch in parquet.iter_batches(BATCH_ROWS, [i], columns, use_threads=False):
                        yield batch if digest else _with_our_types(batch)


@contextmanager
def _converted_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise StagedFileError(path, reason=str(error).splitlines()[0]) from error


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


def _with_our_types(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows of a file that another program wrote, perhaps with views or large strings."""
    fields = [FILE_SCHEMA.field(name) for name in FILE_SCHEMA.names if name in batch.schema.names]
    return batch.select([field.name for field in fields]).cast(pa.schema(fields))


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
    """Return *rows* from offset *at* on, and the next offset. Raises LakeError."""
    offsets = rows.column("offset").to_numpy()
    if (offsets[1:] <= offsets[:-1]).any():
        raise LakeError(f"{file}: the offsets of {source} do not increase")
    kept = rows.slice(int(np.searchsorted(offsets, at)))
    return kept, max(at, int(offsets[-1]) + 1)
