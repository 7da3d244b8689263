"""Which staged files are not kept any longer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from schemas.kafka.partition import SourcePartition
from schemas.staging.segment import Segment


class SlotFileInfo(Protocol):
    """What is asked of a staged file."""

    @property
    def slot(self) -> int:
        """Return the slot that it belongs to."""

    @property
    def sequence(self) -> int:
        """Return its place in the slot."""

    @property
    def size_bytes(self) -> int:
        """Return its size on disk."""


File = TypeVar("File", bound=SlotFileInfo)


@dataclass(frozen=True)
class ExpiredFiles(Generic[File]):
    """Files to remove, and the first offset that is left of each partition in them."""

    files: tuple[File, ...] = ()
    kept: Mapping[SourcePartition, int] = field(default_factory=dict)


def select_expired(
    files: Sequence[File],
    segments: Sequence[Segment],
    is_replayed: Callable[[Segment], bool],
    *,
    before_ms: int | None,
    max_bytes: int | None,
) -> ExpiredFiles[File]:
    """Return the files whose time is over, oldest first, as Kafka removes a log's segments.

    A file is free when every segment in it is replayed and everything before it in its slot is
    free too. Of the free ones those go that were staged before *before_ms* (ms since 1970), and
    then as many as it takes for the rest to have *max_bytes*. None: no such bound.
    """
    total = sum(file.size_bytes for file in files)
    gone: list[File] = []
    kept: dict[SourcePartition, int] = {}
    for staged_at_ms, file, held in sorted(_free_files(files, segments, is_replayed), key=_age):
        is_old = before_ms is not None and staged_at_ms < before_ms
        is_too_much = max_bytes is not None and total > max_bytes
        if not (is_old or is_too_much):
            continue
        gone.append(file)
        total -= file.size_bytes
        for segment in held:
            kept[segment.source] = max(segment.end, kept.get(segment.source, 0))
    return ExpiredFiles(tuple(gone), kept)


def _age(free: tuple[int, SlotFileInfo, Sequence[Segment]]) -> tuple[int, int]:
    return free[0], free[1].sequence


def _free_files(
    files: Sequence[File], segments: Sequence[Segment], is_replayed: Callable[[Segment], bool]
) -> Iterator[tuple[int, File, list[Segment]]]:
    """Yield when each free file was staged, the file, and its segments."""
    by_slot: dict[int, list[Segment]] = {}
    for segment in segments:
        if segment.count:
            by_slot.setdefault(segment.source.slot, []).append(segment)
    for slot in sorted({file.slot for file in files}):
        after, staged_at_ms = -1, 0
        for file in sorted((f for f in files if f.slot == slot), key=lambda f: f.sequence):
            held = [s for s in by_slot.get(slot, []) if after < s.sequence <= file.sequence]
            # A file that no segment speaks of was committed a moment ago and is not sealed yet.
            if not held or not all(map(is_replayed, held)):
                break
            # Never younger than the one before it, whatever the clock did: the oldest go first.
            staged_at_ms = max(staged_at_ms, *(segment.staged_at_ms for segment in held))
            yield staged_at_ms, file, held
            after = file.sequence
