"""Snapshot both clusters and the lake before a comparison: offsets, progress, runs, segments.

The order matters while the flow is running. Progress is read first: records before it must be on
the target. Then the target's end is read, then progress again and the offset map: records before
these may be on the target. Segments are read last, so that all of these records are staged.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from deltamirror.context import MirrorContext
from deltamirror.replay.current_map import read_current_map
from deltamirror.replay.offset_map import takeover_start
from pipeline.arrays import group_rows
from pipeline.offset_map.runs import NO_RUNS, Runs, validate_runs
from pipeline.verification.stage_audit import Evidence
from pipeline.verification.target_audit import StagedIncarnation, TargetView, arrival_bounds
from resources.delta.table import LakeTable
from resources.kafka.cluster import KafkaCluster
from schemas.config.config import FlowConfig
from schemas.errors.base import DeltamirrorError
from schemas.errors.source import TopicMissingError
from schemas.errors.target import TargetChangedError, TargetHeldBackError
from schemas.kafka.partition import TopicPartition, Watermarks
from schemas.replay.slot_work import Progress
from schemas.staging.frontier import base_id
from schemas.staging.segment import ACCEPTED

TRANSACTION_WAIT_S = 10.0
"""How long, in s, to wait for open transactions on the target before they are an error."""

SEGMENT_COLUMNS = (
    "topic", "topic_id", "partition", "start", "end", "count", "size_bytes", "gap_cause",
    "digest", "version",
)  # fmt: skip
EVIDENCE_COLUMNS = ["start", "end", "count", "digest", "gap_cause"]
SEGMENTS_PER_BATCH = 4_096
RUN_COLUMNS = (
    "topic", "incarnation", "partition", "target_topic_id", "upstream_start", "downstream_start",
    "length",
)  # fmt: skip

Segments = Mapping[TopicPartition, pa.Table]
"""The segments of each partition, in the order of staging; columns are SEGMENT_COLUMNS."""


@dataclass
class SourceSnapshot:
    """State of the source: topic ids by topic, and watermarks or an error by partition."""

    topic_ids: dict[str, str] = field(default_factory=dict)
    watermarks: Mapping[TopicPartition, Watermarks | DeltamirrorError] = field(default_factory=dict)


@dataclass
class TargetSnapshot:
    """State of the target by source partition; *runs* are of the target's current incarnation.

    *held_back* has an error for each target partition with data above its last stable offset.
    *former_ids* are the target topic ids of earlier incarnations that have runs.
    """

    offset_map: LakeTable
    targets: dict[TopicPartition, TopicPartition]
    topic_ids: dict[str, str] = field(default_factory=dict)
    compacted: set[str] = field(default_factory=set)
    watermarks: dict[TopicPartition, Watermarks | DeltamirrorError] = field(default_factory=dict)
    before: dict[TopicPartition, Progress] = field(default_factory=dict)
    after: dict[TopicPartition, Progress] = field(default_factory=dict)
    held_back: dict[TopicPartition, TargetHeldBackError] = field(default_factory=dict)
    runs: dict[TopicPartition, dict[str, Runs]] = field(default_factory=dict)
    former_ids: dict[TopicPartition, set[str]] = field(default_factory=dict)

    def held_back_at(self, partition: TopicPartition) -> list[TargetHeldBackError]:
        """Return the error of *partition* if it has data above its last stable offset, or none."""
        held_back = self.held_back.get(self.targets[partition])
        return [] if held_back is None else [held_back]


def read_segments(
    context: MirrorContext, flow: FlowConfig, topics: Collection[str] | None
) -> Segments:
    """Return the segments of the topics that *flow* mirrors, by partition, in staging order.

    *topics* limits them to these topics.
    """
    where = ds.field("topic").isin(sorted(topics)) if topics else None
    rows = context.lake.segments(flow.flow.source).rows(SEGMENT_COLUMNS, where)
    order = [(name, "ascending") for name in ("topic", "partition", "version", "start")]
    return {
        TopicPartition(*key): group
        for key, group in group_rows(rows.sort_by(order), ("topic", "partition"))
        if flow.replicates(key[0])
    }


def incarnations_of(segments: pa.Table) -> list[str]:
    """Return the incarnations of a partition, in the order of staging."""
    return list(pc.unique(segments["topic_id"]).to_pylist())


def evidence_of(segments: pa.Table, incarnation: str, kept: int) -> Iterator[Evidence]:
    """Yield the evidence in the segments of *incarnation* from offset *kept* on.

    *kept* is the first offset that retention has left.
    """
    mine = segments.filter((pc.field("topic_id") == incarnation) & (pc.field("start") >= kept))
    for batch in mine.to_batches(max_chunksize=SEGMENTS_PER_BATCH):
        for row in batch.select(EVIDENCE_COLUMNS).to_pylist():
            is_accepted = row.pop("gap_cause").endswith(ACCEPTED)
            yield Evidence(**row, is_accepted=is_accepted)


def snapshot_source(
    context: MirrorContext, flow: FlowConfig, partitions: Collection[TopicPartition]
) -> SourceSnapshot:
    """Return the source's topic ids and watermarks.

    Raises UnreachableError, RequestRefusedError.
    """
    cluster = context.cluster(flow.flow.source)
    cluster.probe()
    topics = cluster.topics({each.topic for each in partitions})
    return SourceSnapshot(
        {name: topic.topic_id for name, topic in topics.items()}, cluster.watermarks(partitions)
    )


def snapshot_target(
    context: MirrorContext,
    flow: FlowConfig,
    partitions: Collection[TopicPartition],
    transaction_wait_s: float | None,
) -> TargetSnapshot:
    """Return the target's watermarks and progress, and the runs of the offset map.

    It waits at most *transaction_wait_s* seconds for open transactions to end; None: it does not
    wait. Raises UnreachableError, RequestRefusedError, LakeError.
    """
    cluster = context.cluster(flow.flow.target)
    cluster.probe()
    seen = TargetSnapshot(
        context.lake.offset_map(flow.flow),
        {p: TopicPartition(flow.remote_topic(p.topic), p.partition) for p in partitions},
    )
    names = {target.topic for target in seen.targets.values()}
    seen.topic_ids = {name: t.topic_id for name, t in cluster.topics(names).items()}
    seen.compacted = {
        name
        for name, configs in cluster.topic_configs(seen.topic_ids).items()
        if "compact" in (configs["cleanup.policy"].value or "")
    }
    seen.before = _progress(cluster, flow, seen.targets)
    seen.watermarks = dict(cluster.watermarks(list(seen.targets.values())))
    if transaction_wait_s is not None:
        _wait_for_transactions(cluster, seen, transaction_wait_s)
    seen.after = _progress(cluster, flow, seen.targets)
    _read_runs(read_current_map(context, flow, RUN_COLUMNS), seen)
    return seen


def source_watermarks(
    partition: TopicPartition, incarnation: str, seen: SourceSnapshot
) -> Watermarks | None:
    """Return the source's watermarks of *partition*; None if it is no longer that *incarnation*.

    Raises the error with which its watermarks could not be read.
    """
    if seen.topic_ids.get(partition.topic) != base_id(incarnation):
        return None
    marks = seen.watermarks[partition]
    if isinstance(marks, DeltamirrorError):
        raise marks
    return marks


def target_incarnations(
    partition: TopicPartition, order: Sequence[str], seen: TargetSnapshot
) -> tuple[list[StagedIncarnation], TargetView] | None:
    """Return the incarnations that should be on the target, and the target range to read.

    *order* are the partition's incarnations, oldest first. Return None if nothing was replayed.
    Raises TopicMissingError, TargetChangedError, or the error with which the target's watermarks
    could not be read.
    """
    target, runs = seen.targets[partition], seen.runs.get(partition, {})
    before, after = seen.before.get(partition), seen.after.get(partition)
    former = seen.former_ids.get(partition, set())
    if not runs and not former and after is None:
        return None
    topic_id = seen.topic_ids.get(target.topic)
    if topic_id is None:
        raise TopicMissingError(str(target), location="on the target")
    if after is not None and after.target_topic_id != topic_id:
        raise TargetChangedError(target, was=after.target_topic_id, now=topic_id)
    if after is None and not runs:
        raise TargetChangedError(target, was=min(former), now=topic_id)
    marks = seen.watermarks[target]
    if isinstance(marks, DeltamirrorError):
        raise marks
    share = arrival_bounds(order, _position(before, topic_id), _position(after, topic_id))
    since = {n: takeover_start(seen.offset_map, target, topic_id, n) for n in order}
    incarnations = [
        StagedIncarnation(n, runs.get(n, NO_RUNS), *share[n], since[n][0]) for n in order
    ]
    if target in seen.held_back:
        incarnations = [
            _limit_to_visible(incarnation, marks.stable) for incarnation in incarnations
        ]
    is_compacted, newest = target.topic in seen.compacted, max(at for _, at in since.values())
    return incarnations, TargetView(target, marks.low, marks.stable, is_compacted, topic_id, newest)


def _limit_to_visible(incarnation: StagedIncarnation, end: int) -> StagedIncarnation:
    """Return *incarnation* with *due* limited to records before downstream offset *end*."""
    runs, _ = validate_runs(incarnation.runs, 0)
    return replace(incarnation, due=min(incarnation.due, runs.upstream_end_below(end)))


def _position(progress: Progress | None, topic_id: str) -> tuple[str, int] | None:
    if progress is None or progress.target_topic_id != topic_id:
        return None
    return progress.incarnation, progress.next_offset


def _progress(
    cluster: KafkaCluster, flow: FlowConfig, targets: Mapping[TopicPartition, TopicPartition]
) -> dict[TopicPartition, Progress]:
    found = cluster.committed_offsets(flow.flow.progress_group, list(targets.values()))
    read = {p: Progress.read(*at) for p, t in targets.items() if (at := found[t]) is not None}
    return {p: progress for p, progress in read.items() if progress is not None}


def _wait_for_transactions(
    cluster: KafkaCluster, seen: TargetSnapshot, transaction_wait_s: float
) -> None:
    """Wait until each last stable offset reaches the first high watermark; update *seen*.

    Partitions that do not reach it within *transaction_wait_s* get an error in `held_back`.
    """
    found = seen.watermarks
    goals = {p: marks.high for p, marks in found.items() if isinstance(marks, Watermarks)}
    deadline = time.monotonic() + transaction_wait_s
    while True:
        held_back = {
            p: marks
            for p, marks in found.items()
            if isinstance(marks, Watermarks) and marks.stable < goals[p]
        }
        if not held_back or time.monotonic() > deadline:
            break
        time.sleep(0.05)  # Kafka has no event for the end of another producer's transaction
        found.update(cluster.watermarks(list(held_back)))
    seen.held_back = {
        p: TargetHeldBackError(p, at=marks.stable, end=goals[p]) for p, marks in held_back.items()
    }


def _read_runs(offset_map: pa.Table, seen: TargetSnapshot) -> None:
    where = pc.field("topic").isin(sorted({each.topic for each in seen.targets}))
    rows = offset_map.filter(where)
    key = ("topic", "partition", "target_topic_id", "incarnation")
    for (topic, number, target_incarnation, incarnation), group in group_rows(
        rows.sort_by([(name, "ascending") for name in key]), key
    ):
        partition = TopicPartition(topic, number)
        target = seen.targets.get(partition)
        if target is None:
            continue
        if target_incarnation != seen.topic_ids.get(target.topic):
            seen.former_ids.setdefault(partition, set()).add(target_incarnation)
            continue
        columns = (group[n].to_numpy() for n in ("upstream_start", "downstream_start", "length"))
        seen.runs.setdefault(partition, {})[incarnation] = Runs(*columns)
