"""Read and write a Delta table's log commit by commit, without listing it.

deltalake's refreshes and commits take longer as the table grows (docs/decisions/0007). A process
that follows the table knows the name of the next commit file. To commit is to create that file,
which fails if it exists (Delta's PROTOCOL.md, "Delta Log Entries" and "Requirements for Writers").
deltalake still opens the table from its checkpoint, and answers rare requests.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from schemas.errors.lake import LakeError, StalePlanError, TableDamagedError

READER_VERSION, WRITER_VERSION = 1, 2  # this module supports no other protocol versions
LOG_FOLDER = "_delta_log"
ABANDONED_AFTER_S = 86_400.0  # an older draft of a commit was left by a crash
_DIGITS = 20
_UNNAMED = "_commit_"

Action = dict[str, Any]  # one line of a commit: the action's kind and its fields


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A live file of the table. *path* is relative and not URL-encoded."""

    path: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class AddedFile:
    """A file that a commit adds, with its statistics."""

    file: LiveFile
    modified_ms: int
    stats_json: str


class DeltaLog:
    """The log of the existing table in folder *path*, at the version last read.

    *files* is filled with the live files by path and updated with every version. Not thread-safe.
    Raises TableDamagedError and LakeError as `refresh` does, DeltaError.
    """

    def __init__(self, path: Path, files: MutableMapping[str, LiveFile]) -> None:
        self._path = path
        self.files = files
        self.version = -1
        self._delta: DeltaTable
        self._txn_versions: dict[str, int | None] = {}
        self._has_all_txns = False
        self._load()

    @property
    def delta(self) -> DeltaTable:
        """Return deltalake's table at the version last read."""
        if self._delta.version() < self.version:
            # Opened again: the commits between the two versions may be deleted already.
            self._delta = DeltaTable(str(self._path), version=self.version)
        return self._delta

    def txn_version(self, app_id: str) -> int | None:
        """Return the txn version of *app_id*, or None."""
        if app_id not in self._txn_versions and not self._has_all_txns:
            self._txn_versions[app_id] = self.delta.transaction_version(app_id)
        return self._txn_versions.get(app_id)

    def txn_versions(self, prefix: str) -> dict[str, int] | None:
        """Return the txn versions of the app ids after *prefix*; None: a checkpoint is damaged."""
        if not self._has_all_txns:
            return None
        known = self._txn_versions.items()
        return {n[len(prefix) :]: v for n, v in known if n.startswith(prefix) and v is not None}

    def refresh(self) -> int:
        """Read the commits of other writers; return the version.

        Raises TableDamagedError if a commit cannot be parsed or commits that were read before are
        gone, LakeError if another program raised the table's protocol versions.
        """
        while (actions := self._read(self.version + 1)) is not None:
            self._apply(self.version + 1, actions)
        if not _commit_path(self._path, self.version).exists():
            self._load()  # the commit was deleted as expired, or the table was re-created
        return self.version

    def commit(
        self,
        added: Sequence[AddedFile],
        removed: Sequence[LiveFile],
        txn_versions: Mapping[str, int],
        metadata: Mapping[str, str],
        data_change: bool = True,
    ) -> int:
        """Commit on the snapshot last read; return the new version.

        *data_change* is False if the rows stay the same. Raises StalePlanError if a concurrent
        commit set one of *txn_versions*, removed one of the files *removed*, or changed protocol or
        metadata. Other concurrent commits are accepted. In both cases they are applied to this
        snapshot. Raises OSError, and errors as `refresh` does.
        """
        lines = [{"commitInfo": _commit_info(metadata, not removed)}]
        lines += [{"txn": {"appId": name, "version": at}} for name, at in txn_versions.items()]
        lines += [{"add": _add_action(each, data_change)} for each in added]
        lines += [{"remove": _remove_action(file, data_change)} for file in removed]
        gone = {file.path for file in removed}
        content = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
        unnamed = self._path / LOG_FOLDER / f"{_UNNAMED}{uuid4()}.json.tmp"
        try:
            unnamed.write_bytes(content.encode())
            while not _link(unnamed, _commit_path(self._path, self.version + 1)):
                self._apply_concurrent(txn_versions, gone)
        finally:
            with suppress(OSError):
                unnamed.unlink()
        self._apply(self.version + 1, lines)
        return self.version

    def delete_expired_logs(self, keep: int, needed_after: int | None = None) -> int:
        """Delete commits that a checkpoint covers, except the last *keep*; return how many.

        The limit is a count and not an age, because every reader lists the files of this folder.
        Commits after version *needed_after* are not deleted. Drafts of commits that a crash left
        are deleted, too. Raises OSError.
        """
        last = self.version - keep
        if needed_after is not None:
            last = min(last, needed_after)
        folder = self._path / LOG_FOLDER
        names = sorted(file.name for file in folder.iterdir())
        versions = {name: int(name[:_DIGITS]) for name in names if name[:_DIGITS].isdigit()}
        checkpoints = [at for name, at in versions.items() if ".checkpoint." in name]
        first = max((at for at in checkpoints if at <= last), default=0)
        # Oldest first: if this is interrupted, the remaining versions are consecutive.
        doomed = [name for name, at in versions.items() if at < first]
        doomed += [n for n in names if n.startswith(_UNNAMED) and _is_abandoned(folder / n)]
        for name in doomed:
            (folder / name).unlink(missing_ok=True)
        return len(doomed)

    def _load(self) -> None:
        """Read the newest snapshot with deltalake. Raises as `refresh` does, DeltaError."""
        delta = DeltaTable(str(self._path))
        if delta.version() < self.version:
            raise TableDamagedError(
                f"{self._path} ends at version {delta.version()}, but version {self.version} was "
                "read before"
            )
        protocol = delta.protocol()
        reader, writer = protocol.min_reader_version, protocol.min_writer_version
        if reader > READER_VERSION or writer > WRITER_VERSION:
            raise LakeError(
                f"another program raised {self._path} to reader version {reader} and writer "
                f"version {writer}; deltamirror supports {READER_VERSION} and {WRITER_VERSION}. "
                "Move the table away, see docs/operations.md"
            )
        self.files.clear()
        self.files.update((file.path, file) for file in _live_files(delta))
        self._delta, self.version = delta, delta.version()
        found = self._read_txn_versions(self.version)
        self._txn_versions, self._has_all_txns = dict(found or {}), found is not None

    def _read_txn_versions(self, version: int) -> dict[str, int] | None:
        """Return all txn versions at *version*; None if a checkpoint or a commit cannot be read."""
        # deltalake returns only one app id's version per call, and reads all of them each time.
        txn_versions: dict[str, int] = {}
        last = _last_checkpoint(self._path)
        if last is not None:
            if last > version:
                return None
            try:
                file = _checkpoint_path(self._path, last)
                txns = pq.read_table(file, columns=["txn"]).column("txn").to_pylist()
            except (OSError, pa.ArrowException):
                return None
            txn_versions = {txn["appId"]: txn["version"] for txn in txns if txn is not None}
        for number in range(0 if last is None else last + 1, version + 1):
            actions = self._read(number)
            if actions is None:
                return None
            txns = [action["txn"] for action in actions if "txn" in action]
            txn_versions |= {txn["appId"]: txn["version"] for txn in txns}
        return txn_versions

    def _read(self, version: int) -> list[Action] | None:
        return _read_commit(self._path, version)

    def _apply(self, version: int, actions: Iterable[Action]) -> None:
        """Apply the *actions* of *version* to this snapshot."""
        for action in actions:
            if "add" in action:
                add = action["add"]
                path = unquote(add["path"])
                self.files[path] = LiveFile(path, add["size"])
            elif "remove" in action:
                self.files.pop(unquote(action["remove"]["path"]), None)
            elif "txn" in action:
                self._txn_versions[action["txn"]["appId"]] = action["txn"]["version"]
            elif "protocol" in action or "metaData" in action:
                self._load()
                return
        self.version = version

    def _apply_concurrent(self, txn_versions: Mapping[str, int], gone: set[str]) -> None:
        """Apply the concurrent commit that was first. Raises StalePlanError if it conflicts."""
        version = self.version + 1
        actions = self._read(version) or []
        self._apply(version, actions)
        for action in actions:
            name = action.get("txn", {}).get("appId")
            path = unquote(action.get("remove", {}).get("path", ""))
            if name in txn_versions or path in gone or "protocol" in action or "metaData" in action:
                changed = name or path or "the table's protocol or metadata"
                raise StalePlanError(f"{self._path}: version {version} has changed {changed}")


