"""A point-in-time replay: what was staged, written once more to a topic of its own (DESIGN 2.2)."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from typing import Any
from uuid import uuid4

import pyarrow as pa

from deltamirror.context import Site
from deltamirror.replay.offset_map import OffsetMap
from deltamirror.staging.segment_index import staged_segments
from deltamirror.worker_tasks import Replayer, ReplayJob, deal
from pipeline.replay.point_in_time import cut, select
from pipeline.topics.configs import TIMESTAMPS_AS_THEY_ARE
from resources.delta.records_table import RecordsFile
from resources.delta.stage_reader import StagedLog
from resources.spark.session import Workers
from schemas.config.config import FlowConfig
from schemas.errors import (
    CommitUnknownError,
    DeltamirrorError,
    LakeError,
    NothingToReplayError,
    ReplayTargetError,
    TopicMissingError,
    UnreachableError,
)
from schemas.kafka.partition import TopicPartition, Watermarks
from schemas.replay.point_in_time import ReplayFlow, ReplayRange, Selection
from schemas.replay.slot_work import Mapped, Move, PartitionWork, SlotWork, Unknown
from schemas.staging.segment import Segment

log = logging.getLogger(__name__)

TICK_CHUNKS = 8
"""Chunks that a slot sends before it reports back, so that the map is written in time."""

GIVE_UP_S = 30.0
"""How long the target may not answer before the replay fails."""

# For ever and everything: what is replayed is old by nature, and an audit wants all of it.
TOPIC_CONFIGS = {
    **TIMESTAMPS_AS_THEY_ARE,
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "cleanup.policy": "delete",
    "max.message.bytes": str(100 * 2**20),
}


@dataclass(frozen=True)
class ReplayPlan:
    """What a replay sends: *ranges* of *topic* as it is in *version* of `records`, to where."""

    replay_id: str
    flow: FlowConfig
    topic: str
    target_topic: str
    version: int
    ranges: tuple[ReplayRange, ...]
    segments: tuple[Segment, ...]
    files: tuple[RecordsFile, ...]

    @property
    def partitions(self) -> int:
        """Return how many partitions the target topic needs."""
        return max(each.partition for each in self.ranges) + 1

    def to_json(self) -> dict[str, Any]:
        """Return the plan as it is shown and kept."""
        return {
            "replay_id": self.replay_id,
            "flow": self.flow.flow.name,
            "topic": self.topic,
            "target_topic": self.target_topic,
            "version": self.version,
            "ranges": [asdict(each) for each in self.ranges],
        }


def replay_topic(
    site: Site,
    flow_name: str,
    topic: str,
    wanted: Selection,
    target_topic: str | None = None,
    *,
    dry_run: bool = False,
    workers: Workers | None = None,
) -> tuple[ReplayPlan, int]:
    """Replay what *wanted* means of *topic* once more; return the plan and the records written.

    With *dry_run* nothing is written, neither to the target nor to the lake. Raises
    UnknownFlowError, TopicMissingError, NothingToReplayError, ReplayTargetError, and what stops
    the replay itself: it is kept as failed then, and what was written stays.
    """
    plan = plan_replay(site, site.config.flow(flow_name), topic, wanted, target_topic)
    if dry_run:
        return plan, 0
    _keep(site, plan, "planned", 0)
    replaying = _Replaying(site, plan, workers or Workers(site.config.tasks_max))
    try:
        replaying.run()
    except DeltamirrorError:
        _keep(site, plan, "failed", replaying.records)
        raise
    _keep(site, plan, "done", replaying.records)
    return plan, replaying.records


def plan_replay(
    site: Site, flow: FlowConfig, topic: str, wanted: Selection, target_topic: str | None = None
) -> ReplayPlan:
    """Return what would be sent, and that the target topic is free for it. Changes nothing."""
    source = flow.flow.source
    segments = staged_segments(site.lake.segments(source), topic)
    if not segments:
        raise TopicMissingError(topic, f"staged of cluster {source}")
    records = site.lake.records(source)
    records.refresh()  # after the segments: so their files are there
    files = records.files()
    staged = StagedLog(records.path)

    def read(segment: Segment) -> Iterator[pa.RecordBatch]:
        paths = _files(files, segment.source.slot, segment.sequence)
        return (rows for _, rows in staged.rows(paths, {segment.source: segment.start}))

    ranges = select(segments, wanted, records.kept_from, read)
    if not ranges:
        raise NothingToReplayError(f"nothing is staged of {topic} in that range")
    now = datetime.now(timezone.utc)
    replay_id = f"{now:%Y%m%dT%H%M%S}-{uuid4().hex[:4]}"
    plan = ReplayPlan(
        replay_id,
        flow,
        topic,
        target_topic or f"replay.{replay_id}.{topic}",
        records.version,
        tuple(ranges),
        tuple(segments),
        tuple(files),
    )
    _check_target(site, plan)
    return plan


def _check_target(site: Site, plan: ReplayPlan) -> None:
    """Raise ReplayTargetError where the target topic holds records or is a mirror's."""
    flow, name = plan.flow, plan.target_topic
    target = site.cluster(flow.flow.target)
    staged = site.lake.segments(flow.flow.source).rows(["topic"]).column("topic").unique()
    if name in map(flow.remote_topic, staged.to_pylist()):
        raise ReplayTargetError(f"topic {name} on {target.alias} is where {flow.flow} mirrors to")
    target.probe()
    there = target.topics([name]).get(name)
    if there is None:
        return
    if there.partitions < plan.partitions:
        raise ReplayTargetError(
            f"topic {name} on {target.alias} has {there.partitions} partitions, the replay needs "
            f"{plan.partitions}"
        )
    marks = target.watermarks([TopicPartition(name, i) for i in range(there.partitions)])
    for partition, seen in sorted(marks.items()):
        if not isinstance(seen, Watermarks):
            raise seen
        if seen.high > seen.low:
            raise ReplayTargetError(
                f"topic {name} on {target.alias} is not empty: {partition} holds records "
                f"[{seen.low}, {seen.high})"
            )


