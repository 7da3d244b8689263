"""Retention: select the staged files that have expired."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from schemas.kafka.partition import SourcePartition
from schemas.staging.segment import Segment


class SlotFileInfo(Protocol):
    """A staged file, as retention needs it."""

    @property
    def slot(self) -> int: ...
    @property
    def sequence(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...


File = TypeVar("File", bound=SlotFileInfo)


def select_expired(
    files: Sequence[File],
    segments: Sequence[Segment],
    is_replayed: Callable[[Segment], bool],
    *,
    before_ms: int | None,
    max_bytes: int | None,
) -> tuple[list[File], dict[SourcePartition, int]]:
    """Return the expired files, oldest first, and each partition's first offset after them.

    A file is free if every segment in it is replayed and every earlier file of its slot is free.
    As Kafka deletes a log's segments, a free file expires if it was staged before *before_ms* (ms
    since 1970), or while all files together are larger than *max_bytes*. None: no such bound.
    """
    total = sum(file.size_bytes for file in files)
    gone: list[File] = []
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
    files: Sequence[File], segments: Sequence[Segment], is_replayed: Callable[[Segment], bool]
) -> Iterator[tuple[int, File, list[Segment]]]:
    """Yield the time of staging (ms since 1970), the file and its segments, for each free file."""
    by_slot: dict[int, list[Segment]] = {}
    for segment in segments:
        if segment.count:
            by_slot.setdefault(segment.source.slot, []).append(segment)
    for slot in sorted({file.slot for file in files}):
        after, staged_at_ms = -1, 0
        for file in sorted((f for f in files if f.slot == slot), key=lambda f: f.sequence):
            held = [s for s in by_slot.get(slot, []) if after < s.sequence <= file.sequence]
            # A file without a segment was just committed; its segments are not committed yet.
            if not held or not all(map(is_replayed, held)):
                break
            # Not older than the file before it, even if the clock was set back: the order of
            # expiry must follow the order of the files.
            staged_at_ms = max(staged_at_ms, *(segment.staged_at_ms for segment in held))
            yield staged_at_ms, file, held
            after = file.sequence
