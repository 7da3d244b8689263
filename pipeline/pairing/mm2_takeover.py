"""Pair MirrorMaker 2's records on the target with staged records, to continue its replication.

    staged     10 11 12 13 14       MirrorMaker 2 committed that it copied up to 11
    target      x 11 12 11 12 13    -> 13 was copied too: replay resumes at 14,
                                       runs (11, 3, 3); 10 is not on the target

MirrorMaker 2 copies in order and at least once (KIP-382), so a range of records can be on the
target twice after a crash. The first records may be missing, and records of aborted transactions
may lie between. Its offset syncs are exact: the last sync is a pair that is known without doubt.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pipeline.arrays import FingerprintArray, Offsets
from pipeline.offset_map.encode import encode_runs
from pipeline.pairing.pair import OffsetFingerprint
from pipeline.pairing.pair_remains import fingerprint_indexes, pair_last_copies
from schemas.errors.target import MapAmbiguousError
from schemas.kafka.partition import TopicPartition
from schemas.offset_map import OffsetRun


class LogFingerprints(NamedTuple):
    """One partition's records on one side: increasing *offsets*, and each record's fingerprint."""

    offsets: Offsets
    fingerprints: FingerprintArray

    @classmethod
    def of(cls, records: Iterable[OffsetFingerprint]) -> LogFingerprints:
        """Return *records*, in order, as columns."""
        rows = list(records)
        return cls(
            np.array([offset for offset, _ in rows], np.int64),
            np.array([fingerprint for _, fingerprint in rows], "S16"),
        )


@dataclass(frozen=True, slots=True)
class ImportResult:
    """The result of pairing: replay resumes at *next_offset*; *runs* are the pairs before it.

    *missing* is the number of staged records before *next_offset* that are not on the target. All
    from *complete_from* on are there; None: all. *others* is the number of records on the target
    without a pair: duplicates and records of aborted transactions.

    Staged records from *next_offset* to *doubtful_until* equal records on the target. Pairing
    cannot decide whether they were copied already, so they are sent. None: no such records.
    """

    next_offset: int
    runs: tuple[OffsetRun, ...]
    missing: int
    complete_from: int | None
    others: int
    doubtful_until: int | None


def pair_mm2_log(
    partition: TopicPartition,
    staged: LogFingerprints,
    target: LogFingerprints,
    copied: int,
    sync: tuple[int, int] | None,
) -> ImportResult:
    """Return where replay of *partition* resumes, and the pairs of the records before.

    *copied* is the next upstream offset that MirrorMaker 2 committed for its own reading. *sync* is
    its last offset sync (upstream, downstream). *staged* reaches *copied* at least. Raises
    MapAmbiguousError if the pairs are not in the same order on both sides.
    """
    known, theirs = np.unique(target.fingerprints, return_inverse=True)
    ours = fingerprint_indexes(staged.fingerprints, known)
    here, there = _sync_rows(staged, target, ours, theirs, sync) or _last_copied_rows(
        staged, ours, theirs, copied
    )
    tail = _pair_tail(ours, theirs, here, there)
    head = pair_last_copies(ours[: here + 1], theirs[: there + 1], len(known))
    rows, target_rows = np.concatenate([head, tail], axis=1)
    falls = np.flatnonzero(np.diff(rows) <= 0)
    if len(falls):
        raise MapAmbiguousError(partition, offset=int(target.offsets[target_rows[falls[0] + 1]]))
    upstream, downstream = staged.offsets[rows], target.offsets[target_rows]
    next_offset = max(copied, int(upstream[-1]) + 1 if len(rows) else 0)
    after = int(np.searchsorted(staged.offsets, next_offset))
    left = np.setdiff1d(np.arange(after), rows, assume_unique=True)
    return ImportResult(
        next_offset,
        tuple(encode_runs(upstream, downstream)),
        missing=len(left),
        complete_from=int(staged.offsets[left[-1]]) + 1 if len(left) else None,
        others=len(theirs) - len(target_rows),
        doubtful_until=_doubtful_end(staged, ours, after),
    )


def _doubtful_end(staged: LogFingerprints, ours: Offsets, after: int) -> int | None:
    """Return the offset after the leading rows, from row *after* on, that equal target records."""
    unknown = np.flatnonzero(ours[after:] < 0)
    count = int(unknown[0]) if len(unknown) else len(ours) - after
    return int(staged.offsets[after + count - 1]) + 1 if count else None


def _sync_rows(
    staged: LogFingerprints,
    target: LogFingerprints,
    ours: Offsets,
    theirs: Offsets,
    sync: tuple[int, int] | None,
) -> tuple[int, int] | None:
    """Return the rows of the pair in *sync*; None if a record is missing or the two differ."""
    if sync is None:
        return None
    here = int(np.searchsorted(staged.offsets, sync[0]))
    there = int(np.searchsorted(target.offsets, sync[1]))
    is_there = here < len(ours) and there < len(theirs)
    if not is_there or (staged.offsets[here], target.offsets[there]) != sync:
        return None
    return (here, there) if ours[here] == theirs[there] else None


def _last_copied_rows(
    staged: LogFingerprints, ours: Offsets, theirs: Offsets, copied: int
) -> tuple[int, int]:
    """Return the rows of the last record below *copied* that is on the target, -1 without one."""
    noted = np.flatnonzero((ours >= 0) & (staged.offsets < copied))
    if not len(noted):
        return -1, -1
    here = int(noted[-1])
    return here, int(np.flatnonzero(theirs == ours[here])[-1])


def _pair_tail(ours: Offsets, theirs: Offsets, here: int, there: int) -> Offsets:
    """Return the pairs of rows after (*here*, *there*), in order, without gaps in *ours*."""
    # A single run of MirrorMaker 2 wrote these records, so they have no duplicates.
    pairs: list[tuple[int, int]] = []
    if here >= 0:
        for target_row in range(there + 1, len(theirs)):
            here += 1
            if here == len(ours):
                break
            if theirs[target_row] == ours[here]:
                pairs.append((here, target_row))
            else:
                here -= 1
    return np.array(pairs, np.int64).reshape(-1, 2).T
