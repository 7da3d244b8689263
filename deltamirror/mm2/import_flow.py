"""Taking a flow over from MirrorMaker 2: nothing is copied again, and its map is made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa

from deltamirror.context import Site
from deltamirror.control import RESUME, Orders
from deltamirror.replay.offset_map import OffsetMap
from deltamirror.run.single_topic import stage_topic
from deltamirror.staging.segment_index import Ledger
from pipeline.pairing.mm2_takeover import Log, TakenOver, take_over
from pipeline.pairing.pair import fingerprints
from resources.coordination.lease import Lease
from resources.delta.stage_reader import StagedLog
from resources.kafka.cluster import KafkaCluster
from resources.kafka.mm2_topics import Mm2Topics
from resources.kafka.target_log import TargetLog
from resources.spark.session import Workers
from schemas.config.config import FlowConfig
from schemas.config.flow import Flow
from schemas.errors import (
    AlreadyMirroredError,
    CopiedAheadError,
    DeltamirrorError,
    MirrorMakerRunningError,
    NothingToTakeOverError,
    PartitionError,
    RemoteTopicMissingError,
    TakeoverUnclearError,
)
from schemas.kafka.partition import SourcePartition, TopicPartition
from schemas.replay.slot_work import Mapped, Move, Progress

AT_REST = frozenset({"EMPTY", "DEAD"})
"""States of MirrorMaker 2's group in which none of its workers is there."""


@dataclass(frozen=True, slots=True)
class Noted:
    """What MirrorMaker 2 left of one partition: the next offset to copy, and its last sync."""

    copied: int
    sync: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Taken:
    """One partition that goes on where MirrorMaker 2 left it: `pipeline.pairing.mm2_takeover`."""

    partition: TopicPartition
    target: TopicPartition
    noted: Noted
    found: TakenOver


@dataclass(frozen=True, slots=True)
class Takeover:
    """What was taken over of a flow, and why the rest was not; of that nothing was written."""

    flow: str
    taken: tuple[Taken, ...]
    errors: tuple[DeltamirrorError, ...]


def import_mm2(site: Site, config: FlowConfig, workers: Workers, *, is_trial: bool) -> Takeover:
    """Take over what MirrorMaker 2 has noted of a flow; on *is_trial* only the stage is written.

    The source is staged from its beginning, so that what MirrorMaker 2 copied can be translated
    too. Raises MirrorMakerRunningError, NothingToTakeOverError, LeaseHeldError: a run of ours
    replays the flow; UnreachableError, LakeError.
    """
    site.lake.make()
    with Lease(site.lake.root, f"replay {config.flow.name}"):
        return _Import(site, config, workers, is_trial).run()


def offsets_topic(flow: Flow) -> str:
    """Return the topic, on the target, where a MirrorMaker 2 of *flow* notes how far it is."""
    return f"mm2-offsets.{flow.source}.internal"


def refuse_two_writers(target: KafkaCluster, flow: Flow) -> None:
    """Raise MirrorMakerRunningError where a MirrorMaker 2 of *flow* is at work."""
    group = f"{flow.source}-mm2"
    state = target.worker_state(group)
    if state not in AT_REST:
        raise MirrorMakerRunningError(flow.name, group, flow.target, state)


