"""Merge the small files of a table, and delete files and commits that no version needs."""

from __future__ import annotations

import time
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from resources.delta.table import UNORDERED, LakeTable, errors_as, file_order
from resources.delta.transaction_log import LiveFile, read_commits, removed_in_checkpoint
from schemas.errors.lake import LakeError, TableDamagedError

# Every rewrite of files increments this txn version, so one of two concurrent rewrites fails.
MAINTENANCE_APP_ID = "maintained"
SMALL_FILE_BYTES = 8 * 2**20
MIN_SMALL_FILES = 16  # `optimize` merges files below SMALL_FILE_BYTES if there are so many
KEPT_COMMITS = 1_000  # by a vacuum; opening a table lists every file of its log
ORPHAN_AGE_S = 86_400.0  # an older file that no commit of the log names was left by a crash
TOMBSTONE_AGE_S = 900.0  # `delta.deletedFileRetentionDuration` of the tables


def optimize(table: LakeTable) -> int:
    """Merge the small files into one; return how many it replaced. Rows and txn versions stay.

    For tables of few rows whose readers do not depend on the order of files. Raises StalePlanError
    if another process does the same.
    """
    table.refresh()
    files = sorted(table.live.values(), key=lambda file: (file_order(file.path), file.path))
    small = [file for file in files if _is_small(file) and file_order(file.path) == UNORDERED]
    if table.table.ordered_by and len(small) < MIN_SMALL_FILES:
        # Only the newest ones, so that each file stays after those of a lower order.
        ordered = [file for file in files if file_order(file.path) != UNORDERED]
        small = [*takewhile(_is_small, reversed(ordered))][::-1]
    if len(small) < MIN_SMALL_FILES:
        return 0
    with errors_as(TableDamagedError, f"{table.path} cannot be read"):
        paths = [table.path / file.path for file in small]
        rows = pa.concat_tables([pq.read_table(path) for path in paths])
    # Delta accepts two merges of the same files: rows would be in the table twice.
    turn = {MAINTENANCE_APP_ID: (table.txn_version(MAINTENANCE_APP_ID) or 0) + 1}
    order = file_order(small[-1].path) if table.table.ordered_by else None
    table.commit([table.write_file(rows, order)], small, txn_versions=turn, data_change=False)
    return len(small)


def _is_small(file: LiveFile) -> bool:
    return file.size_bytes < SMALL_FILE_BYTES


class Vacuum:
    """Delete the data files that *table* does not need any more, and old log entries.

    It follows the table's log to know when a file was replaced. So a vacuum that runs each minute
    reads only the commits since the last one, and no listing of Delta's own VACUUM is needed.
    """

    def __init__(self, table: LakeTable) -> None:
        self.table = table
        self._version = -1
        self._removed_ms: dict[str, int] = {}  # when each file was replaced
        self._unknown_since: dict[str, float] = {}  # files that the log does not name

    def run(self, retention_s: float, needed_after: int | None = None) -> int:
        """Delete files that were replaced *retention_s* ago; return the number of data files.

        Files that the log does not name are deleted after ORPHAN_AGE_S. A checkpoint names replaced
        files for TOMBSTONE_AGE_S only. So if *retention_s* is longer, such a file is also kept for
        *retention_s* after this object first saw it. Log entries after version *needed_after* are
        kept. Raises LakeError.
        """
        table = self.table
        table.refresh()
        with errors_as(LakeError, f"{table.path} cannot be vacuumed"):
            self._read_log()
            others = [
                file
                for file in table.path.iterdir()
                if not file.name.startswith(("_", ".")) and file.name not in table.live
            ]
            due = [f for f in others if self._is_due(f, retention_s) and f.is_file()]
            for file in due:
                file.unlink(missing_ok=True)
            left = {file.name for file in others} - {file.name for file in due}
            for known in (self._removed_ms, self._unknown_since):
                for name in known.keys() - left:
                    del known[name]
            table.log.delete_expired_logs(KEPT_COMMITS, needed_after)
        return len(due)

    def _is_due(self, file: Path, retention_s: float) -> bool:
        """Return whether *file*, which is not live, may be deleted."""
        removed_ms = self._removed_ms.get(file.name)
        if removed_ms is not None:
            return time.time() - removed_ms / 1000 >= retention_s
        since = self._unknown_since.setdefault(file.name, time.monotonic())
        is_old = time.time() - _modified_s(file) >= ORPHAN_AGE_S
        return is_old and (
            retention_s <= TOMBSTONE_AGE_S or time.monotonic() - since >= retention_s
        )

    def _read_log(self) -> None:
        """Read when files were replaced, from the commits after the last call."""
        for _ in range(2):
            if self._version < 0:
                self._version, self._removed_ms = removed_in_checkpoint(self.table.path)
            for version, actions in read_commits(self.table.path, self._version):
                self._version = version
                for action in actions:
                    if "remove" in action:
                        path = unquote(action["remove"]["path"])
                        self._removed_ms[path] = action["remove"].get("deletionTimestamp") or 0
                    elif "add" in action:
                        self._removed_ms.pop(unquote(action["add"]["path"]), None)
            if self._version >= self.table.version:
                return
            self._version = -1  # commits after the last call were deleted as expired


def _modified_s(file: Path) -> float:
    """Return when *file* was modified, in s since 1970; now if it is gone."""
    with suppress(FileNotFoundError):
        return file.stat().st_mtime
    return time.time()
