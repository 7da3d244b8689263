"""A Delta table of the lake: appended to, compared with, and read.

All tables are committed to by `DeltaLog` and `deltalake` alone, and read by whoever likes. A commit
that carries a mark (`txn`) is made on the very snapshot whose marks were compared: a stale snapshot
is refused, but a fresh one would take a lower mark (DESIGN 2.1).
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import time
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from resources.delta.arrow_schema import arrow_schema, file_schema
from resources.delta.transaction_log import (
    AddedFile,
    DeltaLog,
    LiveFile,
    RemovedFile,
    is_checkpoint_due,
)
from schemas.errors import LakeError, StalePlanError, TableDamagedError
from schemas.tables import CHECKPOINT_EVERY, Table

CLOCK_APP_ID = "clock"
"""The mark of tables whose rows are told apart by their times: the last one told."""

MAX_ERROR_LENGTH = 300
"""How many characters are told of a library's error: some quote all they have in their hands."""

log = logging.getLogger(__name__)


class LakeTable:
    """One table at *path*, described by *table*; made at its first use. Not thread-safe."""

    def __init__(
        self, path: Path, table: Table, live: MutableMapping[str, LiveFile] | None = None
    ) -> None:
        """Know the table by its *path*; its live files are kept in *live*."""
        self.path = path
        self.table = table
        self._live: MutableMapping[str, LiveFile] = {} if live is None else live
        self._opened_log: DeltaLog | None = None

    @property
    def delta(self) -> DeltaTable:
        """Return the table as deltalake has it, at the version last seen.

        Raises TableDamagedError: it is broken.
        """
        with self._converted_errors():
            return self.log.delta

    @property
    def version(self) -> int:
        """Return the version last seen."""
        return self.log.version

    @property
    def live(self) -> Mapping[str, LiveFile]:
        """Return the live files of the snapshot last seen, by their paths."""
        return self.log.files

    def refresh(self) -> int:
        """See what others committed since; return the version. Raises TableDamagedError."""
        with self._converted_errors():
            return self.log.refresh()

    def exists(self) -> bool:
        """Return whether the table was made already; asking does not make it."""
        return self._opened_log is not None or DeltaTable.is_deltatable(str(self.path))

    def txn_version(self, app_id: str) -> int | None:
        """Return the version of the `txn` mark *app_id* in the snapshot last seen, or None."""
        with self._converted_errors():
            return self.log.txn_version(app_id)

    def next_time_ms(self) -> int:
        """Return the time in ms since 1970; never one that the mark CLOCK has reached already.

        So the newest row is the newest also where the clock was set back.
        """
        last = self.txn_version(CLOCK_APP_ID) if self.exists() else None
        return max(int(time.time() * 1000), (last or 0) + 1)

    def append(
        self,
        rows: pa.Table | Sequence[Mapping[str, Any]],
        *,
        txn_versions: Mapping[str, int] | None = None,
        expected: Mapping[str, int | None] | None = None,
    ) -> int:
        """Append *rows* and set *txn_versions* in one commit; return its version.

        *expected* marks are compared on the snapshot that commits. Raises StalePlanError, with
        nothing written, where one differs or somebody else committed the same mark meanwhile.
        """
        rows = self._as_table(rows)
        self.refresh()
        self.check_txn_versions(expected or {})
        added = [self.write_file(rows)] if rows.num_rows else []
        return self.commit(added, txn_versions=txn_versions or {})

    def check_txn_versions(self, expected: Mapping[str, int | None]) -> None:
        """Raise StalePlanError where a mark of the snapshot last seen is not the expected one."""
        for app_id, version in expected.items():
            found = self.txn_version(app_id)
            if found != version:
                raise StalePlanError(f"{self.path}: {app_id} is at {found}, not at {version}")

    def commit(
        self,
        added: Sequence[AddedFile],
        removed: Sequence[RemovedFile] = (),
        *,
        txn_versions: Mapping[str, int],
        metadata: Mapping[str, str] | None = None,
    ) -> int:
        """Commit on the snapshot last seen, with *txn_versions*; return the new version.

        Raises StalePlanError where another writer was first, LakeError for anything else.
        """
        seen, by = self.log, self.table.partitioned_by
        try:
            version = seen.commit(added, removed, txn_versions, metadata or {}, by)
        except (DeltaError, OSError) as error:
            raise LakeError(f"{self.path} cannot be written: {first_line(error)}") from error
        if version % CHECKPOINT_EVERY == 0:
            try:
                self.checkpoint(CHECKPOINT_EVERY // 2)
            except LakeError as error:  # the commit counts all the same
                log.warning("%s", error)
        return version

    def rows(
        self,
        columns: Sequence[str] | None = None,
        where: pc.Expression | None = None,
    ) -> pa.Table:
        """Return rows as an Arrow table, of the snapshot last seen.

        *where* is a `pyarrow.dataset` expression. A table that nobody made yet has no rows.
        """
        if not self.exists():
            empty = arrow_schema(self.table).empty_table()
            return empty.select(list(columns)) if columns else empty
        try:
            dataset = self.delta.to_pyarrow_dataset()
            return dataset.to_table(columns=list(columns) if columns else None, filter=where)
        except (DeltaError, OSError, pa.ArrowException) as error:
            raise TableDamagedError(f"{self.path} cannot be read: {first_line(error)}") from error

    def rows_of_new_files(self, columns: Sequence[str], known: set[str]) -> pa.Table:
        """Return the rows of live files that are not *known*, and add those files to it.

        For who has read the rest: a table of many files takes long to read. Rows of files that
        were merged come once more. Raises TableDamagedError, and then none of them is known.
        """
        schema = arrow_schema(self.table)
        wanted = pa.schema([schema.field(name) for name in columns])
        try:
            live = set(self.live)
            files = [str(self.path / path) for path in sorted(live - known)]
            rows = ds.dataset(files, schema=wanted).to_table() if files else wanted.empty_table()
        except (DeltaError, OSError, pa.ArrowException) as error:
            raise TableDamagedError(f"{self.path} cannot be read: {first_line(error)}") from error
        known.clear()  # only now: a file that could not be read is still new
        known.update(live)
        return rows

    def checkpoint(self, commits: int) -> bool:
        """Write a checkpoint where there were *commits* since the last; return whether.

        Raises LakeError. Other threads may commit meanwhile.
        """
        is_due = is_checkpoint_due(self.path, commits)
        if is_due:
            try:
                DeltaTable(str(self.path)).create_checkpoint()
            except (DeltaError, OSError) as error:
                raise LakeError(f"{self.path} gets no checkpoint: {first_line(error)}") from error
        return is_due

    @property
    def log(self) -> DeltaLog:
        """Return the open log. Raises TableDamagedError: it is broken; LakeError."""
        if self._opened_log is None:
            with self._converted_errors():
                self._opened_log = self._open()
        return self._opened_log

    @contextmanager
    def _converted_errors(self) -> Iterator[None]:
        """Raise TableDamagedError, and open the table anew next time, where it cannot be read."""
        try:
            yield
        except LakeError:
            self._opened_log = None
            raise
        except (DeltaError, OSError) as error:
            self._opened_log = None
            raise TableDamagedError(f"{self.path} cannot be read: {first_line(error)}") from error

    def _open(self) -> DeltaLog:
        try:
            return DeltaLog(self.path, self._live)
        except TableNotFoundError:
            self._create()
            return DeltaLog(self.path, self._live)

    def _create(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with _exclusive_lock(self.path):
                if DeltaTable.is_deltatable(str(self.path)):  # another one was first
                    return
                DeltaTable.create(
                    str(self.path),
                    arrow_schema(self.table),
                    partition_by=list(self.table.partitioned_by) or None,
                    name=self.table.name,
                    description=f"One row is {self.table.row}.",
                    configuration=dict(self.table.properties),
                )
        except (DeltaError, OSError) as error:
            raise LakeError(f"{self.path} cannot be made: {first_line(error)}") from error

    def _as_table(self, rows: pa.Table | Sequence[Mapping[str, Any]]) -> pa.Table:
        if isinstance(rows, pa.Table):
            return rows
        return pa.Table.from_pylist([dict(row) for row in rows], file_schema(self.table))

    def write_file(self, rows: pa.Table, *, data_change: bool = True) -> AddedFile:
        """Write *rows* as a file that a commit can add. Raises LakeError."""
        name = f"part-{uuid4().hex}.parquet"
        try:
            pq.write_table(rows.cast(file_schema(self.table)), self.path / name)
            size = (self.path / name).stat().st_size
        except OSError as error:
            raise LakeError(f"{self.path} cannot be written: {first_line(error)}") from error
        stats = json.dumps({"numRecords": rows.num_rows})
        file = LiveFile(name, size, rows.num_rows, {})
        return AddedFile(file, int(time.time() * 1000), stats, data_change)


@contextmanager
def _exclusive_lock(folder: Path) -> Iterator[None]:
    """Wait until nobody else, thread or process, is in here with *folder*.

    deltalake commits a table that two make at once a second time, and refuses the first writer.
    """
    lock = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def first_line(error: BaseException) -> str:
    """Return an error's text in one line: its first one, and the causes that are listed below it.

    These libraries append whole reports; a cause begins with an arrow, in colours.
    """
    text = re.sub(r"\x1b\[\d*m", "", str(error)).strip()
    first, *more = text.splitlines() or [type(error).__name__]
    causes = [line.strip("↳ ") for line in more if line.lstrip().startswith("↳")]
    return ": ".join([first[:MAX_ERROR_LENGTH], *causes])
