"""Read the staged log in offset order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from resources.delta.arrow_schema import ROW_SCHEMA
from resources.delta.file_names import FOREIGN, file_digest, parse_name
from resources.delta.records_table import RecordsTable
from resources.delta.stage_writer import DICTIONARY_COLUMNS, FILE_SCHEMA
from schemas.errors.lake import LakeError, StagedFileError
from schemas.kafka.partition import SourcePartition

BATCH_ROWS = 32_768
POSITION_COLUMNS = [*DICTIONARY_COLUMNS, "partition", "offset"]  # the key of a record
OPEN_FILES = 64  # that a reader keeps open, because other slots' records are in them, too

READ_SCHEMA = pa.schema(
    field.with_type(pa.dictionary(pa.int32(), field.type))
    if field.name in DICTIONARY_COLUMNS
    else field
    for field in ROW_SCHEMA
)


class StageReader:
    """Reader of the files of a source cluster's `records`.

    Files of a slot, in order of sequence, hold increasing offsets of each partition. Within a file
    rows are sorted by slot, topic, partition and offset. So one pass over the files gives each
    partition's records in order; the reader still checks that offsets increase. It compares each
    file with its digest when it opens the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open_files: dict[str, _OpenFile] = {}
        self._shared_groups: dict[
            tuple[_OpenFile, int], list[tuple[SourcePartition, pa.RecordBatch]]
        ] = {}
        self._records: RecordsTable | None = None

    def rows(
        self,
        files: Sequence[str],
        wanted: Mapping[SourcePartition, int],
        on_damage: Callable[[LakeError], None] | None = None,
    ) -> Iterator[tuple[SourcePartition, pa.RecordBatch]]:
        """Yield the rows of *wanted* partitions from their offsets on; *files* are in order.

        A batch holds one partition of one incarnation. A file that compaction has replaced is read
        from the files that replace it. Raises StagedFileError, before any row of the file is
        yielded, if a file is missing or its digest differs; LakeError if offsets do not increase.
        With *on_damage*, for audits, such an error is passed to it and reading continues with the
        next file, and rows that are in two files are yielded twice.
        """
        return self._rows(files, wanted, on_damage=on_damage)

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

    def all_rows(
        self, files: Sequence[str], slot: int | None = None
    ) -> Iterator[tuple[SourcePartition, pa.RecordBatch]]:
        """Yield every row of *files*, or of one *slot*, in file order. Raises StagedFileError."""
        for file in files:
            for source, rows in self._parts(file, lambda b: slot is None or b.has_slot(slot)):
                if slot is None or source.slot == slot:
                    yield source, rows

    def sources(self, files: Sequence[str], slot: int) -> list[SourcePartition]:
        """Return the partitions of *slot* in *files*, in file order. Raises StagedFileError."""
        parts = (
            source
            for file in files
            for source, _ in self._parts(file, lambda b: b.has_slot(slot), POSITION_COLUMNS)
        )
        return list(dict.fromkeys(source for source in parts if source.slot == slot))

    def measure(self, files: Sequence[str], slot: int | None = None) -> tuple[int, int]:
        """Return the number of rows of *files*, and about how many bytes they take in memory.

        With *slot*, the rows and bytes of the row groups that may hold records of the slot.
        """
        rows = size_bytes = 0
        for file in files:
            with _converted_errors(self._path / file):
                found = self._opened(file).measure(slot)
            rows, size_bytes = rows + found[0], size_bytes + found[1]
        return rows, size_bytes

    def _rows(
        self,
        files: Sequence[str],
        wanted: Mapping[SourcePartition, int],
        columns: list[str] | None = None,
        on_damage: Callable[[LakeError], None] | None = None,
    ) -> Iterator[tuple[SourcePartition, pa.RecordBatch]]:
        if not wanted:
            return
        starts, next_offset, left = dict(wanted), dict(wanted), deque(files)
        slots = {source.slot for source in wanted}

        def is_wanted(bounds: _Bounds) -> bool:
            return any(map(bounds.has_slot, slots)) and bounds.may_hold(wanted)

        while left:
            file = left.popleft()
            try:
                if self._is_gone(file):
                    left = deque(self._replacements(file, left, next_offset))
                    starts = dict(next_offset)  # the rows before are in these files, too
                    continue
                for source, part in self._parts(file, is_wanted, columns):
                    if source not in wanted:
                        continue
                    at = (starts if on_damage else next_offset)[source]
                    rows = _rows_from(part, at, source, file)
                    if rows.num_rows:
                        last = rows.column("offset")[-1].as_py()
                        next_offset[source] = max(next_offset[source], last + 1)
                        yield source, rows
            except LakeError as error:
                if on_damage is None:
                    raise
                on_damage(error)

    def _is_gone(self, file: str) -> bool:
        try:
            self._opened(file)
        except FileNotFoundError:
            return True
        except (OSError, pa.ArrowException):  # `_parts` reports it
            return False
        return False

    def _replacements(
        self, file: str, later: Sequence[str], next_offset: Mapping[SourcePartition, int]
    ) -> list[str]:
        """Return the files that have the rows of *file*, which is gone, and of the *later* files.

        Compaction joins files of consecutive sequences, and the new file has the highest one. So
        they are the live files from the sequence of *file* on, up to the first one that is not
        before the last of *later*. Raises StagedFileError if *file* was not replaced, or if
        retention removed records from *next_offset* on.
        """
        records = self._records = self._records or RecordsTable(self._path)
        if not records.exists() or parse_name(file) == FOREIGN:
            raise StagedFileError(self._path / file, reason="it is missing")
        records.refresh()
        if file in records.live:
            raise StagedFileError(self._path / file, reason="it is missing")
        for source, at in next_offset.items():
            if (kept := records.retained_from(source)) is not None and kept > at:
                reason = f"retention removed the records of {source} before {kept} meanwhile"
                raise StagedFileError(self._path / file, reason=reason)
        first = parse_name(file).sequence
        last = max(parse_name(path).sequence for path in (file, *later))
        found: set[str] = set()
        slots = {source.slot for source in next_offset}
        for paths in records.paths_from(dict.fromkeys(slots, first)).values():
            end = next((n for p in paths if (n := parse_name(p).sequence) >= last), last)
            found.update(path for path in paths if parse_name(path).sequence <= end)
        return sorted(found, key=lambda path: (parse_name(path).sequence, path))

    def _opened(self, file: str) -> _OpenFile:
        """Return *file*, which is compared with its digest unless it is open and was not written.

        A file that is open stays readable after it was deleted.
        """
        path, digest = self._path / file, parse_name(file).digest
        opened, written_ns = self._open_files.get(file), _written_ns(path)
        if opened is not None and written_ns in (None, opened.written_ns):
            return opened
        # Compared before the file is parsed: a truncated file can crash the parsing process.
        if digest is not None and file_digest(path) != digest:
            raise StagedFileError(path, reason="its content does not match its digest")
        parquet = pq.ParquetFile(path, read_dictionary=DICTIONARY_COLUMNS)
        if len(self._open_files) >= OPEN_FILES:
            del self._open_files[next(iter(self._open_files))]
        opened = _OpenFile(parquet, written_ns, is_foreign=digest is None)
        self._open_files[file] = opened
        return opened

    def _parts(
        self, file: str, is_wanted: Callable[[_Bounds], bool], columns: list[str] | None = None
    ) -> Iterator[tuple[SourcePartition, pa.RecordBatch]]:
        """Yield the rows of the row groups whose bounds are wanted or unknown."""
        with _converted_errors(self._path / file):
            opened = self._opened(file)
            for i, bounds in enumerate(opened.bounds):
                if bounds is not None and not is_wanted(bounds):
                    continue
                if bounds is not None and bounds.is_shared:
                    yield from self._shared_group(opened, i)
                    continue
                for batch in opened.batches(i, columns):
                    yield from _split_by_partition(batch)

    def _shared_group(
        self, opened: _OpenFile, number: int
    ) -> list[tuple[SourcePartition, pa.RecordBatch]]:
        """Return the rows of a row group of several slots; keep them for readers of the others."""
        found = self._shared_groups.get((opened, number))
        if found is None:
            found = [
                part for batch in opened.batches(number) for part in _split_by_partition(batch)
            ]
            if len(self._shared_groups) >= OPEN_FILES:
                del self._shared_groups[next(iter(self._shared_groups))]
            self._shared_groups[opened, number] = found
        return found


