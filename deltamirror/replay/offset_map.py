"""Write a flow's offset map, and know where the map of each target partition ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow.compute as pc

from resources.delta.records_table import RecordsTable
from resources.delta.table import CLOCK_APP_ID, LakeTable
from schemas.kafka.partition import SourcePartition, TopicPartition
from schemas.replay.slot_work import CommittedBatch, MapEnd, Progress

_TAKEOVER_APP_ID_PREFIXES = ("since/", "since-place/")
"""App id prefixes of the upstream and the downstream end of an import from MirrorMaker 2."""


class OffsetMap:
    """Writer of one offset map.

    Each target partition has a txn version for each pair of source and target incarnations: the
    next upstream offset to map. It also covers offsets without a record, which are in no run.
    """

    def __init__(self, table: LakeTable, run_id: str) -> None:
        self._table, self._run_id = table, run_id
        self._ends: dict[TopicPartition, dict[str, int]] = {}  # by topic id

    def load_ends(self) -> None:
        """Read where the map of every target partition ends."""
        self._table.refresh()
        keys = ["target_topic", "target_topic_id", "target_partition"]
        rows = self._table.rows([*keys, "downstream_start", "length"])
        rows = rows.append_column("end", pc.add(rows["downstream_start"], rows["length"]))
        self._ends = {}
        for row in rows.group_by(keys).aggregate([("end", "max")]).to_pylist():
            target = TopicPartition(row["target_topic"], row["target_partition"])
            self._ends.setdefault(target, {})[row["target_topic_id"]] = row["end_max"]

    def end(
        self, target: TopicPartition, target_topic_id: str, incarnations: Sequence[str]
    ) -> MapEnd | None:
        """Return where the map of *target* ends in the newest mapped of *incarnations*, or None."""
        for incarnation in reversed(incarnations):
            txn_version = self._table.txn_version(_app_id(target, target_topic_id, incarnation))
            if txn_version is not None:
                end = self._ends.get(target, {}).get(target_topic_id, 0)
                return MapEnd(Progress(txn_version, incarnation, target_topic_id), end)
        return None

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

    def write(
        self, moves: Sequence[CommittedBatch], extra_txn_versions: Mapping[str, int] | None = None
    ) -> None:
        """Append the runs of *moves* and set txn versions in one commit. Raises StalePlanError."""
        rows: list[dict[str, Any]] = []
        txn_versions: dict[str, int] = {}
        expected: dict[str, int | None] = {}
        now_ms = self._table.next_time_ms()
        for move in moves:
            app_id = _app_id(move.target, move.after.target_topic_id, move.after.incarnation)
            former = move.before
            if former is not None and former.incarnation != move.after.incarnation:
                former = None  # this incarnation is new to the map
            expected.setdefault(app_id, former.next_offset if former else None)
            txn_versions[app_id] = move.after.next_offset
            rows += [
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
                    "run_id": self._run_id,
                    "committed_at": now_ms,
                }
                for run in move.runs
            ]
        if txn_versions:
            txn_versions |= {**(extra_txn_versions or {}), CLOCK_APP_ID: now_ms}
            self._table.append(rows, txn_versions=txn_versions, expected=expected)
        for move in moves:
            if move.runs:
                ends, topic_id = self._ends.setdefault(move.target, {}), move.after.target_topic_id
                ends[topic_id] = max(ends.get(topic_id, 0), move.runs[-1].downstream_end)

    def write_takeover(self, move: CommittedBatch, end: int) -> None:
        """Write *move*, an import from MirrorMaker 2, and keep its *end* for `takeover_start`."""
        app_id = _app_id(move.target, move.after.target_topic_id, move.after.incarnation)
        since = {
            _TAKEOVER_APP_ID_PREFIXES[0] + app_id: move.after.next_offset,
            _TAKEOVER_APP_ID_PREFIXES[1] + app_id: end,
        }
        self.write([move], extra_txn_versions=since)


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


def _app_id(target: TopicPartition, target_topic_id: str, incarnation: str) -> str:
    return f"{target.topic}/{target_topic_id}/{target.partition}/{incarnation}"
