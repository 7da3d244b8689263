"""A Delta table of the lake: appended to, compared with, and read.

All tables are committed to by `deltalake` alone, whatever wrote their files, and read by whoever
likes. A commit that carries a mark (`txn`) is made on the very snapshot whose marks were compared:
deltalake refuses a stale snapshot but would take a fresh one with a lower mark (DESIGN 2.1).
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from resources.arrow import arrow_schema, file_schema
from schemas.errors import LakeError, StalePlanError, TableDamagedError
from schemas.tables import Table

MAINTAINED = "maintained"
"""The mark that whoever rewrites a table's files moves: of two at a time, one is refused."""

CLOCK = "clock"
"""The mark of tables whose rows are told apart by their times: the last one told."""

SMALL_BYTES = 8 * 2**20
MANY = 16
"""`merge` joins files below SMALL_BYTES once there are MANY of them."""

LONGEST = 300
"""How many characters are told of a library's error: some quote all they have in their hands."""


class LakeTable:
    """One table at *path*, described by *table*; made at its first use."""

    def __init__(self, path: Path, table: Table) -> None:
        self.path = path
        self.table = table
        self._delta: DeltaTable | None = None
        # The marks that were asked for, of one version: deltalake goes through all to find one.
        self._marks: dict[str, int | None] = {}
        self._marks_at = -1

    @property
    def delta(self) -> DeltaTable:
        """Return the open table at the version last seen. Raises TableDamagedError: broken."""
        if self._delta is None:
            self._delta = self._open()
        return self._delta

    @property
    def version(self) -> int:
        """Return the version last seen."""
        return self.delta.version()

    def refresh(self) -> int:
        """See what others committed since; return the version."""
        try:
            self.delta.update_incremental()
        except (DeltaError, OSError) as error:
            self._delta = None
            raise TableDamagedError(f"{self.path} cannot be read: {_line(error)}") from error
        return self.version

    def exists(self) -> bool:
        """Return whether the table was made already; asking does not make it."""
        return self._delta is not None or DeltaTable.is_deltatable(str(self.path))

    def mark(self, app_id: str) -> int | None:
        """Return the version of the `txn` mark *app_id* in the snapshot last seen, or None."""
        if self._marks_at != self.version:
            self._marks, self._marks_at = {}, self.version
        if app_id not in self._marks:
            self._marks[app_id] = self.delta.transaction_version(app_id)
        return self._marks[app_id]

    def next_time(self) -> int:
        """Return the time in ms since 1970; never one that the mark CLOCK has reached already.

        So the newest row is the newest also where the clock was set back.
        """
        last = self.mark(CLOCK) if self.exists() else None
        return max(int(time.time() * 1000), (last or 0) + 1)

    def append(
        self,
        rows: pa.Table | Sequence[Mapping[str, Any]],
        *,
        marks: Mapping[str, int] | None = None,
        expected: Mapping[str, int | None] | None = None,
    ) -> int:
        """Append *rows* and set *marks* in one commit; return its version.

        *expected* marks are compared on the snapshot that commits. Raises StalePlanError, with
        nothing written, where one differs or somebody else committed the same mark meanwhile.
        """
        rows = self._as_table(rows)
        self.refresh()
        self.compare(expected or {})
        actions = [self._write(rows)] if rows.num_rows else []
        return self.commit(actions, marks or {})

    def compare(self, expected: Mapping[str, int | None]) -> None:
        """Raise StalePlanError where a mark of the snapshot last seen is not the expected one."""
        for app_id, version in expected.items():
            found = self.mark(app_id)
            if found != version:
                raise StalePlanError(f"{self.path}: {app_id} is at {found}, not at {version}")

    def commit(
        self,
        actions: Sequence[AddAction | RemoveAction],
        marks: Mapping[str, int],
        metadata: Mapping[str, str] | None = None,
    ) -> int:
        """Commit *actions* with *marks* on the snapshot last seen; return the new version.

        Raises StalePlanError where another writer was first, LakeError for anything else.
        """
        before = self.version
        properties = CommitProperties(
            custom_metadata=dict(metadata or {}),
            app_transactions=[Transaction(app_id, v) for app_id, v in marks.items()],
        )
        try:
            self.delta.create_write_transaction(
                list(actions),
                mode="append",
                schema=self.delta.schema(),
                partition_by=list(self.table.partitioned_by),
                commit_properties=properties,
            )
        except CommitFailedError as error:
            self.refresh()
            raise StalePlanError(f"{self.path}: {_line(error)}") from error
        except (DeltaError, OSError) as error:
            raise LakeError(f"{self.path} cannot be written: {_line(error)}") from error
        # The object that committed still shows its old version (reference, delta-staging 6.1).
        if self.refresh() == before + 1 == self._marks_at + 1:  # nobody else has moved a mark
            self._marks |= marks
            self._marks_at = self.version
        return self.version

    def rows(
        self,
        columns: Sequence[str] | None = None,
        where: pc.Expression | None = None,
        version: int | None = None,
    ) -> pa.Table:
        """Return rows as an Arrow table, of the snapshot last seen or of *version*.

        *where* is a `pyarrow.dataset` expression. A table that nobody made yet has no rows.
        """
        if not self.exists():
            empty = arrow_schema(self.table).empty_table()
            return empty.select(list(columns)) if columns else empty
        try:
            delta = self.delta if version is None else DeltaTable(str(self.path), version=version)
            dataset = delta.to_pyarrow_dataset()
            return dataset.to_table(columns=list(columns) if columns else None, filter=where)
        except (DeltaError, OSError, pa.ArrowException) as error:
            raise TableDamagedError(f"{self.path} cannot be read: {_line(error)}") from error

    def rows_of_new_files(self, columns: Sequence[str], known: set[str]) -> pa.Table:
        """Return the rows of live files that are not *known*, and add those files to it.

        For who has read the rest: a table of many files takes long to read. Rows of files that
        were merged come once more. Raises TableDamagedError, and then none of them is known.
        """
        schema = arrow_schema(self.table)
        wanted = pa.schema([schema.field(name) for name in columns])
        try:
            live = set(self.delta.get_add_actions(flatten=True).column("path").to_pylist())
            files = [str(self.path / unquote(path)) for path in sorted(live - known)]
            rows = ds.dataset(files, schema=wanted).to_table() if files else wanted.empty_table()
        except (DeltaError, OSError, pa.ArrowException) as error:
            raise TableDamagedError(f"{self.path} cannot be read: {_line(error)}") from error
        known.clear()  # only now: a file that could not be read is still new
        known.update(live)
        return rows

    def merge(self) -> int:
        """Put one file in place of many small ones; rows and marks stay. Return how many it was.

        For tables of few rows that nobody reads in the order of files. Raises StalePlanError where
        another process does the same.
        """
        self.refresh()
        adds = self.delta.get_add_actions(flatten=True)
        sizes = zip(*(adds.column(n).to_pylist() for n in ("path", "size_bytes")), strict=True)
        small = {unquote(path): size for path, size in sizes if size < SMALL_BYTES}
        if len(small) < MANY:
            return 0
        try:
            rows = pa.concat_tables([pq.read_table(self.path / path) for path in sorted(small)])
        except (OSError, pa.ArrowException) as error:
            raise TableDamagedError(f"{self.path} cannot be read: {_line(error)}") from error
        now_ms = int(time.time() * 1000)
        removed = [
            RemoveAction(path, False, deletion_timestamp=now_ms, size=size)
            for path, size in small.items()
        ]
        merged = self._write(rows, data_change=False)
        # Delta itself would let two processes merge the same files: rows would be there twice.
        self.commit([merged, *removed], {MAINTAINED: (self.mark(MAINTAINED) or 0) + 1})
        return len(small)

    def tidy(self) -> int:
        """Delete files that no version needs any more, and the old log; return how many files.

        A file is deleted when it has been out of the table for the table's
        `delta.deletedFileRetentionDuration`, or was never in it and is as old: what a crash left.
        """
        self.refresh()
        try:
            doomed = set(self.delta.vacuum(full=True))
            if doomed:  # each turn is a commit of its own
                self.delta.vacuum(dry_run=False, full=True)
                self.refresh()
            self.delta.create_checkpoint()
            self.delta.cleanup_metadata()
        except (DeltaError, OSError) as error:
            raise LakeError(f"{self.path} cannot be tidied: {_line(error)}") from error
        return len(doomed)

    def version_at(self, at_ms: int) -> int:
        """Return the newest version committed at or before *at_ms*. Raises LakeError: none is."""
        for entry in self.delta.history():
            if entry["timestamp"] <= at_ms:
                return int(entry["version"])
        raise LakeError(f"{self.path} has no version from that time or before")

    def _open(self) -> DeltaTable:
        self._marks, self._marks_at = {}, -1  # another table may be there now
        try:
            return DeltaTable(str(self.path))
        except TableNotFoundError:
            return self._create()
        except (DeltaError, OSError) as error:
            raise TableDamagedError(f"{self.path} cannot be read: {_line(error)}") from error

    def _create(self) -> DeltaTable:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with _alone(self.path):
                if DeltaTable.is_deltatable(str(self.path)):  # another one was first
                    return DeltaTable(str(self.path))
                return DeltaTable.create(
                    str(self.path),
                    arrow_schema(self.table),
                    partition_by=list(self.table.partitioned_by) or None,
                    name=self.table.name,
                    description=f"One row is {self.table.row}.",
                    configuration=dict(self.table.properties),
                )
        except (DeltaError, OSError) as error:
            raise LakeError(f"{self.path} cannot be made: {_line(error)}") from error

    def _as_table(self, rows: pa.Table | Sequence[Mapping[str, Any]]) -> pa.Table:
        if isinstance(rows, pa.Table):
            return rows
        return pa.Table.from_pylist([dict(row) for row in rows], file_schema(self.table))

    def _write(self, rows: pa.Table, *, data_change: bool = True) -> AddAction:
        name = f"part-{uuid4().hex}.parquet"
        try:
            pq.write_table(rows.cast(file_schema(self.table)), self.path / name)
            size = (self.path / name).stat().st_size
        except OSError as error:
            raise LakeError(f"{self.path} cannot be written: {_line(error)}") from error
        stats = json.dumps({"numRecords": rows.num_rows})
        return AddAction(name, size, {}, int(time.time() * 1000), data_change, stats)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait until nobody else, thread or process, is in here with *folder*.

    deltalake commits a table that two make at once a second time, and refuses the first writer.
    """
    lock = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _line(error: BaseException) -> str:
    """Return an error's text in one line: its first one, and the causes that are listed below it.

    These libraries append whole reports; a cause begins with an arrow, in colours.
    """
    text = re.sub(r"\x1b\[\d*m", "", str(error)).strip()
    first, *more = text.splitlines() or [type(error).__name__]
    causes = [line.strip("↳ ") for line in more if line.lstrip().startswith("↳")]
    return ": ".join([first[:LONGEST], *causes])
