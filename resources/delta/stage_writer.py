"""Write Parquet files of the staged log directly into the table's folder."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from resources.delta.arrow_schema import ROW_SCHEMA, arrow_schema
from resources.delta.file_names import DAMAGED_FOLDER, file_digest, file_name
from schemas.errors.lake import LakeError
from schemas.kafka.partition import SourcePartition
from schemas.staging.segment import StagedFile
from schemas.tables import RECORDS

FILE_SCHEMA = arrow_schema(RECORDS)
ROW_GROUP_BYTES = 8 * 2**20
ROW_GROUP_ROWS = 60_000
SHARED_GROUP_BYTES = 256 * 2**10  # writing and reading a row group takes 1 ms, however small it is
DICTIONARY_COLUMNS = ["topic", "topic_id"]  # they have few distinct values in a file
BOUNDED_COLUMNS = ["slot", "topic", "partition", "offset", "timestamp_ms"]
"""Columns whose smallest and largest values are in the `add` action and in the file's footer."""


class ParquetFileWriter:
    """Writer of one file.

    A row group has about 8 MiB of one slot at most, which a reader of other slots can skip. Slots
    with few records share a row group, of SHARED_GROUP_BYTES at most.
    """

    def __init__(self, table: Path, sequence: int, level: int) -> None:
        self._folder, self._unique = table, uuid4().hex
        self._sequence, self._level = sequence, level
        self._draft = table / f"{self._unique}.draft"
        self._has_draft = False
        self._pending: list[pa.RecordBatch] = []
        self._pending_slots: dict[int, int] = {}  # and their numbers of rows
        self._pending_bytes = 0
        self._pending_rows = 0
        self._writer: pq.ParquetWriter | None = None
        self._slots = 0
        self._rows = 0
        self._bounds: dict[str, tuple[Any, Any]] = {}

    def write(self, slot: int, batch: pa.RecordBatch) -> None:
        """Append *batch* of *slot*. It is buffered, and on disk when the file is closed."""
        # A batch that is larger than a row group is several.
        parts = max(1, batch.nbytes // ROW_GROUP_BYTES)
        rows = -(-batch.num_rows // parts)
        for start in range(0, batch.num_rows, max(1, rows)):
            self._write(slot, batch.slice(start, rows))

    def _write(self, slot: int, batch: pa.RecordBatch) -> None:
        is_shared = bool(self._pending_slots.keys() - {slot})
        if is_shared and self._pending_bytes + batch.nbytes > SHARED_GROUP_BYTES:
            self._flush()
        self._pending.append(batch)
        self._pending_slots[slot] = self._pending_slots.get(slot, 0) + batch.num_rows
        self._pending_bytes += batch.nbytes
        self._pending_rows += batch.num_rows
        if self._pending_bytes >= ROW_GROUP_BYTES or self._pending_rows >= ROW_GROUP_ROWS:
            self._flush()

    def close(self) -> StagedFile | None:
        """Complete the file and return it, or None if nothing was written and no file exists."""
        self._flush()
        if self._writer is None:
            return None
        self._writer.close()
        digest = file_digest(self._draft)
        name = file_name(self._sequence, self._slots, self._level, self._unique, digest)
        file = self._draft.rename(self._folder / name)
        self._writer, self._has_draft = None, False
        low, high = ({n: bound[i] for n, bound in self._bounds.items()} for i in (0, 1))
        stats = json.dumps({"numRecords": self._rows, "minValues": low, "maxValues": high})
        return StagedFile(name, file.stat().st_size, stats, int(time.time() * 1000))

    def discard(self) -> None:
        """Delete the file if it was not closed."""
        writer, self._writer = self._writer, None
        if writer is not None:
            with suppress(OSError):  # on a full disk closing fails, too
                writer.close()
        if self._has_draft:
            self._has_draft = False
            with suppress(OSError):
                self._draft.unlink()

    def _flush(self) -> None:
        if not self._pending:
            return
        slots = np.repeat(
            np.array([*self._pending_slots], np.int32), [*self._pending_slots.values()]
        )
        rows = pa.Table.from_batches(self._pending, ROW_SCHEMA)
        rows = rows.add_column(0, FILE_SCHEMA.field("slot"), pa.array(slots))
        if self._writer is None:
            self._has_draft = True
            self._writer = pq.ParquetWriter(
                self._draft,
                FILE_SCHEMA,
                compression="zstd",
                compression_level=1,
                use_dictionary=DICTIONARY_COLUMNS,
                write_statistics=BOUNDED_COLUMNS,
            )
        self._writer.write_table(rows, row_group_size=rows.num_rows)
        for name in BOUNDED_COLUMNS:
            found = pc.min_max(rows.column(name)).as_py()
            low, high = self._bounds.get(name, (found["min"], found["max"]))
            self._bounds[name] = min(low, found["min"]), max(high, found["max"])
        self._slots |= sum(1 << slot for slot in self._pending_slots)
        self._rows += rows.num_rows
        self._pending_slots = {}
        self._pending, self._pending_bytes, self._pending_rows = [], 0, 0


class RecordsDirectory:
    """The folder of `records`, to which worker tasks write files."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @contextmanager
    def records_file(self, sequence: int, level: int = 0) -> Iterator[ParquetFileWriter]:
        """Yield a writer of a new file. Raises LakeError if it cannot be written."""
        file = ParquetFileWriter(self._path, sequence, level)
        try:
            yield file
        except OSError as error:
            raise LakeError(f"{self._path} cannot be written: {error}") from error
        finally:
            file.discard()

    def unlisted_files(self, live: Collection[str]) -> list[str]:
        """Return the data files that are not *live*: damaged, replaced, or of lost commits."""
        found = [*(self._path / DAMAGED_FOLDER).glob("*.parquet"), *self._path.glob("*.parquet")]
        paths = (str(file.relative_to(self._path)) for file in found)
        return [path for path in paths if path not in live]

    def keep_damaged(self, path: str) -> None:
        """Keep the file at *path* in DAMAGED_FOLDER, where no vacuum deletes it, if it exists."""
        folder = self._path / DAMAGED_FOLDER
        folder.mkdir(exist_ok=True)
        with suppress(FileNotFoundError, FileExistsError):
            os.link(self._path / path, folder / path)

    def delete_damaged(self) -> None:
        """Delete DAMAGED_FOLDER: every record is in the table."""
        shutil.rmtree(self._path / DAMAGED_FOLDER, ignore_errors=True)


def join_batches(
    rows: Iterable[tuple[SourcePartition, pa.RecordBatch]],
) -> Iterator[tuple[SourcePartition, pa.RecordBatch]]:
    """Yield the rows of each partition as one batch, because each batch takes time."""
    found: dict[SourcePartition, list[pa.RecordBatch]] = {}
    for source, batch in rows:
        found.setdefault(source, []).append(batch)
    for source, batches in found.items():
        table = pa.Table.from_batches(batches).unify_dictionaries().combine_chunks()
        for batch in table.to_batches():
            yield source, cast_to_row_schema(batch)


def cast_to_row_schema(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return *batch* with the column types of records: decode the dictionary columns."""
    columns = [batch.column(field.name).cast(field.type) for field in ROW_SCHEMA]
    return pa.RecordBatch.from_arrays(columns, schema=ROW_SCHEMA)
