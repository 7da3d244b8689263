"""Rebuild a flow's offset map from the staged records and the target's log, without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import uuid4

import pyarrow.compute as pc

from deltamirror.context import MirrorContext
from deltamirror.replay.offset_map import OffsetMap, complete_from
from deltamirror.staging.segment_index import SegmentIndex
from deltamirror.worker_tasks import ReplayJob, run_rebuild
from pipeline.replay.rebuild_map import missing_runs
from resources.coordination.lease import Lease
from schemas.config.config import FlowConfig
from schemas.errors.base import DeltamirrorError, PartitionError
from schemas.kafka.partition import TopicPartition
from schemas.offset_map import OffsetRun
from schemas.replay.slot_work import CommittedBatch, PartitionWork, Progress, SlotWork


@dataclass(frozen=True, slots=True)
class RebuiltPartition:
    """Result of the rebuild for one incarnation of a partition.

    *records* were found on the target, in *runs* offset runs. Of these, *written_runs* with
    *written_records* were missing in the map and were written. Target and lake hold all records
    from upstream offset *complete_from* on; None means from the beginning.
    """

    flow: str
    topic: str
    incarnation: str
    partition: int
    target_topic: str
    records: int
    runs: int
    written_records: int
    written_runs: int
    complete_from: int | None


@dataclass(frozen=True, slots=True)
class RebuildResult:
    """The rebuilt partitions, and the errors of the others, for which nothing was written."""

    rebuilt: tuple[RebuiltPartition, ...]
    errors: tuple[DeltamirrorError, ...]


def rebuild_map(context: MirrorContext, config: FlowConfig) -> RebuildResult:
    """Compare the offset map of a flow with the target's log, and write the missing runs.

    Nothing is removed from the map. Raises LeaseHeldError while another process replays the flow;
    UnreachableError, LakeError.
    """
    context.lake.ensure_exists()
    with Lease(context.lake.root, f"replay {config.flow.name}"):
        return _Rebuilder(context, config).run()


class _Rebuilder:
    """Rebuild one flow's map; the caller holds its lease."""

    def __init__(self, context: MirrorContext, config: FlowConfig) -> None:
        self._context, self._config = context, config
        self._records = context.lake.records(config.flow.source)
        self._segment_index = SegmentIndex(context.lake.segments(config.flow.source))
        self._table = context.lake.offset_map(config.flow)
        self._map = OffsetMap(self._table, uuid4().hex)

    def run(self) -> RebuildResult:
        self._segment_index.refresh()
        self._records.refresh()
        self._map.load_ends()
        rebuilt: list[RebuiltPartition] = []
        errors: list[DeltamirrorError] = []
        for slot, works in sorted(self._work_by_slot().items()):
            (answer,) = run_rebuild(self._rebuild_job(slot, works))
            errors += [error for _, error in answer.errors]
            errors += [answer.failure] if answer.failure else []
            for work in works:
                batches = [move for move in answer.batches if move.target == work.target]
                try:
                    rebuilt += self._write_missing_runs(batches)
                except PartitionError as error:
                    errors.append(error)
        return RebuildResult(tuple(rebuilt), tuple(errors))

    def _work_by_slot(self) -> Mapping[int, list[PartitionWork]]:
        """Return, by slot, the staged links of each partition whose remote topic exists."""
        config = self._config
        partitions = [p for p in self._segment_index.partitions() if config.replicates(p.topic)]
        cluster = self._context.cluster(config.flow.target)
        topics = cluster.topics({config.remote_topic(p.topic) for p in partitions})
        works: dict[int, list[PartitionWork]] = {}
        for partition in partitions:
            found = topics.get(config.remote_topic(partition.topic))
            retained = self._segment_index.retained_links(partition, self._records)
            links = tuple(segment.link for segment in retained)
            if found is None or not links:
                continue
            target = TopicPartition(found.name, partition.partition)
            incarnations = self._segment_index.incarnations(partition)
            mapped = self._map.end(target, found.topic_id, incarnations)
            work = PartitionWork(partition, target, found.topic_id, links, mapped)
            works.setdefault(partition.slot, []).append(work)
        return works

    def _rebuild_job(self, slot: int, works: Sequence[PartitionWork]) -> ReplayJob:
        config = self._config
        files = tuple(file.path for file in self._records.files() if file.has_slot(slot))
        # Nothing is sent, so the limits of a transaction and of a tick are not used.
        work = SlotWork(config.flow, slot, tuple(works), files, 0, 0, 0, 0)
        consumer = self._context.config.clusters[config.flow.target].consumer
        return ReplayJob((work,), config.producer, consumer, self._records.path)

    def _write_missing_runs(self, batches: Sequence[CommittedBatch]) -> list[RebuiltPartition]:
        """Write the runs of *batches* that the map lacks, in one commit; return the results."""
        rebuilt, moves = [], []
        for move in batches:
            start = complete_from(move, self._records)
            missing = missing_runs(move.target, self._mapped_runs(move), move.runs, start or 0)
            incarnation = move.after.incarnation
            mapped = self._map.end(move.target, move.after.target_topic_id, [incarnation])
            if missing or mapped is None or mapped.progress.next_offset < move.after.next_offset:
                moves.append(_missing_move(move, mapped.progress if mapped else None, missing))
            rebuilt.append(
                RebuiltPartition(
                    self._config.flow.name,
                    move.partition.topic,
                    incarnation,
                    move.partition.partition,
                    move.target.topic,
                    records=move.records,
                    runs=len(move.runs),
                    written_records=sum(run.length for run in missing),
                    written_runs=len(missing),
                    complete_from=start,
                )
            )
        self._map.write(moves, is_in_order=False)
        return rebuilt

    def _mapped_runs(self, move: CommittedBatch) -> list[OffsetRun]:
        """Return the map's runs of the incarnation of *move*."""
        where = (
            (pc.field("target_topic_id") == move.after.target_topic_id)
            & (pc.field("target_partition") == move.target.partition)
            & (pc.field("topic") == move.partition.topic)
            & (pc.field("incarnation") == move.after.incarnation)
        )
        columns = ["upstream_start", "downstream_start", "length"]
        rows = self._table.rows(columns, where=where).sort_by("upstream_start").to_pylist()
        return [OffsetRun(*(row[column] for column in columns)) for row in rows]


def _missing_move(
    move: CommittedBatch, mapped: Progress | None, missing: Sequence[OffsetRun]
) -> CommittedBatch:
    """Return *move* with the *missing* runs, from the *mapped* progress, which never goes back."""
    after = move.after if mapped is None or mapped.next_offset < move.after.next_offset else mapped
    return replace(move, before=mapped, after=after, runs=tuple(missing))
