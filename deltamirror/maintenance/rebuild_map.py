"""A flow's offset map made anew from the stage and the target (DESIGN 2.2), without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import uuid4

import pyarrow.compute as pc

from deltamirror.context import Site
from deltamirror.replay.offset_map import OffsetMap, complete_from
from deltamirror.staging.segment_index import Ledger
from deltamirror.worker_tasks import ReplayJob, run_rebuild
from pipeline.replay.rebuild_map import missing_runs
from resources.coordination.lease import Lease
from schemas.config.config import FlowConfig
from schemas.errors import DeltamirrorError, PartitionError
from schemas.kafka.partition import TopicPartition
from schemas.offset_map import OffsetRun
from schemas.replay.slot_work import Move, PartitionWork, Progress, SlotWork


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What was found of one incarnation of a partition.

    *records* of it were found on the target, as *runs*; *written_runs* with *written_records* of
    them were missing in the map and were written. The target, or the stage, holds every record
    from upstream offset *complete_from* on; None: from the beginning.
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
class Rebuilding:
    """What was rebuilt, and why the rest was not; of that nothing was written."""

    rebuilt: tuple[Rebuilt, ...]
    errors: tuple[DeltamirrorError, ...]


def rebuild_map(site: Site, config: FlowConfig) -> Rebuilding:
    """Compare the offset map of a flow with its target's log, and write what it lacks.

    Nothing is taken out of the map. Raises LeaseHeldError while another process replays the flow;
    UnreachableError, LakeError.
    """
    site.lake.make()
    with Lease(site.lake.root, f"replay {config.flow.name}"):
        return _Rebuild(site, config).run()


class _Rebuild:
    """The rebuild of one flow's map; its lease is held."""

    def __init__(self, site: Site, config: FlowConfig) -> None:
        self._site, self._config = site, config
        self._records = site.lake.records(config.flow.source)
        self._ledger = Ledger(site.lake.segments(config.flow.source))
        self._table = site.lake.offset_map(config.flow)
        self._map = OffsetMap(self._table, uuid4().hex)

    def run(self) -> Rebuilding:
        self._ledger.refresh()
        self._records.refresh()
        self._map.learn()
        rebuilt: list[Rebuilt] = []
        errors: list[DeltamirrorError] = []
        for slot, works in sorted(self._works().items()):
            (answer,) = run_rebuild(self._job(slot, works))
            errors += [error for _, error in answer.errors]
            errors += [answer.failure] if answer.failure else []
            for work in works:
                moves = [move for move in answer.moves if move.target == work.target]
                try:
                    rebuilt += self._take_in(moves)
                except PartitionError as error:
                    errors.append(error)
        return Rebuilding(tuple(rebuilt), tuple(errors))

    def _works(self) -> Mapping[int, list[PartitionWork]]:
        """Return, by slot, what is staged of every partition whose remote topic is there."""
        config = self._config
        partitions = [p for p in self._ledger.partitions() if config.replicates(p.topic)]
        cluster = self._site.cluster(config.flow.target)
        topics = cluster.topics({config.remote_topic(p.topic) for p in partitions})
        works: dict[int, list[PartitionWork]] = {}
        for partition in partitions:
            found = topics.get(config.remote_topic(partition.topic))
            links = tuple(s.link for s in self._ledger.held(partition, self._records))
            if found is None or not links:
                continue
            target = TopicPartition(found.name, partition.partition)
            mapped = self._map.end(target, found.topic_id, self._ledger.lives(partition))
            work = PartitionWork(partition, target, found.topic_id, links, mapped)
            works.setdefault(partition.slot, []).append(work)
        return works

    def _job(self, slot: int, works: Sequence[PartitionWork]) -> ReplayJob:
        site, config = self._site.config, self._config
        files = tuple(file.path for file in self._records.files() if file.slot == slot)
        work = SlotWork(
            config.flow,
            slot,
            tuple(works),
            files,
            chunk_records=0,
            chunk_bytes=0,
            max_records=0,
            max_bytes=0,
        )
        consumer = site.clusters[config.flow.target].consumer
        return ReplayJob((work,), config.producer, consumer, self._records.path)

    def _take_in(self, moves: Sequence[Move]) -> list[Rebuilt]:
        """Write what the map lacks of *moves*, in one commit; return what was found."""
        rebuilt, lacking = [], []
        for move in moves:
            start = complete_from(move, self._records)
            kept = self._kept(move)
            missing = missing_runs(move.target, kept, move.runs, start or 0)
            life = move.after.incarnation
            mapped = self._map.end(move.target, move.after.target_topic_id, [life])
            if missing or mapped is None or mapped.progress.next_offset < move.after.next_offset:
                lacking.append(_lacking(move, mapped.progress if mapped else None, missing))
            rebuilt.append(
                Rebuilt(
                    self._config.flow.name,
                    move.partition.topic,
                    life,
                    move.partition.partition,
                    move.target.topic,
                    records=move.records,
                    runs=len(move.runs),
                    written_records=sum(run.length for run in missing),
                    written_runs=len(missing),
                    complete_from=start,
                )
            )
        self._map.write(lacking)
        return rebuilt

    def _kept(self, move: Move) -> list[OffsetRun]:
        """Return the runs that the map holds of the incarnation of *move*."""
        where = (
            (pc.field("target_topic_id") == move.after.target_topic_id)
            & (pc.field("target_partition") == move.target.partition)
            & (pc.field("topic") == move.partition.topic)
            & (pc.field("incarnation") == move.after.incarnation)
        )
        columns = ["upstream_start", "downstream_start", "length"]
        rows = self._table.rows(columns, where=where).sort_by("upstream_start").to_pylist()
        return [OffsetRun(*(row[column] for column in columns)) for row in rows]


def _lacking(move: Move, mark: Progress | None, missing: Sequence[OffsetRun]) -> Move:
    """Return *move* as the map needs it, whose *mark* of this incarnation never goes back."""
    after = move.after if mark is None or mark.next_offset < move.after.next_offset else mark
    return replace(move, before=mark, after=after, runs=tuple(missing))