class _Import:
    """The import of one flow; its lease is held."""

    def __init__(self, site: Site, config: FlowConfig, workers: Workers, is_trial: bool) -> None:
        self._site, self._config, self._workers = site, config, workers
        self._is_trial = is_trial
        self._source = site.cluster(config.flow.source)
        self._target = site.cluster(config.flow.target)
        self._ledger = Ledger(site.lake.segments(config.flow.source))
        self._records = site.lake.records(config.flow.source)
        self._map = OffsetMap(site.lake.offset_map(config.flow), uuid4().hex)

    def run(self) -> Takeover:
        refuse_two_writers(self._target, self._config.flow)
        noted = self._noted()
        errors: list[DeltamirrorError] = []
        for topic in sorted({partition.topic for partition in noted}):
            try:
                stage_topic(self._site, self._config.flow.source, topic, self._workers)
            except DeltamirrorError as error:
                errors.append(error)
                noted = {p: found for p, found in noted.items() if p.topic != topic}
        self._ledger.refresh()
        self._records.refresh()
        self._map.learn()
        taken: list[Taken] = []
        for partition in sorted(noted):
            try:
                taken.append(self._take(partition, noted[partition]))
            except PartitionError as error:
                errors.append(error)
        if taken and not self._is_trial:
            # `export-mm2` paused it: a run would have copied what MirrorMaker 2 copies.
            Orders(self._site.lake.control).give(RESUME, self._config.flow.name)
        return Takeover(self._config.flow.name, tuple(taken), tuple(errors))

    def _noted(self) -> Mapping[TopicPartition, Noted]:
        """Return what MirrorMaker 2 left of the partitions that the flow mirrors."""
        flow, clusters = self._config.flow, self._site.config.clusters
        here = Mm2Topics(self._target, clusters[flow.target].consumer)
        there = Mm2Topics(self._source, clusters[flow.source].consumer)
        topic, policy = offsets_topic(flow), self._config.policy
        offsets = here.source_offsets(topic, flow.source)
        # offset-syncs.topic.location says where they were written; a leftover elsewhere is older.
        syncs = {
            **here.offset_syncs(policy.offset_syncs_topic(flow.source)),
            **there.offset_syncs(policy.offset_syncs_topic(flow.target)),
        }
        noted = {
            # A sync is written once the record is there, offsets are noted now and then.
            each: Noted(max(offsets.get(each, -1), syncs.get(each, (-1,))[0]) + 1, syncs.get(each))
            for each in {*offsets, *syncs}
            if self._config.replicates(each.topic)
        }
        if not noted:
            raise NothingToTakeOverError(flow.name, topic, flow.target)
        return noted

    def _take(self, partition: TopicPartition, noted: Noted) -> Taken:
        """Take one partition over. Raises PartitionError: it is not, and nothing was written."""
        flow = self._config.flow
        remote = self._config.remote_topic(partition.topic)
        target = TopicPartition(remote, partition.partition)
        there = self._target.topics([remote]).get(remote)
        if there is None or there.partitions <= partition.partition:
            raise RemoteTopicMissingError(target, flow.target)
        frontier = self._ledger.chains.frontiers.get(partition)
        end = frontier.next_offset if frontier else 0
        if frontier is None or end < noted.copied:
            raise CopiedAheadError(partition, copied=noted.copied, staged=end)
        source = frontier.source
        before = self._before(source, target, there.topic_id, noted)
        start, place = (before.progress.next_offset, before.downstream_end) if before else (0, 0)
        written = Log.of(self._written(target, place))
        staged = Log.of(self._staged(source, start))
        found = take_over(target, staged, written, noted.copied, noted.sync)
        if not self._is_trial:
            after = Progress(found.next_offset, source.topic_id, there.topic_id)
            records = sum(run.length for run in found.runs)
            move = Move(
                *(partition, target, before.progress if before else None, after, found.runs),
                records,
                rebuilt=True,
                complete_from=found.complete_from,
            )
            self._write(move, int(written.offsets[-1]) + 1 if len(written.offsets) else place)
        return Taken(partition, target, noted, found)

    def _before(
        self, source: SourcePartition, target: TopicPartition, topic_id: str, noted: Noted
    ) -> Mapped | None:
        """Return where we were before MirrorMaker 2; None: we have never been there.

        Raises AlreadyMirroredError: nobody has been there since; TakeoverUnclearError.
        """
        mapped = self._map.end(target, topic_id, [source.topic_id])
        committed = self._target.committed(self._config.flow.progress_group, [target])[target]
        progress = Progress.read(*committed) if committed is not None else None
        if mapped is None and committed is None:
            return None
        if mapped is None or progress != mapped.progress:
            raise TakeoverUnclearError(target)
        if noted.copied <= mapped.progress.next_offset:
            raise AlreadyMirroredError(target, progress=mapped.progress.next_offset)
        return mapped

    def _staged(self, source: SourcePartition, start: int) -> Iterator[tuple[int, bytes]]:
        files = [f.path for f in self._records.files() if f.slot == source.plain.slot]
        for _, rows in StagedLog(self._records.path).rows(files, {source: start}):
            yield from _marked(rows)

    def _written(self, target: TopicPartition, start: int) -> list[tuple[int, bytes]]:
        """Return offset and fingerprint of the committed records of *target* from *start* on."""
        alias = self._config.flow.target
        log = TargetLog(alias, self._site.config.clusters[alias].consumer)
        records: list[tuple[int, bytes]] = []
        log.read_back(target, start, lambda rows: records.extend(_marked(rows)))
        return records

    def _write(self, move: Move, end: int) -> None:
        """Write the map, then progress: of a map without progress a run makes it, by the log."""
        self._map.take_over(move, end)
        progress = {move.target: (move.after.next_offset, move.after.metadata)}
        self._target.commit_offsets(self._config.flow.progress_group, progress)


def _marked(rows: pa.RecordBatch) -> Iterator[tuple[int, bytes]]:
    return zip(rows.column("offset").to_pylist(), fingerprints(rows), strict=True)