def _is_abandoned(draft: Path) -> bool:
    with suppress(FileNotFoundError):  # its writer has finished
        return time.time() - draft.stat().st_mtime > ABANDONED_AFTER_S
    return False


def read_commits(path: Path, after: int) -> Iterator[tuple[int, list[Action]]]:
    """Yield version and actions of each commit of the table in *path* after version *after*.

    It needs no snapshot, so it is cheap for a reader that follows a table. Ends at the first commit
    that does not exist. Raises TableDamagedError.
    """
    for version in count(after + 1):
        actions = _read_commit(path, version)
        if actions is None:
            return
        yield version, actions


def removed_in_checkpoint(path: Path) -> tuple[int, dict[str, int]]:
    """Return the version of the last checkpoint, and its removed files with the time in ms.

    -1 and no files if there is no checkpoint. Raises OSError, ArrowException.
    """
    last = _last_checkpoint(path)
    if last is None:
        return -1, {}
    removed = pq.read_table(_checkpoint_path(path, last), columns=["remove"]).column("remove")
    rows = [row for row in removed.to_pylist() if row is not None]
    return last, {unquote(row["path"]): row["deletionTimestamp"] or 0 for row in rows}


def is_commit_missing(path: Path, version: int) -> bool:
    """Return whether the table in *path* has later commits than *version*, but not that one.

    Lists the log, unless the commit before it is there: then none is missing.
    """
    if _commit_path(path, version - 1).exists():
        return False
    names = (file.name for file in (path / LOG_FOLDER).glob(f"{'[0-9]' * _DIGITS}.json"))
    later = {int(name[:_DIGITS]) for name in names if int(name[:_DIGITS]) >= version}
    return bool(later) and version not in later


