"""Read and append the segments of a source cluster: a table, and the commits of `records` after it.

    records    version 41 ... 44 ... 46 47      each commit's metadata has its segments
    segments   sealed up to 44                  45 to 47 are read from the commits

A commit of `records` has its segments in its metadata. To make few files, the table `segments` gets
them later, many commits at once: it is *sealed* up to a version of `records`. A reader sees the
table and the commits after that version, so it never misses a committed segment.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from resources.delta.arrow_schema import arrow_schema
from resources.delta.table import LakeTable
from resources.delta.transaction_log import is_commit_missing, read_commits
from schemas.errors.lake import TableDamagedError
from schemas.kafka.partition import SourcePartition
from schemas.tables import SEGMENTS

SEGMENTS_KEY = "deltamirror.segments"
"""Key in the metadata of a commit of `records`: its segments, as JSON."""

_SOURCE = ("topic", "topic_id", "partition")

_SUMMARY = ("end", "count", "stable", "epoch")
"""Prefixes, with a colon, of the app ids of a partition: its txn versions are a SealedPartition."""

_SUMMARY_COLUMNS = (*_SOURCE, "start", "end", "count", "stable", "leader_epoch", "version")

ALL_SEALED_APP_ID = "all-sealed"
"""App id of a txn version that is 1 if each partition in the table has those of _SUMMARY."""

SEALED_APP_ID = "records"
"""App id of the txn version of `segments`: the version of `records` up to which it is sealed."""


@dataclass(frozen=True, slots=True)
class SealedPartition:
    """A partition's *end*, stable offset and leader epoch in its last sealed segment.

    *count* is the number of records in all of its sealed segments.
    """

    source: SourcePartition
    end: int
    count: int
    stable: int
    leader_epoch: int | None


class SegmentsTable(LakeTable):
    """The segments at *path*, and those in the commits of the table `records` at *records_path*."""

    def __init__(self, path: Path, records_path: Path) -> None:
        super().__init__(path, SEGMENTS)
        self._records_path = records_path

    @property
    def sealed_version(self) -> int:
        """Return the version of `records` up to which the snapshot last read is sealed."""
        return self.txn_version(SEALED_APP_ID) or 0

    def rows(
        self, columns: Sequence[str] | None = None, where: pc.Expression | None = None
    ) -> pa.Table:
        """Return all segments: those in the table, and those of later commits of `records`.

        Raises TableDamagedError.
        """
        sealed = super().rows(columns, where)
        if not self.exists():
            return sealed
        unsealed = self.unsealed_rows()
        if where is not None:
            unsealed = unsealed.filter(where)
        return pa.concat_tables([sealed, unsealed.select(sealed.column_names)])

    def sealed_partitions(self) -> list[SealedPartition] | None:
        """Return every partition in the snapshot last read; None if they are not known."""
        found = [self.txn_versions(f"{name}:") for name in _SUMMARY]
        if None in found or self.txn_version(ALL_SEALED_APP_ID) is None:
            return None
        ends, counts, stables, epochs = (each or {} for each in found)
        return [
            SealedPartition(
                SourcePartition.from_app_id(app_id),
                end,
                counts[app_id],
                stables[app_id],
                epoch if (epoch := epochs[app_id]) >= 0 else None,
            )
            for app_id, end in ends.items()
        ]

    def unsealed_rows(self) -> pa.Table:
        """Return the segments of the commits of `records` after the sealed version."""
        rows = [row for _, rows in self.commits_after(self.sealed_version) for row in rows]
        return pa.Table.from_pylist(rows, arrow_schema(SEGMENTS))

    def commits_after(self, version: int) -> list[tuple[int, list[dict[str, Any]]]]:
        """Return the commits of `records` after *version*: version and rows, oldest first.

        Raises TableDamagedError if the log of `records` has lost commits after *version*: they are
        missing, or a crash of the machine left one empty before a complete one. An empty commit at
        the end is no loss: its records are staged again.
        """
        found, empty = [], None
        for number, actions in read_commits(self._records_path, version):
            if not actions:
                empty = number
            elif empty is not None:
                raise TableDamagedError(
                    f"{self._records_path}: version {empty} is empty, and its segments are in no "
                    "table"
                )
            infos = [action["commitInfo"] for action in actions if "commitInfo" in action]
            rows = [row for info in infos for row in json.loads(info.get(SEGMENTS_KEY, "[]"))]
            found.append((number, [{**row, "version": number} for row in rows]))
        if not found and is_commit_missing(self._records_path, version + 1):
            raise TableDamagedError(
                f"{self._records_path}: the commit after version {version} is missing, and its "
                "segments are in no table"
            )
        return found

    def seal(self) -> None:
        """Append the segments of the commits of `records` that are not sealed yet.

        Call it only while the staging lease is held. Raises StalePlanError, with nothing written,
        if another process sealed meanwhile; LakeError.
        """
        self.refresh()
        before = self.txn_version(SEALED_APP_ID)
        commits = self.commits_after(self.sealed_version)
        if not commits:
            return
        rows = [row for _, rows in commits for row in rows]
        txn_versions = {SEALED_APP_ID: commits[-1][0]}
        summarised = rows
        if self.txn_version(ALL_SEALED_APP_ID) is None:
            txn_versions[ALL_SEALED_APP_ID] = 1
            order = [("version", "ascending"), ("start", "ascending")]
            summarised = [*super().rows(_SUMMARY_COLUMNS).sort_by(order).to_pylist(), *rows]
        for row in summarised:
            app_id = SourcePartition(*(row[name] for name in _SOURCE)).app_id
            count = txn_versions.get(f"count:{app_id}", self.txn_version(f"count:{app_id}"))
            epoch = row["leader_epoch"]
            values = row["end"], (count or 0) + row["count"], row["stable"], epoch
            for name, value in zip(_SUMMARY, values, strict=True):
                txn_versions[f"{name}:{app_id}"] = -1 if value is None else value
        self.append(rows, txn_versions=txn_versions, expected={SEALED_APP_ID: before})
