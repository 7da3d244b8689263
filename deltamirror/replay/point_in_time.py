"""Replay a selection of a topic's staged records to a new topic (point-in-time replay)."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pyarrow as pa

from deltamirror.context import MirrorContext
from deltamirror.replay.offset_map import OffsetMap
from deltamirror.replay.work_planner import slot_work
from deltamirror.staging.segment_index import staged_segments
from deltamirror.worker_tasks import ReplayJob, ReplayWorker, assign_slots
from pipeline.replay.point_in_time import clip_links, select_ranges
from pipeline.replay.slot_replay import extend_map
from pipeline.topics.configs import UNCHANGED_TIMESTAMPS
from resources.delta.stage_reader import StageReader
from resources.spark.session import SparkWorkers
from schemas.config.config import FlowConfig
from schemas.errors.base import DeltamirrorError
from schemas.errors.environment import UnreachableError
from schemas.errors.lake import LakeError, NothingToReplayError
from schemas.errors.source import TopicMissingError
from schemas.errors.target import CommitUnknownError, ReplayTargetError
from schemas.kafka.partition import SourcePartition, TopicPartition, Watermarks
from schemas.replay.point_in_time import ReplayFlow, ReplayRange, Selection
from schemas.replay.slot_work import (
    ChainLink,
    CommittedBatch,
    MissingProgressPolicy,
    PartitionWork,
)
from schemas.staging.segment import RecordsFile, Segment

log = logging.getLogger(__name__)

TARGET_TIMEOUT_S = 30.0
"""How long, in s, the target may not respond before the replay fails."""

# No retention by time or size: replayed records are old, and would expire at once.
TOPIC_CONFIGS = {
    **UNCHANGED_TIMESTAMPS,
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "cleanup.policy": "delete",
    "max.message.bytes": str(100 * 2**20),
}


@dataclass(frozen=True)
class ReplayPlan:
    """The *ranges* of *topic*, in *version* of `records`, that a replay sends to *target_topic*.

    *links* are the staged ranges of each partition, clipped to *ranges*.
    """

    replay_id: str
    flow: FlowConfig
    topic: str
    target_topic: str
    version: int
    ranges: tuple[ReplayRange, ...]
    segments: tuple[Segment, ...]
    files: tuple[RecordsFile, ...]
    links: Mapping[int, tuple[ChainLink, ...]]

    @property
    def partitions(self) -> int:
        """Return the number of partitions that the target topic needs."""
        return max(self.links) + 1

    @property
    def records(self) -> int:
        """Return the number of records in the ranges."""
        return sum(link.count for links in self.links.values() for link in links)

    def to_json(self) -> dict[str, Any]:
        """Return the plan as the command prints it, as JSON values."""
        return {
            "replay_id": self.replay_id,
            "flow": self.flow.flow.name,
            "topic": self.topic,
            "target_topic": self.target_topic,
            "version": self.version,
            "ranges": [asdict(each) for each in self.ranges],
        }


def replay_point_in_time(
    context: MirrorContext,
    flow_name: str,
    topic: str,
    selection: Selection,
    target_topic: str | None = None,
    *,
    dry_run: bool = False,
    workers: SparkWorkers | None = None,
) -> tuple[ReplayPlan, int]:
    """Replay the *selection* of *topic*; return the plan and the number of records written.

    With *dry_run* nothing is written, neither to the target nor to the lake. Raises
    UnknownFlowError, TopicMissingError, NothingToReplayError, ReplayTargetError, and errors of
    the replay itself. After these its state is `failed`, and the records already written stay.
    """
    plan = plan_replay(context, context.config.flow(flow_name), topic, selection, target_topic)
    if dry_run:
        return plan, 0
    _save_state(context, plan, "planned", 0)
    replayer = _PointInTimeReplayer(
        context, plan, workers or SparkWorkers(context.config.tasks_max)
    )
    try:
        replayer.run()
    except DeltamirrorError:
        _save_state(context, plan, "failed", replayer.records)
        raise
    _save_state(context, plan, "done", replayer.records)
    return plan, replayer.records


def plan_replay(
    context: MirrorContext,
    flow: FlowConfig,
    topic: str,
    selection: Selection,
    target_topic: str | None = None,
) -> ReplayPlan:
    """Return what would be sent, after checking the target topic. Changes nothing."""
    source = flow.flow.source
    segments = staged_segments(context.lake.segments(source), topic)
    if not segments:
        raise TopicMissingError(topic, location=f"staged of cluster {source}")
    records = context.lake.records(source)
    records.refresh()  # after the segments were read, so that their files are in this version
    files = records.files()
    staged = StageReader(records.path)

    def read(segment: Segment) -> Iterator[pa.RecordBatch]:
        paths = _file_paths(files, segment.source.slot, segment.sequence)
        return (rows for _, rows in staged.rows(paths, {segment.source: segment.start}))

    def count(source: SourcePartition, edges: Sequence[int], total: int) -> list[int]:
        sequence = next(s.sequence for s in segments if s.source == source and s.start == edges[0])
        return staged.count(_file_paths(files, source.slot, sequence), source, edges, total)

    ranges = select_ranges(segments, selection, records.retained_from, read)
    if not ranges:
        raise NothingToReplayError(f"nothing is staged of {topic} in that range")
    now = datetime.now(UTC)
    replay_id = f"{now:%Y%m%dT%H%M%S}-{uuid4().hex[:4]}"
    name = target_topic or f"replay.{replay_id}.{topic}"
    links = {
        number: clip_links(
            (s for s in segments if s.partition == number),
            [each for each in ranges if each.partition == number],
            count,
        )
        for number in sorted({each.partition for each in ranges})
    }
    found = tuple(ranges), tuple(segments), tuple(files), links
    plan = ReplayPlan(replay_id, flow, topic, name, records.version, *found)
    _check_target(context, plan)
    return plan


def _check_target(context: MirrorContext, plan: ReplayPlan) -> None:
    """Raise ReplayTargetError if the target topic is the flow's, not empty, or too small."""
    flow, name = plan.flow, plan.target_topic
    target = context.cluster(flow.flow.target)
    staged = context.lake.segments(flow.flow.source).rows(["topic"]).column("topic").unique()
    if name in map(flow.remote_topic, staged.to_pylist()):
        raise ReplayTargetError(f"topic {name} on {target.alias} is a remote topic of {flow.flow}")
    target.probe()
    existing = target.topics([name]).get(name)
    if existing is None:
        return
    if existing.partitions < plan.partitions:
        raise ReplayTargetError(
            f"topic {name} on {target.alias} has {existing.partitions} partitions, but the replay "
            f"needs {plan.partitions}"
        )
    watermarks = target.watermarks([TopicPartition(name, i) for i in range(existing.partitions)])
    for partition, seen in sorted(watermarks.items()):
        if not isinstance(seen, Watermarks):
            raise seen
        if seen.high > seen.low:
            raise ReplayTargetError(
                f"topic {name} on {target.alias} is not empty: {partition} holds records "
                f"[{seen.low}, {seen.high})"
            )