def _files(files: Sequence[RecordsFile], slot: int, sequence: int) -> tuple[str, ...]:
    return tuple(f.path for f in files if f.slot == slot and f.sequence >= sequence)


def _keep(site: Site, plan: ReplayPlan, state: str, records: int) -> None:
    """Write how the replay is into the table `replays`."""
    shown = plan.to_json()
    row = {
        "replay_id": plan.replay_id,
        "flow": plan.flow.flow.name,
        "topic": plan.topic,
        "target_topic": plan.target_topic,
        "plan": json.dumps({"version": plan.version, "ranges": shown["ranges"]}),
        "state": state,
        "records": records,
        "at_ms": int(time.time() * 1000),
    }
    site.lake.replays.append([row])


class _Replaying:
    """One replay: its partitions' work, tick by tick, and its offset map."""

    def __init__(self, site: Site, plan: ReplayPlan, workers: Workers) -> None:
        self._site, self._plan = site, plan
        self._crew = workers.crew(Replayer)
        self._flow = ReplayFlow(plan.flow.flow, plan.replay_id)
        table = site.lake.offset_map(plan.flow.flow, plan.replay_id)
        self._map = OffsetMap(table, plan.replay_id)
        self._records_path = site.lake.records(plan.flow.flow.source).path
        self._pending: dict[TopicPartition, PartitionWork] = {}
        self._heard_at = time.monotonic()
        self.records = 0

    def run(self) -> None:
        """Make the target topic and send until every range has arrived."""
        plan = self._plan
        topic_id = self._site.cluster(plan.flow.flow.target).create_topic(
            plan.target_topic, plan.partitions, plan.flow.replication_factor, TOPIC_CONFIGS
        )
        for number in sorted({each.partition for each in plan.ranges}):
            partition = TopicPartition(plan.topic, number)
            own = [each for each in plan.ranges if each.partition == number]
            links = cut((s for s in plan.segments if s.partition == number), own)
            target = TopicPartition(plan.target_topic, number)
            self._pending[partition] = PartitionWork(
                partition, target, topic_id, links, None, Unknown.BEGIN
            )
        self._map.learn()
        try:
            while self._pending:
                self._tick()
        finally:
            self._crew.close()

    def _tick(self) -> None:
        """Send a few chunks of every slot. Raises what cannot be tried again."""
        answers = self._crew.run(self._jobs())
        moves = [move for answer in answers for move in answer.moves]
        self._map.write(moves)
        for move in moves:
            self._take_in(move)
        for answer in answers:
            for _, error in answer.errors:
                raise error
        self._bear([answer.failure for answer in answers if answer.failure], bool(moves))

    def _take_in(self, move: Move) -> None:
        self.records += move.records
        work = self._pending[move.partition]
        end = work.mapped.downstream_end if work.mapped else 0
        end = move.runs[-1].downstream_end if move.runs else end
        self._pending[move.partition] = replace(work, mapped=Mapped(move.after, end))
        last = work.links[-1]
        if (move.after.incarnation, move.after.next_offset) == (last.incarnation, last.end):
            del self._pending[move.partition]

    def _bear(self, failures: Sequence[DeltamirrorError], has_moved: bool) -> None:
        """Wait a little after a failure that passes; raise one that does not."""
        now = time.monotonic()
        if has_moved:
            self._heard_at = now
        for failure in failures:
            passing = isinstance(failure, (UnreachableError, CommitUnknownError))
            if not passing or now - self._heard_at > GIVE_UP_S:
                raise failure
        if failures:
            log.warning("%s: %s", self._flow.name, failures[0])
            time.sleep(1.0)
        elif not has_moved and self._pending:
            raise LakeError(f"{self._flow.name}: {min(self._pending)} does not move")

    def _jobs(self) -> dict[int, ReplayJob]:
        """Return the pending work by slots, for each worker its own."""
        config = self._site.config
        slots: dict[int, list[PartitionWork]] = {}
        for work in self._pending.values():
            slots.setdefault(work.partition.slot, []).append(work)
        works = [
            SlotWork(
                self._flow,
                slot,
                tuple(members),
                _files(self._plan.files, slot, self._first_sequence(members)),
                config.chunk_records,
                config.chunk_bytes,
                TICK_CHUNKS * config.chunk_records,
                TICK_CHUNKS * config.chunk_bytes,
            )
            for slot, members in sorted(slots.items())
        ]
        return deal(works, self._plan.flow, config, self._records_path)

    def _first_sequence(self, works: Sequence[PartitionWork]) -> int:
        """Return the lowest sequence of a segment that *works* read."""
        starts = {(w.partition.partition, w.links[0].incarnation): w.links[0] for w in works}
        return min(
            s.sequence
            for s in self._plan.segments
            if (link := starts.get((s.partition, s.topic_id))) and s.start <= link.start < s.end
        )
