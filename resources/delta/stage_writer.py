"""Write Parquet files of the staged log directly into the table's folder."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from resources.delta.arrow_schema import file_schema
from resources.delta.file_names import file_digest, file_name
from schemas.errors.lake import LakeError
from schemas.staging.segment import StagedFile
from schemas.tables import RECORDS

SCHEMA = file_schema(RECORDS)
ROW_GROUP_BYTES = 8 * 2**20
ROW_GROUP_ROWS = 60_000
DICTIONARY_COLUMNS = ["topic", "topic_id"]  # they have few distinct values in a file


class ParquetSlotFileWriter:
    """Writer of one file with row groups of about 8 MiB, which a reader can skip."""

    def __init__(self, table: Path, slot: int, sequence: int) -> None:
        self._slot, self._sequence, self._unique = slot, sequence, uuid4().hex
        self._folder = table / f"slot={slot}"
        self._draft = self._folder / f"{self._unique}.draft"
        self._has_draft = False
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._pending_rows = 0
        self._writer: pq.ParquetWriter | None = None
        self._rows = 0
        self._bounds: list[int] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Append *batch*. It is buffered, and on disk when the file is closed at the latest."""
        self._pending.append(batch)
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
        name = file_name(self._sequence, self._unique, file_digest(self._draft))
        file = self._draft.rename(self._folder / name)
        self._writer, self._has_draft = None, False
        low, high = {"offset": min(self._bounds)}, {"offset": max(self._bounds)}
        stats = json.dumps({"numRecords": self._rows, "minValues": low, "maxValues": high})
        path, size = f"{self._folder.name}/{name}", file.stat().st_size
        return StagedFile(path, size, self._slot, stats, int(time.time() * 1000))

    def discard(self) -> None:
        """Delete the file if it was not closed."""
        writer, self._writer = self._writer, None
        if writer is not None:
            with suppress(OSError):  # on a full disk closing fails, too
                writer.close()
        if self._has_draft:
            self._has_draft = False
            self._draft.unlink(missing_ok=True)

    def _flush(self) -> None:
        if not self._pending:
            return
        rows = pa.Table.from_batches(self._pending, SCHEMA)
        if self._writer is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._has_draft = True
            self._writer = pq.ParquetWriter(
                self._draft,
                SCHEMA,
                compression="zstd",
                compression_level=1,
                use_dictionary=DICTIONARY_COLUMNS,
                write_statistics=["topic", "partition", "offset"],
            )
        self._writer.write_table(rows, row_group_size=rows.num_rows)
        for offsets in rows.column("offset").chunks:
            self._bounds += (offsets[0].as_py(), offsets[-1].as_py())
        self._rows += rows.num_rows
        self._pending, self._pending_bytes, self._pending_rows = [], 0, 0


class RecordsDirectory:
    """The folder of `records`, to which worker tasks write files."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @contextmanager
    def slot_file(self, slot: int, sequence: int) -> Iterator[ParquetSlotFileWriter]:
        """Yield a writer of a new file of *slot*. Raises LakeError if it cannot be written."""
        file = ParquetSlotFileWriter(self._path, slot, sequence)
        try:
            yield file
        except OSError as error:
            raise LakeError(f"{self._path} cannot be written: {error}") from error
        finally:
            file.discard()


def cast_to_file_schema(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return *batch* with the column types of a file: decode the dictionary columns."""
    columns = [batch.column(field.name).cast(field.type) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