def _file_paths(files: Sequence[RecordsFile], slot: int, sequence: int) -> tuple[str, ...]:
    return tuple(f.path for f in files if f.has_slot(slot) and f.sequence >= sequence)


def _save_state(context: MirrorContext, plan: ReplayPlan, state: str, records: int) -> None:
    """Append the state of the replay to the table `replays`."""
    row = plan.to_json()
    row["plan"] = json.dumps({name: row.pop(name) for name in ("version", "ranges")})
    at_ms = int(time.time() * 1000)
    context.lake.replays.append([{**row, "state": state, "records": records, "at_ms": at_ms}])


class _PointInTimeReplayer:
    """Send one replay tick by tick, and write its offset map."""

    def __init__(self, context: MirrorContext, plan: ReplayPlan, workers: SparkWorkers) -> None:
        self._context, self._plan = context, plan
        self._worker_pool = workers.worker_pool(ReplayWorker)
        self._flow = ReplayFlow(plan.flow.flow, plan.replay_id)
        table = context.lake.offset_map(plan.flow.flow, plan.replay_id)
        self._map = OffsetMap(table, plan.replay_id)
        self._records_path = context.lake.records(plan.flow.flow.source).path
        self._pending: dict[TopicPartition, PartitionWork] = {}
        self._last_answer_at = time.monotonic()
        self.records = 0

    def run(self) -> None:
        """Create the target topic and send until all ranges are committed."""
        plan = self._plan
        topic_id = self._context.cluster(plan.flow.flow.target).create_topic(
            plan.target_topic, plan.partitions, plan.flow.replication_factor, TOPIC_CONFIGS
        )
        for number, links in plan.links.items():
            partition = TopicPartition(plan.topic, number)
            target = TopicPartition(plan.target_topic, number)
            self._pending[partition] = PartitionWork(
                partition, target, topic_id, links, None, MissingProgressPolicy.BEGIN
            )
        self._map.load_ends()
        try:
            while self._pending:
                self._tick()
        finally:
            self._worker_pool.close()
        if self.records != plan.records:
            raise LakeError(
                f"{self._flow.name}: {self.records} of {plan.records} records were written"
            )

    def _tick(self) -> None:
        """Send a few transactions of each slot. Raises errors that a retry cannot resolve."""
        answers = self._worker_pool.run(self._jobs())
        batches = [move for answer in answers for move in answer.batches]
        self._map.write(batches)
        for move in batches:
            self._record_move(move)
        for answer in answers:
            for _, error in answer.errors:
                raise error
        failures = [answer.failure for answer in answers if answer.failure]
        self._handle_failures(failures, bool(batches))

    def _record_move(self, move: CommittedBatch) -> None:
        self.records += move.records
        work = self._pending[move.partition] = extend_map(self._pending[move.partition], move)
        last = work.links[-1]
        if (move.after.incarnation, move.after.next_offset) == (last.incarnation, last.end):
            del self._pending[move.partition]

    def _handle_failures(self, failures: Sequence[DeltamirrorError], has_progressed: bool) -> None:
        """Wait 1 s after a transient failure; raise others, and all after TARGET_TIMEOUT_S."""
        now = time.monotonic()
        if has_progressed:
            self._last_answer_at = now
        for failure in failures:
            is_transient = isinstance(failure, (UnreachableError, CommitUnknownError))
            if not is_transient or now - self._last_answer_at > TARGET_TIMEOUT_S:
                raise failure
        if failures:
            log.warning("%s: %s", self._flow.name, failures[0])
            time.sleep(1.0)
        elif not has_progressed and self._pending:
            raise LakeError(f"{self._flow.name}: {min(self._pending)} makes no progress")

    def _jobs(self) -> dict[int, ReplayJob]:
        """Return the pending work as one job for each worker, by the worker's number."""
        config = self._context.config
        slots: dict[int, list[PartitionWork]] = {}
        for work in self._pending.values():
            slots.setdefault(work.partition.slot, []).append(work)
        works = []
        for slot, members in sorted(slots.items()):
            paths = _file_paths(self._plan.files, slot, self._first_sequence(members))
            works.append(slot_work(self._flow, slot, members, paths, config))
        return assign_slots(works, self._plan.flow, config, self._records_path)

    def _first_sequence(self, works: Sequence[PartitionWork]) -> int:
        """Return the lowest sequence of the files that *works* read."""
        starts = {(w.partition.partition, w.links[0].incarnation): w.links[0] for w in works}
        return min(
            s.sequence
            for s in self._plan.segments
            if (link := starts.get((s.partition, s.topic_id))) and s.start <= link.start < s.end
        )