def _read_commit(path: Path, version: int) -> list[Action] | None:
    """Return the actions of the commit *version*, or None if it does not exist.

    A commit file that a machine crash left empty has no actions.
    """
    try:
        content = _commit_path(path, version).read_bytes()
    except FileNotFoundError:
        return None
    try:
        return [json.loads(line) for line in content.splitlines() if line]
    except ValueError as error:
        raise TableDamagedError(
            f"{path} cannot be read: version {version} is incomplete: {error}"
        ) from error


def is_checkpoint_due(path: Path, commits: int) -> bool:
    """Return whether *commits* were made since the last checkpoint of the table in *path*."""
    return _commit_path(path, (_last_checkpoint(path) or 0) + commits).exists()


def _last_checkpoint(path: Path) -> int | None:
    """Return the version of the last checkpoint, or None if `_last_checkpoint` has none."""
    with suppress(OSError, ValueError, KeyError):
        return int(json.loads((path / LOG_FOLDER / "_last_checkpoint").read_bytes())["version"])
    return None


def _commit_path(path: Path, version: int) -> Path:
    return path / LOG_FOLDER / f"{version:0{_DIGITS}}.json"


def _checkpoint_path(path: Path, version: int) -> Path:
    return path / LOG_FOLDER / f"{version:0{_DIGITS}}.checkpoint.parquet"


def _link(unnamed: Path, name: Path) -> bool:
    """Give the file *unnamed* its *name*; return False if that name exists. Raises OSError."""
    try:
        os.link(unnamed, name)
    except FileExistsError:
        return False
    return True


def _live_files(delta: DeltaTable) -> Iterator[LiveFile]:
    adds = delta.get_add_actions(flatten=False)
    paths, sizes = (adds.column(name).to_pylist() for name in ("path", "size_bytes"))
    for path, size in zip(paths, sizes, strict=True):
        yield LiveFile(unquote(path), size)


def _commit_info(metadata: Mapping[str, str], is_append: bool) -> Action:
    return {
        "timestamp": int(time.time() * 1000),
        "operation": "WRITE",
        "operationParameters": {"mode": "Append", "partitionBy": "[]"},
        "isBlindAppend": is_append,
        "engineInfo": "deltamirror",
        **metadata,
    }


def _add_action(added: AddedFile, data_change: bool) -> Action:
    return {
        "path": quote(added.file.path, safe="/="),
        "partitionValues": {},
        "size": added.file.size_bytes,
        "modificationTime": added.modified_ms,
        "dataChange": data_change,
        "stats": added.stats_json,
    }


def _remove_action(file: LiveFile, data_change: bool) -> Action:
    return {
        "path": quote(file.path, safe="/="),
        "deletionTimestamp": int(time.time() * 1000),
        "dataChange": data_change,
        "extendedFileMetadata": True,
        "partitionValues": {},
        "size": file.size_bytes,
    }
