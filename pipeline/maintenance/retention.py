"""Retention: select the staged files that have expired."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from schemas.kafka.partition import SLOT_COUNT, SourcePartition
from schemas.staging.segment import RecordsFile, Segment


def select_expired(
    files: Sequence[RecordsFile],
    segments: Sequence[Segment],
    is_replayed: Callable[[Segment], bool],
    *,
    before_ms: int | None,
    max_bytes: int | None,
) -> tuple[list[RecordsFile], dict[SourcePartition, int]]:
    """Return the expired files, oldest first, and each partition's first offset after them.

    A file is free if every segment in it is replayed and every earlier file of its slots is free.
    As Kafka deletes a log's segments, a free file expires if it was staged before *before_ms* (ms
    since 1970), or while all files together are larger than *max_bytes*. None: no such bound.
    """
    total = sum(file.size_bytes for file in files)
    gone: list[RecordsFile] = []
    kept: dict[SourcePartition, int] = {}
    free_files = _free_files(files, segments, is_replayed)
    for staged_at_ms, file, held in sorted(
        free_files, key=lambda free: (free[0], free[1].sequence)
    ):
        is_old = before_ms is not None and staged_at_ms < before_ms
        is_too_much = max_bytes is not None and total > max_bytes
        if not (is_old or is_too_much):
            continue
        gone.append(file)
        total -= file.size_bytes
        for segment in held:
            kept[segment.source] = max(segment.end, kept.get(segment.source, 0))
    return gone, kept


def _free_files(
    files: Sequence[RecordsFile],
    segments: Sequence[Segment],
    is_replayed: Callable[[Segment], bool],
) -> Iterator[tuple[int, RecordsFile, list[Segment]]]:
    """Yield the time of staging (ms since 1970), the file and its segments, for each free file."""
    by_slot: dict[int, list[Segment]] = {slot: [] for slot in range(SLOT_COUNT)}
    for segment in segments:
        if segment.count:
            by_slot[segment.source.slot].append(segment)
    after, staged_at_ms = dict.fromkeys(by_slot, -1), dict.fromkeys(by_slot, 0)
    blocked: set[int] = set()
    for file in sorted(files, key=lambda f: f.sequence):
        slots = [slot for slot in by_slot if file.has_slot(slot)]
        held = [s for i in slots for s in by_slot[i] if after[i] < s.sequence <= file.sequence]
        # A file without a segment was just committed; its segments are not committed yet.
        if not held or not blocked.isdisjoint(slots) or not all(map(is_replayed, held)):
            blocked.update(slots)
            continue
        # Not older than earlier files of its slots, even if the clock was set back: the order of
        # expiry must follow the order of the files.
        newest = max([segment.staged_at_ms for segment in held] + [staged_at_ms[i] for i in slots])
        staged_at_ms.update(dict.fromkeys(slots, newest))
        after.update(dict.fromkeys(slots, file.sequence))
        yield newest, file, held
