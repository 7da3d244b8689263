"""Read and write a Delta table's log commit by commit, without listing it.

deltalake lists the whole log and reads every live file's entry at each refresh and each commit, so
both take longer as the table grows. A process that follows the table knows the name of the next
commit file. To commit is to create that file, which fails if it exists (Delta's PROTOCOL.md, "Delta
Log Entries" and "Requirements for Writers"; deltalake does the same on a file system). deltalake
still does the rest: it opens the table from its checkpoint, and it answers rare requests.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from schemas.errors.lake import LakeError, StalePlanError, TableDamagedError

READER_VERSION, WRITER_VERSION = 1, 2
"""Protocol versions of the lake's tables. This module supports no other version."""

LOG_FOLDER = "_delta_log"

ABANDONED_AFTER_S = 86_400.0
"""Age after which a draft of a commit was left by a crash."""

_DIGITS = 20
_UNNAMED = "_commit_"

Action = dict[str, Any]
"""One line of a commit: the action's kind and its fields."""


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A live file of the table.

    *path* is relative and not URL-encoded. *records* is None if the log does not have the count.
    """

    path: str
    size_bytes: int
    records: int | None
    partition: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AddedFile:
    """A file that a commit adds, with its statistics. *data_change*: the table gets new rows."""

    file: LiveFile
    modified_ms: int
    stats_json: str
    data_change: bool = True


@dataclass(frozen=True, slots=True)
class RemovedFile:
    """A file that a commit removes. *data_change*: the table loses its rows."""

    file: LiveFile
    data_change: bool


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
            # deltalake reads the log for it. The log of an older version may be deleted already.
            self._txn_versions[app_id] = self.delta.transaction_version(app_id)
        return self._txn_versions.get(app_id)

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
        removed: Sequence[RemovedFile],
        txn_versions: Mapping[str, int],
        metadata: Mapping[str, str],
        partitioned_by: Sequence[str] = (),
    ) -> int:
        """Commit on the snapshot last read; return the new version.

        Raises StalePlanError if a concurrent commit set one of *txn_versions*, removed one of the
        files *removed*, or changed protocol or metadata. Other concurrent commits are accepted. In
        both cases they are applied to this snapshot. Raises OSError, and errors as `refresh` does.
        """
        lines = [_commit_info(metadata, partitioned_by, is_append=not removed)]
        lines += [{"txn": {"appId": name, "version": at}} for name, at in txn_versions.items()]
        lines += [_add_action(each) for each in added]
        lines += [_remove_action(each) for each in removed]
        gone = {each.file.path for each in removed}
        unnamed = self._path / LOG_FOLDER / f"{_UNNAMED}{uuid4()}.json.tmp"
        try:
            unnamed.write_bytes(b"".join(_json_line(each) for each in lines))
            while not _link(unnamed, _commit_path(self._path, self.version + 1)):
                self._apply_concurrent(txn_versions, gone)
        finally:
            with suppress(OSError):
                unnamed.unlink()
        self._apply(self.version + 1, lines)
        return self.version

    def commits_since(self, version: int) -> Iterator[tuple[int, Action]]:
        """Yield version and commitInfo of each commit after *version*, newest first.

        Stops at the first commit that the log does not have any more.
        """
        for number in range(self.version, version, -1):
            actions = self._read(number)
            if actions is None:
                return  # older commits are deleted first
            for action in actions:
                if "commitInfo" in action:
                    yield number, action["commitInfo"]

    def delete_expired_logs(self, keep: int) -> int:
        """Delete commits that a checkpoint covers, except the last *keep*; return how many.

        The limit is a count and not an age, because every reader lists the files of this folder.
        Drafts of commits that a crash left are deleted, too. Raises OSError.
        """
        names = sorted(file.name for file in (self._path / LOG_FOLDER).iterdir())
        versions = {name: int(name[:_DIGITS]) for name in names if name[:_DIGITS].isdigit()}
        checkpoints = [at for name, at in versions.items() if ".checkpoint." in name]
        first = max((at for at in checkpoints if at <= self.version - keep), default=0)
        # Oldest first: if this is interrupted, the remaining versions are consecutive.
        doomed = [name for name, at in versions.items() if at < first]
        doomed += [n for n in names if n.startswith(_UNNAMED) and self._is_abandoned(n)]
        for name in doomed:
            (self._path / LOG_FOLDER / name).unlink(missing_ok=True)
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
        if (
            protocol.min_reader_version > READER_VERSION
            or protocol.min_writer_version > WRITER_VERSION
        ):
            raise LakeError(
                f"another program raised {self._path} to reader version "
                f"{protocol.min_reader_version} and writer version {protocol.min_writer_version}; "
                f"deltamirror supports {READER_VERSION} and {WRITER_VERSION}. Move the table away, "
                "see docs/operations.md"
            )
        self.files.clear()
        for file in _live_files(delta):
            self.files[file.path] = file
        self._delta, self.version = delta, delta.version()
        found = self._read_txn_versions(self.version)
        self._txn_versions, self._has_all_txns = dict(found or {}), found is not None

    def _read_txn_versions(self, version: int) -> dict[str, int] | None:
        """Return all txn versions at *version*.

        Return None if they cannot be read from a single checkpoint file and the commits after it.
        deltalake returns only one app id's version per call, and reads all of them each time.
        """
        txn_versions: dict[str, int] = {}
        last = _last_checkpoint(self._path)
        if last is not None:
            if last > version:
                return None
            file = self._path / LOG_FOLDER / f"{last:0{_DIGITS}}.checkpoint.parquet"
            try:
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
        """Return the actions of the commit *version*, or None if it does not exist.

        A commit file that a machine crash left empty has no actions.
        """
        try:
            content = _commit_path(self._path, version).read_bytes()
        except FileNotFoundError:
            return None
        try:
            return [json.loads(line) for line in content.splitlines() if line]
        except ValueError as error:
            raise TableDamagedError(
                f"{self._path} cannot be read: version {version} is incomplete: {error}"
            ) from error

    def _apply(self, version: int, actions: Iterable[Action]) -> None:
        """Apply the *actions* of *version* to this snapshot."""
        for action in actions:
            if "add" in action:
                file = _live_file(action["add"])
                self.files[file.path] = file
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

    def _is_abandoned(self, name: str) -> bool:
        with suppress(FileNotFoundError):  # its writer has finished
            return (
                time.time() - (self._path / LOG_FOLDER / name).stat().st_mtime > ABANDONED_AFTER_S
            )
        return False


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


def _link(unnamed: Path, name: Path) -> bool:
    """Give the file *unnamed* its *name*; return False if that name exists. Raises OSError."""
    try:
        os.link(unnamed, name)
    except FileExistsError:
        return False
    return True


def _live_files(delta: DeltaTable) -> Iterator[LiveFile]:
    adds = delta.get_add_actions(flatten=False)
    columns = [adds.column(name).to_pylist() for name in ("path", "size_bytes", "num_records")]
    partitions: Iterable[Any] = repeat({})
    if "partition" in adds.schema.names:
        partitions = adds.column("partition").to_pylist()
    for path, size, records, partition in zip(*columns, partitions, strict=False):
        values = {name: str(value) for name, value in partition.items()}
        yield LiveFile(unquote(path), size, records, values)


def _live_file(add: Mapping[str, Any]) -> LiveFile:
    records = json.loads(add.get("stats") or "{}").get("numRecords")
    return LiveFile(unquote(add["path"]), add["size"], records, add["partitionValues"])


def _commit_info(
    metadata: Mapping[str, str], partitioned_by: Sequence[str], *, is_append: bool
) -> Action:
    return {
        "commitInfo": {
            "timestamp": int(time.time() * 1000),
            "operation": "WRITE",
            "operationParameters": {
                "mode": "Append",
                "partitionBy": json.dumps(list(partitioned_by)),
            },
            "isBlindAppend": is_append,
            "engineInfo": "deltamirror",
            **metadata,
        }
    }


def _add_action(added: AddedFile) -> Action:
    return {
        "add": {
            "path": quote(added.file.path, safe="/="),
            "partitionValues": added.file.partition,
            "size": added.file.size_bytes,
            "modificationTime": added.modified_ms,
            "dataChange": added.data_change,
            "stats": added.stats_json,
        }
    }


def _remove_action(removed: RemovedFile) -> Action:
    return {
        "remove": {
            "path": quote(removed.file.path, safe="/="),
            "deletionTimestamp": int(time.time() * 1000),
            "dataChange": removed.data_change,
            "extendedFileMetadata": True,
            "partitionValues": removed.file.partition,
            "size": removed.file.size_bytes,
        }
    }


def _json_line(action: Action) -> bytes:
    return json.dumps(action, separators=(",", ":")).encode() + b"\n"
