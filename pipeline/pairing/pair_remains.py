"""Pair staged records with a target that has deleted some of the replayed records.

Retention deletes the head of a log. Compaction deletes records that a later record of the same key
replaced. Both keep the last of several equal records. So the target's records of one fingerprint
are paired with the same number of last staged ones, and all pairs together must increase.

Memory holds the fingerprints and offsets of the target's records after the end of the map, and the
offsets of the equal staged records: 170 bytes per record at the peak (measured). The target's
retention bounds this, not the size of the stage. Windows do not work here: the first staged record
that the target still holds is known only after all records were compared.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

import numpy as np

from pipeline.arrays import NO_OFFSETS, FingerprintArray, Offsets
from pipeline.offset_map.encode import encode_runs
from pipeline.pairing.pair import OffsetFingerprint, PairedRuns, StagedFingerprint, UpstreamPosition
from schemas.errors.target import MapAmbiguousError, MapUnpairedError
from schemas.kafka.partition import TopicPartition
from schemas.offset_map import OffsetRun

BATCH_SIZE = 32_768


class RemainderPairing:
    """Pair the records that the target of *partition* still holds with staged records.

    Call `take` with all of the target's records, in order; then call `pair`. If another producer
    wrote a record that equals a deleted one, it is paired instead of the deleted one.
    """

    def __init__(self, partition: TopicPartition) -> None:
        self._partition = partition
        self._offsets: list[Offsets] = [NO_OFFSETS]
        self._fingerprints: list[FingerprintArray] = [np.empty(0, "S16")]

    def take(self, records: Iterable[OffsetFingerprint]) -> None:
        """Add *records*, the next ones of the target's log."""
        batch = list(records)
        self._offsets.append(np.array([offset for offset, _ in batch], np.int64))
        self._fingerprints.append(np.array([fingerprint for _, fingerprint in batch], "S16"))

    def last(self, staged: Iterable[StagedFingerprint]) -> UpstreamPosition | None:
        """Return the position of the last *staged* record that the target holds, or None."""
        known = np.unique(np.concatenate(self._fingerprints))
        stage = _match_fingerprints(staged, known)
        if not len(stage.numbers):
            return None
        return stage.names[stage.incarnations[-1]], int(stage.upstream[-1])

    def pair(self, staged: Iterable[StagedFingerprint], *, has_holes: bool) -> PairedRuns:
        """Return the pairs, and the position from which on every staged record has one.

        If the target *has_holes* (it is compacted), any record may be missing; else only the first
        ones. Raises MapUnpairedError, MapAmbiguousError.
        """
        downstream = np.concatenate(self._offsets)
        known, group_of = np.unique(np.concatenate(self._fingerprints), return_inverse=True)
        stage = _match_fingerprints(staged, known)
        in_stage = np.bincount(stage.groups, minlength=len(known))
        on_target = np.bincount(group_of, minlength=len(known))
        surplus = ((on_target > in_stage) & (in_stage > 0))[group_of]
        if surplus.any():
            raise MapAmbiguousError(self._partition, offset=int(downstream[surplus][0]))
        ours, target_rows = pair_last_copies(stage.groups, group_of, len(known))
        downstream = downstream[target_rows]
        falls = np.flatnonzero(np.diff(ours) <= 0)
        if len(falls):
            raise MapAmbiguousError(self._partition, offset=int(downstream[falls[0] + 1]))
        missing = stage.last_missing(ours)
        is_head = missing is None or not len(ours) or missing[0] < stage.numbers[ours[0]]
        if not is_head and not has_holes:
            raise MapUnpairedError(
                self._partition,
                start=stage.start,
                end=stage.end,
                found=len(ours),
                wanted=stage.count,
            )
        complete_from = (missing[1][0], missing[1][1] + 1) if missing else None
        return PairedRuns(stage.runs(ours, downstream), complete_from)