@dataclass(frozen=True, slots=True)
class _Bounds:
    """The smallest and the largest slot, topic, partition and offset of a row group."""

    slots: tuple[int, int]
    topics: tuple[str, str]
    partitions: tuple[int, int]
    offsets: tuple[int, int]

    @property
    def is_shared(self) -> bool:
        return self.slots[0] != self.slots[1]

    def has_slot(self, slot: int) -> bool:
        """Return whether the row group may hold a record of *slot*."""
        return self.slots[0] <= slot <= self.slots[1]

    def may_hold(self, wanted: Mapping[SourcePartition, int]) -> bool:
        """Return whether the row group may hold a wanted record."""
        (first, last), (low, high), (_, end) = self.topics, self.partitions, self.offsets
        return any(
            first <= p.topic <= last and low <= p.partition <= high and end >= start
            for p, start in wanted.items()
        )


class _OpenFile:
    """An open file, last written at *written_ns*, with the bounds of its row groups.

    *is_foreign* means that another program wrote it.
    """

    def __init__(
        self, parquet: pq.ParquetFile, written_ns: int | None, *, is_foreign: bool
    ) -> None:
        self._parquet, self.written_ns, self._is_foreign = parquet, written_ns, is_foreign
        numbers = range(parquet.num_row_groups)
        self.bounds = [None if is_foreign else _bounds_of(parquet, i) for i in numbers]

    def batches(self, number: int, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a row group, all columns but `slot` or only *columns*."""
        # A batch across row groups would have a bounded number of rows, not bytes.
        for batch in self._parquet.iter_batches(
            BATCH_ROWS, [number], columns or ROW_SCHEMA.names, use_threads=False
        ):
            yield _with_our_types(batch) if self._is_foreign else batch

    def measure(self, slot: int | None) -> tuple[int, int]:
        """Return rows and uncompressed bytes of the row groups that may hold records of *slot*."""
        groups = [
            self._parquet.metadata.row_group(i)
            for i, bounds in enumerate(self.bounds)
            if slot is None or bounds is None or bounds.has_slot(slot)
        ]
        return sum(g.num_rows for g in groups), sum(int(g.total_byte_size) for g in groups)


def _written_ns(path: Path) -> int | None:
    """Return when the file at *path* was last written, in ns since 1970; None if it is gone."""
    with suppress(OSError):
        return path.stat().st_mtime_ns
    return None


def _bounds_of(parquet: pq.ParquetFile, number: int) -> _Bounds:
    group = parquet.metadata.row_group(number)
    stats = (
        group.column(FILE_SCHEMA.get_field_index(name)).statistics
        for name in ("slot", "topic", "partition", "offset")
    )
    return _Bounds(*((each.min, each.max) for each in stats))


@contextmanager
def _converted_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise StagedFileError(path, reason=str(error).splitlines()[0]) from error


def _with_our_types(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows of a file that another program wrote, perhaps with views or large strings."""
    fields = [READ_SCHEMA.field(name) for name in READ_SCHEMA.names if name in batch.schema.names]
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


def _rows_from(rows: pa.RecordBatch, at: int, source: SourcePartition, file: str) -> pa.RecordBatch:
    """Return *rows* from offset *at* on. Raises LakeError if offsets do not increase."""
    offsets = rows.column("offset").to_numpy()
    if (offsets[1:] <= offsets[:-1]).any():
        raise LakeError(f"{file}: the offsets of {source} do not increase")
    return rows.slice(int(np.searchsorted(offsets, at)))
