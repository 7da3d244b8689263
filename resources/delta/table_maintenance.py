"""Merge the small files of a table, and delete files and commits that no version needs."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from resources.delta.table import LakeTable, errors_as
from schemas.errors.lake import LakeError, TableDamagedError

# Every rewrite of files increments this txn version, so one of two concurrent rewrites fails.
MAINTENANCE_APP_ID = "maintained"
SMALL_FILE_BYTES = 8 * 2**20
MIN_SMALL_FILES = 16  # `optimize` merges files below SMALL_FILE_BYTES if there are so many
KEPT_COMMITS = 10_000  # by `vacuum`; opening a table lists every file of its log


def optimize(table: LakeTable) -> int:
    """Merge the small files into one; return how many it replaced. Rows and txn versions stay.

    For tables of few rows whose readers do not depend on the order of files. Raises StalePlanError
    if another process does the same.
    """
    table.refresh()
    small = [file for file in table.live.values() if file.size_bytes < SMALL_FILE_BYTES]
    if len(small) < MIN_SMALL_FILES:
        return 0
    with errors_as(TableDamagedError, f"{table.path} cannot be read"):
        paths = sorted(table.path / file.path for file in small)
        rows = pa.concat_tables([pq.read_table(path) for path in paths])
    # Delta accepts two merges of the same files: rows would be in the table twice.
    turn = {MAINTENANCE_APP_ID: (table.txn_version(MAINTENANCE_APP_ID) or 0) + 1}
    table.commit([table.write_file(rows)], small, txn_versions=turn, data_change=False)
    return len(small)


def vacuum(table: LakeTable, needed_after: int | None = None) -> int:
    """Delete unreferenced data files and old log entries; return the number of data files.

    A file is deleted if it was removed from the table longer ago than the table's
    `delta.deletedFileRetentionDuration`, or if it was never added and is older than that (left by
    a crash). Log entries after version *needed_after* are kept. Raises LakeError.
    """
    table.refresh()
    with errors_as(LakeError, f"{table.path} cannot be vacuumed"):
        doomed = set(table.delta.vacuum(full=True))
        if doomed:  # every vacuum writes a commit
            table.delta.vacuum(dry_run=False, full=True)
            table.refresh()
        table.checkpoint(1)
        table.log.delete_expired_logs(KEPT_COMMITS, needed_after)
    return len(doomed)
