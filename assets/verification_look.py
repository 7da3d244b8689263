"""What both clusters and the lake say before a comparison: ranges to read, places to expect.

The order of looking matters while a mirror runs. Progress is read first: what it covers must be on
the target. Then the target's end, then progress again and the map: what they cover may be. The
segments come last, so that the stage is never behind them.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow.dataset as ds

from assets.site import Site
from pipeline.verify_target import Life, TargetView, shares
from resources.cluster import KafkaCluster
from schemas.config import FlowConfig
from schemas.errors import (
    DeltamirrorError,
    RangeUnfinishedError,
    TargetChangedError,
    TopicMissingError,
)
from schemas.frontier import base_id
from schemas.offset_range import OffsetRange
from schemas.offset_run import OffsetRun
from schemas.progress import Progress
from schemas.topic_partition import SourcePartition, TopicPartition
from schemas.watermarks import Watermarks

SETTLE_S = 10.0
"""How long open transactions may hold back the target's end before that is an error."""

ACCEPTED = "accepted"
"""How the cause of a gap ends that an operator accepted: its offsets are not read again."""

SEGMENT_COLUMNS = (
    "topic", "topic_id", "partition", "start", "end", "count", "size_bytes", "gap_cause",
    "digest", "sequence", "version",
)  # fmt: skip
RUN_COLUMNS = (
    "topic", "incarnation", "partition", "target_topic_id", "upstream_start", "downstream_start",
    "length",
)  # fmt: skip

Segments = Mapping[TopicPartition, list[dict[str, Any]]]


@dataclass
class SourceSeen:
    """What the source holds: topic ids, watermarks."""

    topic_ids: dict[str, str] = field(default_factory=dict)
    watermarks: Mapping[TopicPartition, Watermarks | DeltamirrorError] = field(default_factory=dict)


@dataclass
class TargetSeen:
    """What the target holds, by source partition; *runs* by incarnation, of its present life."""

    targets: dict[TopicPartition, TopicPartition]
    topic_ids: dict[str, str] = field(default_factory=dict)
    compacted: set[str] = field(default_factory=set)
    watermarks: dict[TopicPartition, Watermarks | DeltamirrorError] = field(default_factory=dict)
    before: dict[TopicPartition, Progress] = field(default_factory=dict)
    after: dict[TopicPartition, Progress] = field(default_factory=dict)
    runs: dict[TopicPartition, dict[str, list[OffsetRun]]] = field(default_factory=dict)
    former_ids: dict[TopicPartition, set[str]] = field(default_factory=dict)


def read_segments(site: Site, flow: FlowConfig, topics: Collection[str] | None) -> Segments:
    """Return the segments of what *flow* mirrors, by partition, in the order of staging."""
    where = ds.field("topic").isin(sorted(topics)) if topics else None
    rows = site.lake.segments(flow.flow.source).rows(SEGMENT_COLUMNS, where)
    found: dict[TopicPartition, list[dict[str, Any]]] = {}
    for row in rows.sort_by([("version", "ascending"), ("start", "ascending")]).to_pylist():
        if flow.replicates(row["topic"]):
            found.setdefault(TopicPartition(row["topic"], row["partition"]), []).append(row)
    return found


def look_at_source(
    site: Site, flow: FlowConfig, partitions: Collection[TopicPartition]
) -> SourceSeen:
    """Return what the source holds. Raises UnreachableError, RequestRefusedError."""
    cluster = site.cluster(flow.flow.source)
    cluster.probe()
    topics = cluster.topics({each.topic for each in partitions})
    return SourceSeen(
        {name: topic.topic_id for name, topic in topics.items()}, cluster.watermarks(partitions)
    )


def look_at_target(
    site: Site, flow: FlowConfig, partitions: Collection[TopicPartition]
) -> TargetSeen:
    """Return what the target holds, and what the map says of it.

    Raises UnreachableError, RequestRefusedError, LakeError.
    """
    cluster = site.cluster(flow.flow.target)
    cluster.probe()
    seen = TargetSeen(
        {p: TopicPartition(flow.remote_topic(p.topic), p.partition) for p in partitions}
    )
    names = {target.topic for target in seen.targets.values()}
    seen.topic_ids = {name: t.topic_id for name, t in cluster.topics(names).items()}
    seen.compacted = {
        name
        for name, configs in cluster.topic_configs(seen.topic_ids).items()
        if "compact" in (configs["cleanup.policy"].value or "")
    }
    seen.before = _progress(cluster, flow, seen.targets)
    seen.watermarks = _settled(cluster, list(seen.targets.values()))
    seen.after = _progress(cluster, flow, seen.targets)
    _read_runs(site, flow, seen)
    return seen


