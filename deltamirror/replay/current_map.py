"""Read a flow's offset map together with the records that it does not have yet.

Replay appends to the map every two seconds (`Timings.map_interval_s`), so in another process the
map may be behind the target's committed progress. A reader then waits for the next append. If none
comes, because the process that replays was killed, the reader pairs the staged records with the
target's log, as the next replay will do. It writes nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from deltamirror.context import MirrorContext
from deltamirror.replay.offset_map import OffsetMap, map_rows
from deltamirror.replay.work_planner import link_index
from deltamirror.staging.segment_index import SegmentIndex
from pipeline.arrays import group_rows
from pipeline.replay.recovery import recover
from resources.delta.arrow_schema import arrow_schema
from resources.delta.stage_reader import StageReader
from resources.delta.table import UNORDERED, LakeTable
from resources.kafka.target_log import TargetLog
from schemas.config.config import FlowConfig
from schemas.errors.base import DeltamirrorError, PartitionError
from schemas.errors.lake import LakeError
from schemas.kafka.partition import TopicPartition
from schemas.replay.slot_work import PartitionWork, Progress
from schemas.staging.frontier import base_id

log = logging.getLogger(__name__)

APPEND_TIMEOUT_S = 5.0
"""How long a reader waits, in s, for the process that replays to append to the map."""

POLL_INTERVAL_S = 0.1

MAX_PAIRED_RECORDS = 1_000_000
"""Records of a partition that a reader pairs at most; `maintain --rebuild-map` pairs any number."""


Commits = Mapping[TopicPartition, Mapping[str, int]]
"""Committed offsets by source partition and topic id."""


def read_current_map(
    context: MirrorContext,
    config: FlowConfig,
    columns: Sequence[str],
    commits: Commits | None = None,
) -> pa.Table:
    """Return the rows of the offset map, with every record committed before the call.

    With *commits*, only the rows that translate these and higher offsets: see `rows_for`.
    If the target does not respond, only the rows of the table are returned. If records cannot be
    paired, a warning is logged, and they are missing. Raises LakeError.
    """
    table = context.lake.offset_map(config.flow)
    behind = _wait_until_mapped(context, config, table, _read_progress(context, config))
    paired: list[dict[str, Any]] = []
    try:
        if behind:
            paired = list(_pair(context, config, behind, table))
    except DeltamirrorError as error:
        log.warning("%s: the offset map is read as it is in the lake: %s", config.flow, error)
    # Of the snapshot after whose end records were paired: a newer one may have them, too.
    rows = table.rows(columns) if commits is None else rows_for(table, config, columns, commits)
    return pa.concat_tables([rows, pa.Table.from_pylist(paired, rows.schema)])


_ROW_COLUMNS = (
    "topic", "partition", "incarnation", "target_topic_id", "upstream_start", "committed_at",
)  # fmt: skip


def rows_for(
    table: LakeTable, config: FlowConfig, columns: Sequence[str], commits: Commits
) -> pa.Table:
    """Return the rows of the map in *table* that translate *commits* and higher offsets.

    If all commits of a partition are after its last record, they get a run with that record alone.
    For the others files are read from the newest one on, until each commit has a run that begins at
    or before it. So neither time nor memory depends on how long the mirror has existed, but on how
    far the groups are behind. The caller has refreshed *table*. Raises TableDamagedError.
    """
    columns = list(dict.fromkeys((*columns, *_ROW_COLUMNS)))
    if not table.exists():
        return table.rows(columns)
    schema = arrow_schema(table.table)
    offset_map = OffsetMap(table, "")
    if not offset_map.load_txn_versions():
        return table.rows(columns)
    left: dict[TopicPartition, dict[str, int]] = {}
    ends: list[dict[str, Any]] = []
    for partition, by_id in commits.items():
        target = TopicPartition(config.remote_topic(partition.topic), partition.partition)
        ids = {base_id(incarnation) for _, incarnation in offset_map.mapped(target)}
        of_map = {topic_id: at for topic_id, at in by_id.items() if topic_id in ids}
        last = offset_map.last_record(target)
        if last is not None and all(at > last.upstream_start for at in of_map.values()):
            ends.append(
                {
                    "topic": partition.topic, "partition": partition.partition,
                    "incarnation": last.incarnation, "upstream_start": last.upstream_start,
                    "target_topic": target.topic, "target_topic_id": last.target_topic_id,
                    "target_partition": target.partition,
                    "downstream_start": last.downstream_start, "length": 1, "committed_at": 0,
                }
            )  # fmt: skip
        elif of_map:
            left[partition] = of_map
    found = [pa.Table.from_pylist(ends, schema).select(columns)]
    target_ids: dict[TopicPartition, set[str]] = {p: set() for p in left}
    seen_in_order: set[TopicPartition] = set()
    for order, rows in table.newest_first(columns) if left else ():
        by_partition = rows.sort_by([("topic", "ascending"), ("partition", "ascending")])
        for key, members in group_rows(by_partition, ("topic", "partition")):
            partition = TopicPartition(*key)
            if partition not in left:
                continue
            found.append(members)
            target_ids_here = target_ids[partition]
            if order == UNORDERED:
                target_ids_here.update(members["target_topic_id"].to_pylist())
                continue
            if partition not in seen_in_order:
                seen_in_order.add(partition)
                newest = pc.field("committed_at") == pc.max(members["committed_at"])
                target_ids_here.update(members.filter(newest)["target_topic_id"].to_pylist())
            if len(target_ids_here) == 1:
                _drop_translated(left[partition], members, *target_ids_here)
        left = {p: by_id for p, by_id in left.items() if by_id}
        if not left:
            break
    return pa.concat_tables(found)


def _drop_translated(left: dict[str, int], rows: pa.Table, target_topic_id: str) -> None:
    """Drop from *left* the commits that *rows* and newer ones of *target_topic_id* translate."""
    rows = rows.filter(pc.field("target_topic_id") == target_topic_id)
    incarnations = pc.unique(rows["incarnation"]).to_pylist()
    for topic_id, committed in list(left.items()):
        own = [i for i in incarnations if base_id(i) == topic_id]
        is_before = pc.field("incarnation").isin(own) & (pc.field("upstream_start") <= committed)
        if own and rows.filter(is_before).num_rows:
            del left[topic_id]


def _read_progress(context: MirrorContext, config: FlowConfig) -> dict[TopicPartition, Progress]:
    """Return the progress of each target partition; none if the target does not respond."""
    cluster = context.cluster(config.flow.target)
    try:
        cluster.probe()
        commits = cluster.group_commits(config.flow.progress_group)
    except DeltamirrorError as error:
        log.warning("%s: the map is read as it is in the lake: %s", config.flow, error)
        return {}
    found = {target: Progress.read(*commit) for target, commit in commits.items()}
    return {target: at for target, at in found.items() if at is not None}


def _wait_until_mapped(
    context: MirrorContext,
    config: FlowConfig,
    table: LakeTable,
    progress: Mapping[TopicPartition, Progress],
) -> dict[TopicPartition, Progress]:
    """Wait until the map has reached *progress*; return the progress that it does not reach."""
    offset_map, has_records = OffsetMap(table, ""), _HasRecords(context, config)
    give_up_at = time.monotonic() + APPEND_TIMEOUT_S
    behind = dict(progress)
    while True:
        if table.exists():
            table.refresh()
            behind = {t: p for t, p in behind.items() if not _is_mapped(offset_map, t, p)}
        behind = {t: p for t, p in behind.items() if has_records(t, p)}
        if not behind or time.monotonic() > give_up_at:
            return behind
        time.sleep(POLL_INTERVAL_S)


def _is_mapped(offset_map: OffsetMap, target: TopicPartition, progress: Progress) -> bool:
    end = offset_map.end(target, progress.target_topic_id, [progress.incarnation])
    return end is not None and end.progress.next_offset >= progress.next_offset


class _HasRecords:
    """Return whether a record is staged before a progress. If none is, no map needs to have it."""

    def __init__(self, context: MirrorContext, config: FlowConfig) -> None:
        self._context, self._config = context, config
        self._firsts: dict[tuple[TopicPartition, str], int] | None = None

    def __call__(self, target: TopicPartition, progress: Progress) -> bool:
        if self._firsts is None:
            self._firsts = self._read()
        first = self._firsts.get((target, progress.incarnation))
        return first is not None and first < progress.next_offset

    def _read(self) -> dict[tuple[TopicPartition, str], int]:
        """Return the first staged offset of each target partition and source incarnation."""
        keys = ["topic", "partition", "topic_id"]
        rows = self._context.lake.segments(self._config.flow.source).rows([*keys, "first"])
        firsts = rows.group_by(keys).aggregate([("first", "min")]).to_pylist()
        remote = self._config.remote_topic
        return {
            (TopicPartition(remote(row["topic"]), row["partition"]), row["topic_id"]): first
            for row in firsts
            if (first := row["first_min"]) is not None
        }


def _pair(
    context: MirrorContext,
    config: FlowConfig,
    behind: Mapping[TopicPartition, Progress],
    table: LakeTable,
) -> Iterator[dict[str, Any]]:
    """Yield the rows that the map lacks, found by pairing up to the progress *behind*."""
    source, alias = config.flow.source, config.flow.target
    records = context.lake.records(source)
    index, offset_map = SegmentIndex(context.lake.segments(source)), OffsetMap(table, "")
    index.refresh()
    records.refresh()
    if table.exists():
        offset_map.load_ends()
    target_log = TargetLog(alias, context.config.clusters[alias].consumer)
    ends, staged = target_log.end_offsets(list(behind)), StageReader(records.path)
    now_ms = int(time.time() * 1000)
    for partition in index.partitions():
        target = TopicPartition(config.remote_topic(partition.topic), partition.partition)
        if (at := behind.get(target)) is None:
            continue
        try:
            mapped = None
            if table.exists():
                incarnations = index.incarnations(partition)
                mapped = offset_map.end(target, at.target_topic_id, incarnations)
            held = index.retained_links(partition, records)
            held = held[link_index(held, mapped.progress) if mapped else 0 :]
            if not held:
                raise LakeError(f"{target}: retention removed the staged records")
            if sum(each.link.count for each in held) > MAX_PAIRED_RECORDS:
                raise LakeError(f"{target}: too many records are not in the map")
            end = ends[target]
            if isinstance(end, PartitionError):
                raise end
            links = tuple(each.link for each in held)
            work = PartitionWork(partition, target, at.target_topic_id, links, mapped)
            sequence = index.first_sequence(partition, held[0].link)
            files = records.paths_from({partition.slot: sequence})[partition.slot]
            found = recover(work, files, at, end, staged, target_log)
        except DeltamirrorError as error:
            log.warning("%s: the offset map is read as it is in the lake: %s", config.flow, error)
            continue
        for move in found.repairs:
            yield from map_rows(move, "", now_ms)
