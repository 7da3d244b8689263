"""Join the small files of a table, and delete files and commits that no version needs."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.exceptions import DeltaError

from resources.delta.table import LakeTable, first_line
from resources.delta.transaction_log import RemovedFile
from schemas.errors import LakeError, TableDamagedError

MAINTENANCE_APP_ID = "maintained"
"""The mark that whoever rewrites a table's files moves: of two at a time, one is refused."""

SMALL_FILE_BYTES = 8 * 2**20
MIN_SMALL_FILES = 16
"""`optimize` joins files below SMALL_FILE_BYTES once there are MANY of them."""

KEPT_COMMITS = 10_000
"""Commits that `vacuum` leaves in the log. Opening a table lists every file of its log."""


def optimize(table: LakeTable) -> int:
    """Put one file in place of many small ones; rows and marks stay. Return how many it was.

    For tables of few rows that nobody reads in the order of files. Raises StalePlanError if
    another process does the same.
    """
    table.refresh()
    small = [file for file in table.live.values() if file.size_bytes < SMALL_FILE_BYTES]
    if len(small) < MIN_SMALL_FILES:
        return 0
    try:
        paths = sorted(table.path / file.path for file in small)
        rows = pa.concat_tables([pq.read_table(path) for path in paths])
    except (OSError, pa.ArrowException) as error:
        raise TableDamagedError(f"{table.path} cannot be read: {first_line(error)}") from error
    merged = table.write_file(rows, data_change=False)
    removed = [RemovedFile(file, data_change=False) for file in small]
    # Delta itself would let two processes merge the same files: rows would be there twice.
    table.commit(
        [merged],
        removed,
        txn_versions={MAINTENANCE_APP_ID: (table.txn_version(MAINTENANCE_APP_ID) or 0) + 1},
    )
    return len(small)


def vacuum(table: LakeTable) -> int:
    """Delete files that no version needs any more, and the old log; return how many files.

    A file is deleted when it has been out of the table for the table's
    `delta.deletedFileRetentionDuration`, or was never in it and is as old: what a crash left.
    Raises LakeError.
    """
    table.refresh()
    try:
        doomed = set(table.delta.vacuum(full=True))
        if doomed:  # each turn is a commit of its own
            table.delta.vacuum(dry_run=False, full=True)
            table.refresh()
        table.checkpoint(1)
        table.log.delete_expired_logs(KEPT_COMMITS)
    except (DeltaError, OSError) as error:
        raise LakeError(f"{table.path} cannot be vacuumed: {first_line(error)}") from error
    return len(doomed)
