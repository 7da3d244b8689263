"""Pair staged records with the target's records after their offset map was lost.

Replay keeps the order, so staged records are on the target in order; only other producers' records
can lie between them. Records are recognized by their content. One pass over both sides is enough,
and only the runs are kept in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import xxhash

from schemas.errors.target import MapAmbiguousError, MapUnpairedError
from schemas.kafka.partition import TopicPartition
from schemas.offset_map import OffsetRun

Fingerprint = bytes

OffsetFingerprint = tuple[int, Fingerprint]
"""A record's offset and the fingerprint of its content."""

StagedFingerprint = tuple[str, int, Fingerprint]
"""A staged record's incarnation, upstream offset and fingerprint."""

UpstreamPosition = tuple[str, int]
"""An incarnation of a partition and an upstream offset in it."""


@dataclass(frozen=True, slots=True)
class PairedRuns:
    """The paired runs by incarnation. From *complete_from* on (None: all) no record is missing."""

    runs: dict[str, list[OffsetRun]]
    complete_from: UpstreamPosition | None = None


def fingerprints(batch: pa.RecordBatch) -> list[Fingerprint]:
    """Return a 16-byte digest of each record's timestamp, key, value and headers."""
    names = ("timestamp_ms", "key", "value", "headers", "raw_header_keys")
    columns = [batch.column(n).to_pylist() for n in names]
    return [_fingerprint(*row) for row in zip(*columns, strict=True)]


def _fingerprint(
    timestamp: int | None,
    key: bytes | None,
    value: bytes | None,
    headers: list[dict[str, object]] | None,
    raw_header_keys: list[bytes] | None,
) -> Fingerprint:
    pairs = [(h["key"], h["value"]) for h in headers or []]
    head = (timestamp, None if key is None else len(key), None if value is None else len(value))
    state = xxhash.xxh3_128(repr((head, pairs, raw_header_keys)).encode())
    state.update(key or b"")
    state.update(value or b"")
    return state.digest()


class Pairing:
    """One pass over *staged* records and the target's records, which `take` adds.

    Each staged record is paired with the first equal target record after the previous pair. The
    pairing is ambiguous if a record between two pairs, or after the last pair, equals the pair
    before it.
    """

    def __init__(self, partition: TopicPartition, staged: Iterator[StagedFingerprint]) -> None:
        self._partition, self._staged = partition, staged
        self._next = next(staged, None)
        self._first = self._next
        self._last: OffsetFingerprint | None = None
        self._ambiguous: int | None = None
        self._runs: dict[str, list[OffsetRun]] = {}
        self._open = ("", 0, 0, 0)
        self._found = 0

    @property
    def is_empty(self) -> bool:
        """Return whether nothing is staged."""
        return self._first is None

    def take(self, records: Iterable[OffsetFingerprint]) -> None:
        """Pair staged records with *records*, the next ones of the target's log."""
        for downstream, fingerprint in records:
            if self._next is not None and self._next[2] == fingerprint:
                self._add(self._next[0], self._next[1], downstream)
                self._last = (downstream, fingerprint)
                self._next = next(self._staged, None)
            elif self._ambiguous is None and self._last and self._last[1] == fingerprint:
                self._ambiguous = self._last[0]

    def all_pairs(self) -> PairedRuns:
        """Return the pairs of all staged records. Raises MapUnpairedError, MapAmbiguousError."""
        if self._next is not None and self._first is not None:
            start, end, missing = self._first[1], self._next[1] + 1, 1
            for _, offset, _ in self._staged:
                end, missing = offset + 1, missing + 1
            wanted = self._found + missing
            raise MapUnpairedError(
                self._partition, start=start, end=end, found=self._found, wanted=wanted
            )
        return self.leading_pairs()

    def leading_pairs(self) -> PairedRuns:
        """Return the pairs found, also if later records have none. Raises MapAmbiguousError."""
        if self._ambiguous is not None:
            raise MapAmbiguousError(self._partition, offset=self._ambiguous)
        self._close()
        return PairedRuns(self._runs)

    def _add(self, incarnation: str, upstream: int, downstream: int) -> None:
        run_incarnation, up, down, length = self._open
        if (incarnation, upstream, downstream) == (run_incarnation, up + length, down + length):
            self._open = (incarnation, up, down, length + 1)
        else:
            self._close()
            self._open = (incarnation, upstream, downstream, 1)
        self._found += 1

    def _close(self) -> None:
        incarnation, up, down, length = self._open
        if length:
            self._runs.setdefault(incarnation, []).append(OffsetRun(up, down, length))
        self._open = ("", 0, 0, 0)
