"""Import a flow from MirrorMaker 2: build its offset map, so that no record is copied again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa

from deltamirror.context import MirrorContext
from deltamirror.control import RESUME, ControlTable
from deltamirror.replay.offset_map import OffsetMap
from deltamirror.run.single_topic import stage_topic
from deltamirror.staging.segment_index import SegmentIndex
from pipeline.pairing.mm2_takeover import ImportResult, LogFingerprints, pair_mm2_log
from pipeline.pairing.pair import fingerprints
from resources.coordination.lease import Lease
from resources.delta.stage_reader import StageReader
from resources.kafka.cluster import KafkaCluster
from resources.kafka.mm2_topics import Mm2Topics
from resources.kafka.target_log import TargetLog
from resources.spark.session import SparkWorkers
from schemas.config.config import FlowConfig
from schemas.config.flow import Flow
from schemas.errors.base import DeltamirrorError, PartitionError
from schemas.errors.mm2 import (
    AlreadyMirroredError,
    CopiedAheadError,
    MirrorMakerRunningError,
    NothingToTakeOverError,
    RemoteTopicMissingError,
    TakeoverUnclearError,
)
from schemas.kafka.partition import SourcePartition, TopicPartition
from schemas.replay.slot_work import CommittedBatch, MapEnd, Progress

STOPPED_STATES = frozenset({"EMPTY", "DEAD"})
"""States of the group of MirrorMaker 2's workers in which it has no members."""


@dataclass(frozen=True, slots=True)
class Mm2Positions:
    """The next offset that MirrorMaker 2 would copy, and its last *sync* (upstream, downstream)."""

    copied: int
    sync: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class ImportedPartition:
    """One partition that resumes where MirrorMaker 2 stopped: `pipeline.pairing.mm2_takeover`."""

    partition: TopicPartition
    target: TopicPartition
    positions: Mm2Positions
    found: ImportResult


@dataclass(frozen=True, slots=True)
class Mm2Import:
    """The imported partitions of a flow. Nothing was written for those with *errors*."""

    flow: str
    imported: tuple[ImportedPartition, ...]
    errors: tuple[DeltamirrorError, ...]


def import_mm2(
    context: MirrorContext, config: FlowConfig, workers: SparkWorkers, *, is_dry_run: bool
) -> Mm2Import:
    """Import a flow's positions from MirrorMaker 2, build its offset map and commit its progress.

    The source is staged from its log start, so that offsets of records that MirrorMaker 2 copied
    can be translated too. With *is_dry_run* nothing else is written. Raises
    MirrorMakerRunningError, NothingToTakeOverError; LeaseHeldError if a deltamirror process replays
    the flow; UnreachableError, LakeError.
    """
    context.lake.ensure_exists()
    with Lease(context.lake.root, f"replay {config.flow.name}"):
        return _Importer(context, config, workers, is_dry_run).run()


def offsets_topic(flow: Flow) -> str:
    """Return the topic on the target in which MirrorMaker 2 keeps the source offsets of *flow*."""
    return f"mm2-offsets.{flow.source}.internal"


def check_mm2_stopped(target: KafkaCluster, flow: Flow) -> None:
    """Raise MirrorMakerRunningError if a MirrorMaker 2 of *flow* is running."""
    group = f"{flow.source}-mm2"
    state = target.worker_state(group)
    if state not in STOPPED_STATES:
        raise MirrorMakerRunningError(flow.name, group=group, alias=flow.target, state=state)


