"""A Delta table's log: read on from commit to commit, and written to, without listing it.

A library that knows nothing beforehand lists the whole log and goes through every live file at each
look and each commit, which takes the longer the more there is of both. Who follows a table knows
what the next commit is called; and making that file, which fails where it is there, is what a
commit is (Delta's PROTOCOL.md, "Delta Log Entries" and "Requirements for Writers"; as deltalake
does on a file system). What a checkpoint says, and everything that is asked seldom, is deltalake's.
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

from schemas.errors import LakeError, StalePlanError, TableDamagedError

READER_VERSION, WRITER_VERSION = 1, 2
"""The versions of the protocol that our tables have; what these mean is all that is known here."""

LOG_FOLDER = "_delta_log"

ABANDONED_AFTER_S = 86_400.0
"""The age at which a file that never became a commit is what a crash left."""

_DIGITS = 20
_UNNAMED = "_commit_"

Action = dict[str, Any]
"""One line of a commit: what it is, and its fields."""


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A file of the table: *path* in its folder, not encoded; *records* is None: not told."""

    path: str
    size_bytes: int
    records: int | None
    partition: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AddedFile:
    """A file that a commit adds, with its statistics; *data_change*: its rows are new."""

    file: LiveFile
    modified_ms: int
    stats_json: str
    data_change: bool = True


@dataclass(frozen=True, slots=True)
class RemovedFile:
    """A file that a commit takes out; *data_change*: its rows go with it."""

    file: LiveFile
    data_change: bool


