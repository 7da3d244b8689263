"""Rebuild a slot's offset map from the stage and the target, and compare it with the kept map.

kept       (10, 3, 2)             the table `offset_map`
rebuilt    (10, 3, 2) (14, 6, 2)  paired with the target's log
missing    (14, 6, 2)             to be added to the table
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pipeline.offset_map.runs import Runs
from pipeline.replay.recovery import StageReader, check_progress, recover
from pipeline.replay.slot_replay import Target
from schemas.errors.base import DeltamirrorError, PartitionError
from schemas.errors.target import MapDiffersError
from schemas.kafka.partition import TopicPartition
from schemas.offset_map import OffsetRun
from schemas.replay.slot_work import CommittedBatch, SlotReplayResult, SlotWork


def rebuild_slot(work: SlotWork, staged: StageReader, target: Target) -> SlotReplayResult:
    """Pair all staged records of *work* with the target, without the kept map; nothing is sent.

    A partition is paired up to its progress, or up to the end of its map if progress is lost.
    Raises nothing: the result holds the errors of partitions and of the slot.
    """
    batches: list[CommittedBatch] = []
    errors: list[tuple[TopicPartition, PartitionError]] = []
    failure: DeltamirrorError | None = None
    try:
        target.fence()
        targets = [each.target for each in work.partitions]
        known, end_offsets = target.progress(targets), target.end_offsets(targets)
        for each in work.partitions:
            map_end = each.map_end.progress if each.map_end else None
            at = known.get(each.target, map_end)
            try:
                end = end_offsets[each.target]
                if isinstance(end, PartitionError):
                    raise end
                if at is not None and map_end is not None:
                    check_progress(each, at, map_end)
                fresh = replace(each, map_end=None)
                batches += recover(fresh, work.files, at, end, staged, target).repairs
            except PartitionError as error:
                errors.append((each.partition, error))
    except DeltamirrorError as error:
        failure = error
    return SlotReplayResult(work.slot, tuple(batches), tuple(errors), failure)


def missing_runs(
    target: TopicPartition,
    kept: Sequence[OffsetRun],
    rebuilt: Sequence[OffsetRun],
    complete_from: int,
) -> list[OffsetRun]:
    """Return the part of *rebuilt* that is not in *kept*; both are sorted and of one incarnation.

    Before upstream offset *complete_from* the target has deleted some records, so *kept* may have
    more pairs there. Raises MapDiffersError for any other difference.
    """
    missing = list(subtract_runs(rebuilt, kept))
    comparable = [
        _clip_run(run, max(run.upstream_start, complete_from), run.upstream_end)
        for run in kept
        if run.upstream_end > complete_from
    ]
    wrong = list(subtract_runs(comparable, rebuilt))
    if not wrong:
        try:
            Runs.of([*kept, *missing]).sort_by_upstream()
        except ValueError:
            wrong = missing
    if wrong:
        raise MapDiffersError(
            target,
            records=sum(run.length for run in wrong),
            upstream=wrong[0].upstream_start,
            downstream=wrong[0].downstream_start,
        )
    return missing


def subtract_runs(runs: Sequence[OffsetRun], others: Sequence[OffsetRun]) -> Iterator[OffsetRun]:
    """Yield *runs* without the pairs of offsets that *others* contain too; both are sorted."""
    first = 0
    for run in runs:
        start = run.upstream_start
        while first < len(others) and others[first].upstream_end <= start:
            first += 1
        at = first
        while at < len(others) and others[at].upstream_start < run.upstream_end:
            other, at = others[at], at + 1
            if _shift(other) == _shift(run):
                if other.upstream_start > start:
                    yield _clip_run(run, start, other.upstream_start)
                start = other.upstream_end
        if start < run.upstream_end:
            yield _clip_run(run, start, run.upstream_end)


def _shift(run: OffsetRun) -> int:
    return run.downstream_start - run.upstream_start


def _clip_run(run: OffsetRun, start: int, end: int) -> OffsetRun:
    """Return *run* cut to the upstream offsets [start, end)."""
    return OffsetRun(start, start + _shift(run), end - start)
