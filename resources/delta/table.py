"""Append to, commit to and read a Delta table of the lake.

Only `DeltaLog` and `deltalake` commit to the tables; any Delta reader may read them. A commit that
sets a txn version is made on the snapshot whose txn versions were compared. Delta rejects a commit
on an older snapshot if the txn version changed since, but on the newest one it accepts a lower
value.
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

from resources.delta.arrow_schema import arrow_schema
from resources.delta.transaction_log import AddedFile, DeltaLog, LiveFile, is_checkpoint_due
from schemas.errors.lake import LakeError, LakeFormatError, StalePlanError, TableDamagedError
from schemas.tables import CHECKPOINT_EVERY, FORMAT_PROPERTY, Table

# Its txn version is the last time in ms that a row got, in tables whose rows are keyed by time.
CLOCK_APP_ID = "clock"
MAX_ERROR_LENGTH = 300  # characters of a library's error text: some texts quote the whole input
UNORDERED = 10**19 - 1  # order of a file that may hold any rows of its table
_ORDERED_NAME = re.compile(r"part-(\d{19})-[0-9a-f]{32}\.parquet")

log = logging.getLogger(__name__)


class LakeTable:
    """The table at *path*, described by *table*; created when first used. Not thread-safe."""

    def __init__(
        self, path: Path, table: Table, live: MutableMapping[str, LiveFile] | None = None
    ) -> None:
        """Refer to the table without opening it; *live* is filled with its live files."""
        self.path = path
        self.table = table
        self._live: MutableMapping[str, LiveFile] = {} if live is None else live
        self._opened_log: DeltaLog | None = None

    @property
    def delta(self) -> DeltaTable:
        """Return deltalake's table at the version last read. Raises TableDamagedError."""
        with self._converted_errors():
            return self.log.delta

    @property
    def version(self) -> int:
        """Return the version last read."""
        return self.log.version

    @property
    def live(self) -> Mapping[str, LiveFile]:
        """Return the live files of the snapshot last read, by path."""
        return self.log.files

    def refresh(self) -> int:
        """Read the commits of other writers; return the version. Raises TableDamagedError."""
        with self._converted_errors():
            return self.log.refresh()

    def exists(self) -> bool:
        """Return whether the table exists; this does not create it."""
        return self._opened_log is not None or DeltaTable.is_deltatable(str(self.path))

    def txn_version(self, app_id: str) -> int | None:
        """Return the txn version of *app_id* in the snapshot last read, or None."""
        with self._converted_errors():
            return self.log.txn_version(app_id)

    def txn_versions(self, prefix: str) -> dict[str, int] | None:
        """Return the txn versions of all app ids after *prefix*; None if they cannot be listed."""
        with self._converted_errors():
            return self.log.txn_versions(prefix)

    def next_time_ms(self) -> int:
        """Return the time in ms since 1970; later than CLOCK_APP_ID, if the clock was set back."""
        last = self.txn_version(CLOCK_APP_ID) if self.exists() else None
        return max(int(time.time() * 1000), (last or 0) + 1)

    def append(
        self,
        rows: pa.Table | Sequence[Mapping[str, Any]],
        *,
        txn_versions: Mapping[str, int] | None = None,
        expected: Mapping[str, int | None] | None = None,
        is_in_order: bool = True,
    ) -> int:
        """Append *rows* and set *txn_versions* in one commit; return its version.

        If the rows are not later than all others of their key, *is_in_order* is False.

        *expected* txn versions are compared on the snapshot of the commit. Raises StalePlanError,
        with nothing written, if one differs or another process set one of *txn_versions* meanwhile.
        """
        if not isinstance(rows, pa.Table):
            rows = pa.Table.from_pylist([dict(row) for row in rows], arrow_schema(self.table))
        self.refresh()
        self.check_txn_versions(expected or {})
        order = None if is_in_order else UNORDERED
        added = [self.write_file(rows, order)] if rows.num_rows else []
        return self.commit(added, txn_versions=txn_versions or {})

    def check_txn_versions(self, expected: Mapping[str, int | None]) -> None:
        """Raise StalePlanError if a txn version of the snapshot last read is not as *expected*."""
        for app_id, version in expected.items():
            found = self.txn_version(app_id)
            if found != version:
                raise StalePlanError(f"{self.path}: {app_id} is at {found}, not at {version}")

    def commit(
        self,
        added: Sequence[AddedFile],
        removed: Sequence[LiveFile] = (),
        *,
        txn_versions: Mapping[str, int],
        metadata: Mapping[str, str] | None = None,
        data_change: bool = True,
    ) -> int:
        """Commit as `DeltaLog.commit` does. Raises StalePlanError, LakeError for other failures."""
        with errors_as(LakeError, f"{self.path} cannot be written"):
            version = self.log.commit(added, removed, txn_versions, metadata or {}, data_change)
        if version % CHECKPOINT_EVERY == 0:
            try:
                self.checkpoint(CHECKPOINT_EVERY // 2)
            except LakeError as error:  # the commit is made nevertheless
                log.warning("%s", error)
        return version

    def rows(
        self, columns: Sequence[str] | None = None, where: pc.Expression | None = None
    ) -> pa.Table:
        """Return rows of the snapshot last read; a new table has none. Raises TableDamagedError."""
        names = list(columns) if columns else None
        if not self.exists():
            empty = arrow_schema(self.table).empty_table()
            return empty.select(names) if names else empty
        with errors_as(TableDamagedError, f"{self.path} cannot be read"):
            return self.delta.to_pyarrow_dataset().to_table(columns=names, filter=where)

    def newest_first(
        self, columns: Sequence[str], after: int = -1
    ) -> Iterator[tuple[int, pa.Table]]:
        """Yield the rows of the snapshot last read, files with the latest rows first.

        Each file has an order: the largest value of `Table.ordered_by` in it. Files of one order
        are yielded together, with the order. All files whose order is unknown are UNORDERED and
        come first. Files up to order *after* are left out. Raises TableDamagedError.
        """
        schema = arrow_schema(self.table)
        wanted = pa.schema([schema.field(name) for name in columns])
        by_order: dict[int, list[str]] = {}
        for path in sorted(self.live):
            by_order.setdefault(file_order(path), []).append(str(self.path / path))
        for order, files in sorted(by_order.items(), reverse=True):
            if order <= after:
                return
            with errors_as(TableDamagedError, f"{self.path} cannot be read"):
                rows = ds.dataset(files, schema=wanted).to_table()
            yield order, rows

    def checkpoint(self, commits: int) -> None:
        """Write a checkpoint if *commits* were made since the last one. Raises LakeError."""
        # Another instance of the table, because other threads may commit meanwhile.
        if is_checkpoint_due(self.path, commits):
            with errors_as(LakeError, f"no checkpoint of {self.path} can be written"):
                DeltaTable(str(self.path)).create_checkpoint()

    @property
    def log(self) -> DeltaLog:
        """Return the open log. Raises TableDamagedError, LakeError if it cannot be created."""
        if self._opened_log is None:
            with self._converted_errors():
                try:
                    self._opened_log = DeltaLog(self.path, self._live)
                except TableNotFoundError:
                    self._create()
                    self._opened_log = DeltaLog(self.path, self._live)
                self._check_format(self._opened_log.delta)
        return self._opened_log

    def _check_format(self, delta: DeltaTable) -> None:
        wanted = self.table.properties.get(FORMAT_PROPERTY)
        found = delta.metadata().configuration.get(FORMAT_PROPERTY, "1")
        if wanted is not None and found != wanted:
            raise LakeFormatError(path=self.path, found=found, wanted=wanted)

    @contextmanager
    def _converted_errors(self) -> Iterator[None]:
        """Raise library errors as TableDamagedError; open the table again after any error."""
        try:
            yield
        except (LakeError, DeltaError, OSError) as error:
            self._opened_log = None
            if isinstance(error, LakeError):
                raise
            raise TableDamagedError(f"{self.path} cannot be read: {first_line(error)}") from error

    def _create(self) -> None:
        with errors_as(LakeError, f"{self.path} cannot be created"):
            self.path.mkdir(parents=True, exist_ok=True)
            with _exclusive_lock(self.path):
                if not DeltaTable.is_deltatable(str(self.path)):  # no other writer was first
                    DeltaTable.create(
                        str(self.path),
                        arrow_schema(self.table),
                        name=self.table.name,
                        description=f"One row is {self.table.row}.",
                        configuration=dict(self.table.properties),
                        raise_if_key_not_exists=False,
                    )

    def write_file(self, rows: pa.Table, order: int | None = None) -> AddedFile:
        """Write *rows* as a file that a commit can add; for *order* see `newest_first`.

        None: it is known from the rows. Raises LakeError.
        """
        rows = rows.cast(arrow_schema(self.table))
        if order is None and (column := self.table.ordered_by):
            order = pc.max(rows[column]).as_py()
        prefix = "part-" if order is None else f"part-{order:019d}-"
        name = f"{prefix}{uuid4().hex}.parquet"
        with errors_as(LakeError, f"{self.path} cannot be written"):
            pq.write_table(rows, self.path / name)
            size = (self.path / name).stat().st_size
        stats = json.dumps({"numRecords": rows.num_rows})
        return AddedFile(LiveFile(name, size), int(time.time() * 1000), stats)


def file_order(path: str) -> int:
    """Return the order of the file at *path*, see `LakeTable.newest_first`."""
    name = _ORDERED_NAME.fullmatch(path)
    return int(name[1]) if name else UNORDERED


@contextmanager
def errors_as(kind: type[LakeError], failure: str) -> Iterator[None]:
    """Raise errors of deltalake, Arrow and the file system as *kind*, with the text *failure*."""
    try:
        yield
    except (DeltaError, OSError, pa.ArrowException) as error:
        raise kind(f"{failure}: {first_line(error)}") from error


@contextmanager
def _exclusive_lock(folder: Path) -> Iterator[None]:
    """Hold a lock of *folder*: deltalake commits a creation twice if two writers create a table."""
    lock = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def first_line(error: BaseException) -> str:
    """Return an error's text as one line: its first line and the causes listed below it."""
    # deltalake appends whole reports; the line of a cause begins with an arrow, in colours.
    text = re.sub(r"\x1b\[\d*m", "", str(error)).strip()
    first, *more = text.splitlines() or [type(error).__name__]
    causes = [line.strip("↳ ") for line in more if line.lstrip().startswith("↳")]
    return ": ".join([first[:MAX_ERROR_LENGTH], *causes])
