"""The offset map of a slot made anew from the stage and the target, and compared with a kept one.

kept       (10, 3, 2)             what the table says
rebuilt    (10, 3, 2) (14, 6, 2)  what the target's log shows
missing    (14, 6, 2)             what is to be written
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pipeline.offset_map.runs import Runs
from pipeline.replay.recovery import StageReader, recover, staging_position
from pipeline.replay.slot_replay import Target
from schemas.errors import DeltamirrorError, MapDiffersError, PartitionError, ProgressBehindError
from schemas.kafka.partition import TopicPartition
from schemas.offset_map import OffsetRun
from schemas.replay.slot_work import CommittedBatch, SlotReplayResult, SlotWork


def rebuild_slot(work: SlotWork, staged: StageReader, target: Target) -> SlotReplayResult:
    """Pair all of *work* with the target, as though there were no map; nothing is sent.

    A partition goes as far as its progress, or as its map where progress is gone. Raises nothing:
    what stops a partition, or the slot, comes back beside the moves.
    """
    moves: list[CommittedBatch] = []
    errors: list[tuple[TopicPartition, PartitionError]] = []
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
                if (
                    at is not None
                    and map_end is not None
                    and staging_position(each, at) < staging_position(each, map_end)
                ):
                    raise ProgressBehindError(
                        each.target, progress=at.next_offset, map_end=map_end.next_offset
                    )
                fresh = replace(each, map_end=None)
                moves += recover(fresh, work.files, at, end, staged, target).repairs
            except PartitionError as error:
                errors.append((each.partition, error))
    except DeltamirrorError as error:
        return SlotReplayResult(work.slot, tuple(moves), tuple(errors), error)
    return SlotReplayResult(work.slot, tuple(moves), tuple(errors))


def missing_runs(
    target: TopicPartition,
    kept: Sequence[OffsetRun],
    rebuilt: Sequence[OffsetRun],
    complete_from: int,
) -> list[OffsetRun]:
    """Return what of *rebuilt* is not in *kept*; both are of one incarnation, and rise.

    Before upstream offset *complete_from* the target does not hold everything, so that the kept
    map may know more there. Raises MapDiffersError where it says anything else.
    """
    missing = list(subtract_runs(rebuilt, kept))
    behind = [
        _clip_run(run, max(run.upstream_start, complete_from), run.upstream_end)
        for run in kept
        if run.upstream_end > complete_from
    ]
    wrong = list(subtract_runs(behind, rebuilt))
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
    """Yield *runs* without the pairs of offsets that *others* hold too; both rise."""
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