class _Importer:
    """Import one flow; the caller holds its lease."""

    def __init__(
        self, context: MirrorContext, config: FlowConfig, workers: SparkWorkers, is_dry_run: bool
    ) -> None:
        self._context, self._config, self._workers = context, config, workers
        self._is_dry_run = is_dry_run
        self._source = context.cluster(config.flow.source)
        self._target = context.cluster(config.flow.target)
        self._segment_index = SegmentIndex(context.lake.segments(config.flow.source))
        self._records = context.lake.records(config.flow.source)
        self._map = OffsetMap(context.lake.offset_map(config.flow), uuid4().hex)

    def run(self) -> Mm2Import:
        check_mm2_stopped(self._target, self._config.flow)
        positions = self._read_mm2_positions()
        errors: list[DeltamirrorError] = []
        for topic in sorted({partition.topic for partition in positions}):
            try:
                stage_topic(self._context, self._config.flow.source, topic, self._workers)
            except DeltamirrorError as error:
                errors.append(error)
                positions = {p: found for p, found in positions.items() if p.topic != topic}
        self._segment_index.refresh()
        self._records.refresh()
        self._map.load_ends()
        imported: list[ImportedPartition] = []
        for partition, found in sorted(positions.items()):
            try:
                imported.append(self._import_partition(partition, found))
            except PartitionError as error:
                errors.append(error)
        if imported and not self._is_dry_run:
            # `export-mm2` may have paused the flow.
            ControlTable(self._context.lake.control).add_request(RESUME, self._config.flow.name)
        return Mm2Import(self._config.flow.name, tuple(imported), tuple(errors))

    def _read_mm2_positions(self) -> Mapping[TopicPartition, Mm2Positions]:
        """Return MirrorMaker 2's positions in the partitions that the flow mirrors."""
        flow, clusters = self._config.flow, self._context.config.clusters
        on_target = Mm2Topics(self._target, clusters[flow.target].consumer)
        on_source = Mm2Topics(self._source, clusters[flow.source].consumer)
        topic, policy = offsets_topic(flow), self._config.policy
        offsets = on_target.source_offsets(topic, flow.source)
        # offset-syncs.topic.location may be the source (the default) or the target. If both have
        # syncs of a partition, those on the source are used.
        syncs = {
            **on_target.offset_syncs(policy.offset_syncs_topic(flow.source)),
            **on_source.offset_syncs(policy.offset_syncs_topic(flow.target)),
        }
        positions = {}
        for each in {*offsets, *syncs}:
            if self._config.replicates(each.topic):
                # Both show that records were copied. Offsets are committed only periodically, so a
                # sync may be ahead of them.
                copied = max(offsets.get(each, -1), syncs.get(each, (-1,))[0]) + 1
                positions[each] = Mm2Positions(copied, syncs.get(each))
        if not positions:
            raise NothingToTakeOverError(flow.name, topic=topic, alias=flow.target)
        return positions

    def _import_partition(
        self, partition: TopicPartition, positions: Mm2Positions
    ) -> ImportedPartition:
        """Import one partition. Raises PartitionError, with nothing written."""
        flow = self._config.flow
        remote = self._config.remote_topic(partition.topic)
        target = TopicPartition(remote, partition.partition)
        remote_topic = self._target.topics([remote]).get(remote)
        if remote_topic is None or remote_topic.partitions <= partition.partition:
            raise RemoteTopicMissingError(target, alias=flow.target)
        frontier = self._segment_index.frontiers.get(partition)
        end = frontier.next_offset if frontier else 0
        if frontier is None or end < positions.copied:
            raise CopiedAheadError(partition, copied=positions.copied, staged=end)
        source = frontier.source
        former = self._former_position(source, target, remote_topic.topic_id, positions)
        before, downstream_start = (former.progress, former.downstream_end) if former else (None, 0)
        written = LogFingerprints.of(self._target_records(target, downstream_start))
        start = before.next_offset if before else 0
        staged = LogFingerprints.of(self._staged_records(source, start))
        found = pair_mm2_log(target, staged, written, positions.copied, positions.sync)
        if not self._is_dry_run:
            after = Progress(found.next_offset, source.topic_id, remote_topic.topic_id)
            records = sum(run.length for run in found.runs)
            move = CommittedBatch(
                *(partition, target, before, after, found.runs, records),
                rebuilt=True,
                complete_from=found.complete_from,
            )
            end = int(written.offsets[-1]) + 1 if len(written.offsets) else downstream_start
            # The map first: after a crash, replay finds progress from it and the target's log.
            self._map.write_takeover(move, end)
            progress = {target: (after.next_offset, after.metadata)}
            self._target.commit_offsets(flow.progress_group, progress)
        return ImportedPartition(partition, target, positions, found)

    def _former_position(
        self,
        source: SourcePartition,
        target: TopicPartition,
        topic_id: str,
        positions: Mm2Positions,
    ) -> MapEnd | None:
        """Return where deltamirror stopped before MirrorMaker 2 began; None if it never replayed.

        Raises AlreadyMirroredError, TakeoverUnclearError.
        """
        mapped = self._map.end(target, topic_id, [source.topic_id])
        group = self._config.flow.progress_group
        commit = self._target.committed_offsets(group, [target])[target]
        if mapped is None and commit is None:
            return None
        progress = Progress.read(*commit) if commit is not None else None
        if mapped is None or progress != mapped.progress:
            raise TakeoverUnclearError(target)
        if positions.copied <= mapped.progress.next_offset:
            raise AlreadyMirroredError(target, progress=mapped.progress.next_offset)
        return mapped

    def _staged_records(self, source: SourcePartition, start: int) -> Iterator[tuple[int, bytes]]:
        files = [file.path for file in self._records.files() if file.has_slot(source.slot)]
        for _, rows in StageReader(self._records.path).rows(files, {source: start}):
            yield from _fingerprinted(rows)

    def _target_records(self, target: TopicPartition, start: int) -> list[tuple[int, bytes]]:
        """Return offset and fingerprint of each committed record of *target* from *start* on."""
        alias = self._config.flow.target
        log = TargetLog(alias, self._context.config.clusters[alias].consumer)
        records: list[tuple[int, bytes]] = []
        log.read_back(target, start, lambda rows: records.extend(_fingerprinted(rows)))
        return records


def _fingerprinted(rows: pa.RecordBatch) -> Iterator[tuple[int, bytes]]:
    return zip(rows.column("offset").to_pylist(), fingerprints(rows), strict=True)