class DeltaLog:
    """The log of the table in folder *path*, at the version last seen; the table has to exist.

    *files* gets the live files by path, and is kept up to date. Not thread-safe. Raises
    TableDamagedError, LakeError as `refresh` does, DeltaError.
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
        """Return the table as deltalake has it, at the version last seen."""
        if self._delta.version() < self.version:
            # Opened anew: what lies between the two versions may have been cleaned up since.
            self._delta = DeltaTable(str(self._path), version=self.version)
        return self._delta

    def txn_version(self, app_id: str) -> int | None:
        """Return the version of the `txn` mark *app_id*, or None."""
        if app_id not in self._txn_versions and not self._has_all_txns:
            # deltalake reads the log for it: of an old version it may have been cleaned up since.
            self._txn_versions[app_id] = self.delta.transaction_version(app_id)
        return self._txn_versions.get(app_id)

    def refresh(self) -> int:
        """See what others committed since; return the version.

        Raises TableDamagedError: a commit cannot be understood, or some that were seen are gone;
        LakeError: another program has raised the table's protocol.
        """
        while (actions := self._read(self.version + 1)) is not None:
            self._apply(self.version + 1, actions)
        if not _commit_path(self._path, self.version).exists():
            self._load()  # it was cleaned up since, or the table is another one
        return self.version

    def commit(
        self,
        added: Sequence[AddedFile],
        removed: Sequence[RemovedFile],
        txn_versions: Mapping[str, int],
        metadata: Mapping[str, str],
        partitioned_by: Sequence[str] = (),
    ) -> int:
        """Commit on the snapshot last seen; return the new version.

        A commit that came between is passed where it touches neither the *txn_versions* nor the
        files *removed*. Raises StalePlanError where it does, having seen it; OSError; as `refresh`.
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
        """Give each commit after *version* that the log still has, newest first, and its info."""
        for number in range(self.version, version, -1):
            actions = self._read(number)
            if actions is None:
                return  # older ones were cleaned up before it
            for action in actions:
                if "commitInfo" in action:
                    yield number, action["commitInfo"]

    def delete_expired_logs(self, keep: int) -> int:
        """Delete commits of which a checkpoint tells, but for the last *keep*; return how many.

        By count and not by age: what lies in the folder is what everybody lists. What a crash left
        half-made goes, too. Raises OSError.
        """
        names = sorted(file.name for file in (self._path / LOG_FOLDER).iterdir())
        versions = {name: int(name[:_DIGITS]) for name in names if name[:_DIGITS].isdigit()}
        checkpoints = [at for name, at in versions.items() if ".checkpoint." in name]
        first = max((at for at in checkpoints if at <= self.version - keep), default=0)
        # Oldest first: wherever this ends, what is left has no hole.
        doomed = [name for name, at in versions.items() if at < first]
        doomed += [n for n in names if n.startswith(_UNNAMED) and self._is_abandoned(n)]
        for name in doomed:
            (self._path / LOG_FOLDER / name).unlink(missing_ok=True)
        return len(doomed)

    def _load(self) -> None:
        """Learn the newest snapshot from deltalake. Raises as `refresh` does, DeltaError."""
        delta = DeltaTable(str(self._path))
        if delta.version() < self.version:
            raise TableDamagedError(
                f"{self._path} ends at version {delta.version()}, but version {self.version} was "
                "seen in it"
            )
        protocol = delta.protocol()
        if (
            protocol.min_reader_version > READER_VERSION
            or protocol.min_writer_version > WRITER_VERSION
        ):
            raise LakeError(
                f"{self._path} was raised to reader version {protocol.min_reader_version} and "
                f"writer version {protocol.min_writer_version} by another program; deltamirror "
                f"works with {READER_VERSION} and {WRITER_VERSION}: move it away, see "
                "docs/operations.md"
            )
        self.files.clear()
        for file in _live_files(delta):
            self.files[file.path] = file
        self._delta, self.version = delta, delta.version()
        told = self._read_txn_versions(self.version)
        self._txn_versions, self._has_all_txns = dict(told or {}), told is not None

    def _read_txn_versions(self, version: int) -> dict[str, int] | None:
        """Return all marks of *version*; None: the log does not say so in one of the usual ways.

        deltalake can be asked for one at a time, and goes through all of them each time.
        """
        txn_versions: dict[str, int] = {}
        last = _last_checkpoint(self._path)
        if last is not None:
            if last > version:
                return None
            file = self._path / LOG_FOLDER / f"{last:0{_DIGITS}}.checkpoint.parquet"
            try:
                told = pq.read_table(file, columns=["txn"]).column("txn").to_pylist()
            except (OSError, pa.ArrowException):
                return None
            txn_versions = {txn["appId"]: txn["version"] for txn in told if txn is not None}
        for number in range(0 if last is None else last + 1, version + 1):
            actions = self._read(number)
            if actions is None:
                return None
            told = [action["txn"] for action in actions if "txn" in action]
            txn_versions |= {txn["appId"]: txn["version"] for txn in told}
        return txn_versions

    def _read(self, version: int) -> list[Action] | None:
        """Return the actions of a commit, None: there is none of that version.

        A file that a crash of the machine left empty is a commit of nothing.
        """
        try:
            content = _commit_path(self._path, version).read_bytes()
        except FileNotFoundError:
            return None
        try:
            return [json.loads(line) for line in content.splitlines() if line]
        except ValueError as error:
            raise TableDamagedError(
                f"{self._path} cannot be read: version {version} is torn: {error}"
            ) from error

    def _apply(self, version: int, actions: Iterable[Action]) -> None:
        """Make *version*, whose *actions* these are, the version last seen."""
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
        """Take in the commit that came first. Raises StalePlanError: it touches the same."""
        version = self.version + 1
        actions = self._read(version) or []
        self._apply(version, actions)
        for action in actions:
            name = action.get("txn", {}).get("appId")
            path = unquote(action.get("remove", {}).get("path", ""))
            if name in txn_versions or path in gone or "protocol" in action or "metaData" in action:
                what = name or path or "what the table is"
                raise StalePlanError(f"{self._path}: version {version} has changed {what}")

    def _is_abandoned(self, name: str) -> bool:
        with suppress(FileNotFoundError):  # it has become a commit
            return (
                time.time() - (self._path / LOG_FOLDER / name).stat().st_mtime > ABANDONED_AFTER_S
            )
        return False


def is_checkpoint_due(path: Path, commits: int) -> bool:
    """Return whether there were *commits* since the last checkpoint of the table in *path*."""
    return _commit_path(path, (_last_checkpoint(path) or 0) + commits).exists()


def _last_checkpoint(path: Path) -> int | None:
    """Return the version of the last checkpoint; None: there is none, or it is not told."""
    with suppress(OSError, ValueError, KeyError):
        return int(json.loads((path / LOG_FOLDER / "_last_checkpoint").read_bytes())["version"])
    return None


def _commit_path(path: Path, version: int) -> Path:
    return path / LOG_FOLDER / f"{version:0{_DIGITS}}.json"


def _link(unnamed: Path, name: Path) -> bool:
    """Give a file its *name*; return False where another has it. Raises OSError."""
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
