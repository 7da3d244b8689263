"""Write a flow's offset map, and know where the map of each target partition ends."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow.compute as pc

from resources.delta.records_table import RecordsTable
from resources.delta.table import CLOCK_APP_ID, LakeTable
from schemas.errors.lake import StalePlanError
from schemas.kafka.partition import SourcePartition, TopicPartition
from schemas.replay.slot_work import CommittedBatch, MapEnd, Progress

_TAKEOVER_APP_ID_PREFIXES = ("since/", "since-place/")
"""App id prefixes of the upstream and the downstream end of an import from MirrorMaker 2."""


END_PREFIX, UPSTREAM_END_PREFIX = "end:", "upstream-end:"  # no topic's name contains a colon
"""Prefixes of a target incarnation's app ids: their txn versions are the downstream and the
upstream offset after the last mapped record of a partition."""

ALL_ENDS_APP_ID = "all-ends"
"""App id of a txn version that is 1 if every partition with a run has those of the prefixes."""


class _End(NamedTuple):
    """The downstream and the upstream offset after the last mapped record."""

    downstream: int
    upstream: int


class LastRecord(NamedTuple):
    """The last mapped record of a partition, if one pair of incarnations is mapped."""

    incarnation: str
    target_topic_id: str
    upstream_start: int
    downstream_start: int


class _PendingBatch(NamedTuple):
    """A batch that is committed on the target, and when that was, in ms since 1970."""

    move: CommittedBatch
    at_ms: int


class OffsetMap:
    """Writer of one offset map.

    Each target partition has a txn version for each pair of source and target incarnations: the
    next upstream offset to map. It also covers offsets without a record, which are in no run.

    `add` only remembers batches, so that many of them become one commit and one file; `flush`
    appends them. Until then the map is behind the target's progress, and a process that ends
    without `flush` leaves it there: replay then pairs target and stage again.
    """

    def __init__(self, table: LakeTable, run_id: str) -> None:
        self._table, self._run_id = table, run_id
        self._ends: dict[TopicPartition, dict[str, _End]] = {}  # by topic id
        self._mapped: dict[TopicPartition, dict[tuple[str, str], int]] = {}
        self._pending: list[_PendingBatch] = []
        self._pending_versions: dict[str, int] = {}  # txn versions that `flush` will set
        self._has_all_ends = False
        self._flushed_at = time.monotonic()

    def load_ends(self) -> None:
        """Read where the map of every target partition ends. Raises TableDamagedError."""
        self._table.refresh()
        self.load_txn_versions()
        if not self._has_all_ends:
            self._load_ends_from_rows()

    def load_ends_if_exists(self) -> None:
        """Call `load_ends` unless the table is missing, which is not created."""
        if self._table.exists():
            self.load_ends()

    def load_txn_versions(self) -> bool:
        """Read what `mapped` and `last_record` return; False if the log does not show that.

        No row is read, so the ends may be unknown. The caller has refreshed the table.
        """
        found = self._table.txn_versions("")
        txn_versions = found or {}
        self._ends, self._mapped = {}, {}
        for app_id, version in txn_versions.items():
            parts = app_id.split("/")
            if len(parts) == _APP_ID_PARTS:
                topic, topic_id, partition, incarnation = parts
                target = TopicPartition(topic, int(partition))
                self._mapped.setdefault(target, {})[topic_id, incarnation] = version
        self._has_all_ends = ALL_ENDS_APP_ID in txn_versions
        for app_id, downstream in txn_versions.items():
            if self._has_all_ends and app_id.startswith(END_PREFIX):
                name = app_id.removeprefix(END_PREFIX)
                topic, topic_id, partition = name.split("/")
                end = _End(downstream, txn_versions[UPSTREAM_END_PREFIX + name])
                self._ends.setdefault(TopicPartition(topic, int(partition)), {})[topic_id] = end
        return found is not None

    def _load_ends_from_rows(self) -> None:
        keys = ["target_topic", "target_topic_id", "target_partition"]
        rows = self._table.rows([*keys, "downstream_start", "upstream_start", "length"])
        for side in ("downstream", "upstream"):
            rows = rows.append_column(side, pc.add(rows[f"{side}_start"], rows["length"]))
        ends = rows.group_by(keys).aggregate([("downstream", "max"), ("upstream", "max")])
        for row in ends.to_pylist():
            target = TopicPartition(row["target_topic"], row["target_partition"])
            end = _End(row["downstream_max"], row["upstream_max"])
            self._ends.setdefault(target, {})[row["target_topic_id"]] = end

    def end(
        self, target: TopicPartition, target_topic_id: str, incarnations: Sequence[str]
    ) -> MapEnd | None:
        """Return where the map of *target* ends in the newest mapped of *incarnations*, or None."""
        for incarnation in reversed(incarnations):
            app_id = _app_id(target, target_topic_id, incarnation)
            txn_version = self._pending_versions.get(app_id, self._table.txn_version(app_id))
            if txn_version is not None:
                end = self._ends.get(target, {}).get(target_topic_id)
                progress = Progress(txn_version, incarnation, target_topic_id)
                return MapEnd(progress, end.downstream if end else 0)
        return None

    def reached(self, target: TopicPartition, incarnation: str) -> int | None:
        """Return the next upstream offset to map in *incarnation*, or None if it is not mapped.

        If *target*'s topic was re-created, it is the smallest one of its incarnations.
        """
        mapped = self.mapped(target).items()
        return min((at for (_, each), at in mapped if each == incarnation), default=None)

    def mapped(self, target: TopicPartition) -> Mapping[tuple[str, str], int]:
        """Return the next upstream offset to map by target topic id and source incarnation."""
        return self._mapped.get(target, {})

    def last_record(self, target: TopicPartition) -> LastRecord | None:
        """Return the last mapped record of *target*; None if topics were re-created or without one.

        It has no offsets of an earlier incarnation that could be mistaken for those of the newest.
        """
        mapped, ends = self.mapped(target), self._ends.get(target, {})
        if len(mapped) != 1 or len(ends) != 1:
            return None
        ((topic_id, incarnation),) = mapped
        end = ends.get(topic_id)
        if end is None or min(end) < 1:
            return None
        return LastRecord(incarnation, topic_id, end.upstream - 1, end.downstream - 1)

    def newest_progress(
        self, target: TopicPartition, incarnations: Sequence[str]
    ) -> Progress | None:
        """Return the progress that the map of *target* reaches, never ahead of the committed."""
        found = (
            self.end(target, topic_id, incarnations) for topic_id in self._ends.get(target, ())
        )
        reached = [mapped.progress for mapped in found if mapped is not None]
        order = list(incarnations).index
        return max(reached, key=lambda at: (order(at.incarnation), at.next_offset), default=None)

    def newest_topic_id(self, target: TopicPartition) -> str | None:
        """Return the topic id of *target*'s topic that was mapped last, or None."""
        topic_ids = list(self._ends.get(target, ()))
        if len(topic_ids) < 2:
            return next(iter(topic_ids), None)
        is_target = (pc.field("target_topic") == target.topic) & (
            pc.field("target_partition") == target.partition
        )
        rows = self._table.rows(["target_topic_id", "committed_at"], where=is_target)
        newest = rows.sort_by([("committed_at", "descending")])
        return str(newest["target_topic_id"][0].as_py()) if len(newest) else None

    def former_topic_ids(self, target: TopicPartition, target_topic_id: str) -> set[str]:
        """Return the topic ids of the earlier incarnations of *target*'s topic that have a map."""
        return self._ends.get(target, {}).keys() - {target_topic_id}

    def restart_request(self, target_topic: str, target_topic_id: str) -> int | None:
        """Return the number of the request that restarted replay into this incarnation, or None."""
        return self._table.txn_version(f"restart/{target_topic}/{target_topic_id}")

    def record_restart(self, target_topic: str, target_topic_id: str, order: int) -> None:
        """Commit that request number *order* applies to this incarnation of *target_topic*."""
        app_id = f"restart/{target_topic}/{target_topic_id}"
        self._table.append([], txn_versions={app_id: order}, expected={app_id: None})

    def is_due(self, interval_s: float) -> bool:
        """Return whether batches are pending, and the last flush was *interval_s* ago."""
        return bool(self._pending) and time.monotonic() >= self._flushed_at + interval_s

    def add(self, moves: Sequence[CommittedBatch]) -> None:
        """Remember *moves* for the next `flush`."""
        for move in moves:
            self._pending.append(_PendingBatch(move, self._now_ms()))
            self._pending_versions[_app_id_after(move)] = move.after.next_offset
            if move.runs:
                ends, topic_id = self._ends.setdefault(move.target, {}), move.after.target_topic_id
                end = _End(move.runs[-1].downstream_end, move.runs[-1].upstream_end)
                ends[topic_id] = max(ends.get(topic_id, end), end)

    def flush(
        self, extra_txn_versions: Mapping[str, int] | None = None, *, is_in_order: bool = True
    ) -> None:
        """Append the runs of pending batches and set txn versions, in one commit.

        If a run is not after all others of its partition, *is_in_order* is False.

        Raises StalePlanError if another process has changed the map: then the pending batches are
        dropped, and `load_ends` has to be called. After LakeError they stay pending.
        """
        self._flushed_at = time.monotonic()
        if not self._pending:
            return
        rows: list[dict[str, Any]] = []
        expected: dict[str, int | None] = {}
        for move, at_ms in self._pending:
            former = move.before
            if former is not None and former.incarnation != move.after.incarnation:
                former = None  # this incarnation is new to the map
            expected.setdefault(_app_id_after(move), former.next_offset if former else None)
            rows += map_rows(move, self._run_id, at_ms)
        txn_versions = {
            **self._pending_versions,
            **self._changed_ends(),
            **(extra_txn_versions or {}),
            CLOCK_APP_ID: self._pending[-1].at_ms,
        }
        try:
            self._table.append(
                rows, txn_versions=txn_versions, expected=expected, is_in_order=is_in_order
            )
        except StalePlanError:
            self._forget_pending()
            raise
        self._has_all_ends = True
        self._forget_pending()

    def write(
        self,
        moves: Sequence[CommittedBatch],
        extra_txn_versions: Mapping[str, int] | None = None,
        *,
        is_in_order: bool = True,
    ) -> None:
        """Append the runs of *moves* at once. Raises errors as `flush` does."""
        self.add(moves)
        self.flush(extra_txn_versions, is_in_order=is_in_order)

    def _changed_ends(self) -> dict[str, int]:
        """Return the txn versions of the ends that pending batches have moved, or of all ends."""
        moved = {(move.target, move.after.target_topic_id) for move, _ in self._pending}
        ends: dict[str, int] = {}
        for target, by_id in self._ends.items():
            for topic_id, end in by_id.items():
                if not self._has_all_ends or (target, topic_id) in moved:
                    name = f"{target.topic}/{topic_id}/{target.partition}"
                    ends[END_PREFIX + name] = end.downstream
                    ends[UPSTREAM_END_PREFIX + name] = end.upstream
        return ends if self._has_all_ends else {**ends, ALL_ENDS_APP_ID: 1}

    def _now_ms(self) -> int:
        """Return the time in ms: later than each row in the table, not before pending ones."""
        last = self._pending[-1].at_ms if self._pending else 0
        return max(self._table.next_time_ms(), last)

    def _forget_pending(self) -> None:
        self._pending.clear()
        self._pending_versions.clear()

    def write_takeover(self, move: CommittedBatch, end: int) -> None:
        """Write *move*, an import from MirrorMaker 2, and keep its *end* for `takeover_start`."""
        app_id = _app_id_after(move)
        since = {
            _TAKEOVER_APP_ID_PREFIXES[0] + app_id: move.after.next_offset,
            _TAKEOVER_APP_ID_PREFIXES[1] + app_id: end,
        }
        self.write([move], extra_txn_versions=since)