@dataclass(eq=False)
class _MatchedStage:
    """The staged records that the target may hold; *numbers* are their indexes in the stage.

    *incarnations* are indexes of *names*; *groups* are indexes of the target's fingerprints.
    *missed* is the number and position of the last staged record that the target does not hold.
    *count* records are staged in [start, end).
    """

    numbers: Offsets
    incarnations: Offsets
    upstream: Offsets
    groups: Offsets
    names: list[str]
    missed: tuple[int, UpstreamPosition] | None
    start: int
    end: int
    count: int

    def last_missing(self, chosen: Offsets) -> tuple[int, UpstreamPosition] | None:
        """Return the number and position of the last record that is not among the *chosen*."""
        left = np.delete(np.arange(len(self.numbers)), chosen)
        if not len(left):
            return self.missed
        position = (self.names[self.incarnations[left[-1]]], int(self.upstream[left[-1]]))
        last = (int(self.numbers[left[-1]]), position)
        return max(last, self.missed) if self.missed else last

    def runs(self, chosen: Offsets, downstream: Offsets) -> dict[str, list[OffsetRun]]:
        """Return the runs of the *chosen* records with their *downstream* offsets."""
        incarnations, upstream = self.incarnations[chosen], self.upstream[chosen]
        runs = {
            name: encode_runs(upstream[incarnations == i], downstream[incarnations == i])
            for i, name in enumerate(self.names)
        }
        return {name: own for name, own in runs.items() if own}


def _match_fingerprints(
    staged: Iterable[StagedFingerprint], known: FingerprintArray
) -> _MatchedStage:
    """Return the *staged* records whose fingerprints are among the sorted *known* ones."""
    columns: list[Offsets] = [np.empty((4, 0), np.int64)]
    codes: dict[str, int] = {}
    missed: tuple[int, UpstreamPosition] | None = None
    count = start = end = 0
    rest = iter(staged)
    while batch := list(islice(rest, BATCH_SIZE)):
        names, offsets, said = zip(*batch, strict=True)
        start, end = start if count else offsets[0], offsets[-1] + 1
        group = fingerprint_indexes(np.array(said, "S16"), known)
        is_found = group >= 0
        gone = np.flatnonzero(~is_found)
        if len(gone):
            last = int(gone[-1])
            missed = (count + last, (names[last], offsets[last]))
        of_incarnation = [codes.setdefault(name, len(codes)) for name in names]
        numbers = np.arange(count, count + len(batch))
        columns.append(np.array([numbers, of_incarnation, offsets, group], np.int64)[:, is_found])
        count += len(batch)
    numbers, incarnations, upstream, groups = np.concatenate(columns, axis=1)
    return _MatchedStage(
        numbers, incarnations, upstream, groups, list(codes), missed, start, end, count
    )


def fingerprint_indexes(fingerprints: FingerprintArray, known: FingerprintArray) -> Offsets:
    """Return the index of each of *fingerprints* in the sorted *known* ones; -1: not known."""
    if not len(known):
        return np.full(len(fingerprints), -1, np.int64)
    at = np.minimum(np.searchsorted(known, fingerprints), len(known) - 1)
    found: Offsets = np.where(known[at] == fingerprints, at, -1)
    return found


def pair_last_copies(ours: Offsets, theirs: Offsets, kinds: int) -> Offsets:
    """Return the pairs of rows that result if the last equal records of each side are paired.

    Both sides hold a record's kind, below *kinds*; -1: only on this side. Retention removes the
    first of several equal records, and duplicates follow their originals.
    """
    here = np.flatnonzero(ours >= 0)
    in_stage = np.bincount(ours[here], minlength=kinds)
    on_target = np.bincount(theirs, minlength=kinds)
    rows = _last_of_each(here, ours[here], in_stage, on_target)
    target_rows = _last_of_each(np.arange(len(theirs)), theirs, on_target, in_stage)
    order = np.argsort(target_rows)
    return np.array([rows[order], target_rows[order]])


def _last_of_each(rows: Offsets, kinds: Offsets, count: Offsets, wanted: Offsets) -> Offsets:
    """Return the last *wanted* rows of each kind, sorted by kind; *count* is the number of each."""
    order = np.argsort(kinds, kind="stable")
    sorted_kinds = kinds[order]
    from_end = np.cumsum(count)[sorted_kinds] - np.arange(len(order))
    chosen: Offsets = rows[order[from_end <= wanted[sorted_kinds]]]
    return chosen