def source_ranges(
    partition: TopicPartition, segments: Sequence[dict[str, Any]], seen: SourceSeen
) -> list[OffsetRange] | None:
    """Return what of the staged ranges the source still holds; None: it is another topic by now.

    Raises the error that stands in the way of *partition*.
    """
    life = segments[-1]["topic_id"]
    if seen.topic_ids.get(partition.topic) != base_id(life):
        return None
    marks = seen.watermarks[partition]
    if isinstance(marks, DeltamirrorError):
        raise marks
    source = SourcePartition(partition.topic, life, partition.partition)
    spans: list[list[int]] = []
    for row in segments:
        if row["topic_id"] != life or row["gap_cause"].endswith(ACCEPTED):
            continue
        if spans and spans[-1][1] == row["start"]:
            spans[-1][1] = row["end"]
        else:
            spans.append([row["start"], row["end"]])
    clipped = [(max(start, marks.low), min(end, marks.stable)) for start, end in spans]
    return [OffsetRange(source, a, b, None, None, marks) for a, b in clipped if a < b]


def target_lives(
    partition: TopicPartition, order: Sequence[str], seen: TargetSeen
) -> tuple[list[Life], TargetView] | None:
    """Return what should be on the target, and what is looked at; None: nothing was replayed.

    Raises TargetChangedError or the error that stands in the way of *partition*.
    """
    target, runs = seen.targets[partition], seen.runs.get(partition, {})
    before, after = seen.before.get(partition), seen.after.get(partition)
    former = seen.former_ids.get(partition, set())
    if not runs and not former and after is None:
        return None
    topic_id = seen.topic_ids.get(target.topic)
    if topic_id is None:
        raise TopicMissingError(str(target), "on the target")
    if after is not None and after.target_topic_id != topic_id:
        raise TargetChangedError(target, after.target_topic_id, topic_id)
    if after is None and not runs:
        raise TargetChangedError(target, min(former), topic_id)
    marks = seen.watermarks[target]
    if isinstance(marks, DeltamirrorError):
        raise marks
    share = shares(order, _place(before, topic_id), _place(after, topic_id))
    lives = [Life(name, runs.get(name, []), *share[name]) for name in order]
    view = TargetView(target, marks.low, marks.stable, target.topic in seen.compacted)
    return lives, view


def _place(progress: Progress | None, topic_id: str) -> tuple[str, int] | None:
    if progress is None or progress.target_topic_id != topic_id:
        return None
    return progress.incarnation, progress.next_offset


def _progress(
    cluster: KafkaCluster, flow: FlowConfig, targets: Mapping[TopicPartition, TopicPartition]
) -> dict[TopicPartition, Progress]:
    found = cluster.committed(flow.flow.progress_group, list(targets.values()))
    read = {p: Progress.read(*at) for p, t in targets.items() if (at := found[t]) is not None}
    return {p: progress for p, progress in read.items() if progress is not None}


def _settled(
    cluster: KafkaCluster, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, Watermarks | DeltamirrorError]:
    """Return watermarks whose stable end is past every record there was at the first look."""
    found = dict(cluster.watermarks(partitions))
    goals = {p: marks.high for p, marks in found.items() if isinstance(marks, Watermarks)}
    deadline = time.monotonic() + SETTLE_S
    while True:
        held_back = [
            p
            for p, marks in found.items()
            if isinstance(marks, Watermarks) and marks.stable < goals[p]
        ]
        if not held_back:
            return found
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)  # no event tells that somebody's transaction has ended
        found.update(cluster.watermarks(held_back))
    for p in held_back:
        why = "an open transaction holds the rest back"
        marks = found[p]
        at = marks.stable if isinstance(marks, Watermarks) else 0
        found[p] = RangeUnfinishedError(p, at=at, end=goals[p], why=why)
    return found


def _read_runs(site: Site, flow: FlowConfig, seen: TargetSeen) -> None:
    where = ds.field("topic").isin(sorted({each.topic for each in seen.targets}))
    for row in site.lake.offset_map(flow.flow).rows(RUN_COLUMNS, where).to_pylist():
        partition = TopicPartition(row["topic"], row["partition"])
        target = seen.targets.get(partition)
        if target is None:
            continue
        if row["target_topic_id"] != seen.topic_ids.get(target.topic):
            seen.former_ids.setdefault(partition, set()).add(row["target_topic_id"])
            continue
        run = OffsetRun(row["upstream_start"], row["downstream_start"], row["length"])
        lives = seen.runs.setdefault(partition, {})
        lives.setdefault(row["incarnation"], []).append(run)