def map_rows(move: CommittedBatch, run_id: str, at_ms: int) -> list[dict[str, Any]]:
    """Return the rows of the map for the runs of *move*, which was committed at *at_ms*."""
    return [
        {
            "topic": move.partition.topic,
            "incarnation": move.after.incarnation,
            "partition": move.partition.partition,
            "upstream_start": run.upstream_start,
            "target_topic": move.target.topic,
            "target_topic_id": move.after.target_topic_id,
            "target_partition": move.target.partition,
            "downstream_start": run.downstream_start,
            "length": run.length,
            "run_id": run_id,
            "committed_at": at_ms,
        }
        for run in move.runs
    ]


def complete_from(move: CommittedBatch, records: RecordsTable) -> int | None:
    """Return the upstream offset from which *move*, made by pairing, has all records.

    Records that are gone from the target or from *records* cannot be paired. None: none is gone.
    """
    source = SourcePartition(move.partition.topic, move.after.incarnation, move.partition.partition)
    retained_from = records.retained_from(source) if move.before is None else None
    return max((o for o in (move.complete_from, retained_from) if o is not None), default=None)


def takeover_start(
    table: LakeTable, target: TopicPartition, target_topic_id: str, incarnation: str
) -> tuple[int, int]:
    """Return the upstream and downstream end of an import from MirrorMaker 2; 0, 0 without one."""
    if not table.exists():
        return 0, 0
    app_id = _app_id(target, target_topic_id, incarnation)
    upstream, downstream = (
        table.txn_version(prefix + app_id) or 0 for prefix in _TAKEOVER_APP_ID_PREFIXES
    )
    return upstream, downstream


def _app_id_after(move: CommittedBatch) -> str:
    return _app_id(move.target, move.after.target_topic_id, move.after.incarnation)


def _app_id(target: TopicPartition, target_topic_id: str, incarnation: str) -> str:
    return f"{target.topic}/{target_topic_id}/{target.partition}/{incarnation}"


_APP_ID_PARTS = 4
