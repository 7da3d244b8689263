"""Pairing staged records with a target's, where the map of their offsets was lost.

Replay keeps order, so staged records appear on the target in order, with other producers' records
between them at most. Only content can tell which is which.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import xxhash

from schemas.errors import MapAmbiguousError, MapUnpairedError
from schemas.topic_partition import TopicPartition

Fingerprint = bytes


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


def pair(
    partition: TopicPartition,
    staged: Sequence[tuple[int, Fingerprint]],
    target: Sequence[tuple[int, Fingerprint]],
) -> list[tuple[int, int]]:
    """Return (upstream, downstream) offsets for every staged record.

    *staged* and *target* are offsets and fingerprints, both in order. Raises MapUnpairedError
    where not all are found, MapAmbiguousError where they fit in more than one way.
    """
    first = _match(staged, target)
    if len(first) < len(staged):
        raise MapUnpairedError(
            partition,
            start=staged[0][0],
            end=staged[-1][0] + 1,
            found=len(first),
            wanted=len(staged),
        )
    last = _match(staged[::-1], target[::-1])[::-1]
    for earliest, latest in zip(first, last, strict=True):
        if earliest != latest:
            raise MapAmbiguousError(partition, earliest[1])
    return first


def prefix_found(
    staged: Sequence[tuple[int, Fingerprint]], target: Sequence[tuple[int, Fingerprint]]
) -> int:
    """Return how many of the first *staged* records are on the target, in order."""
    return len(_match(staged, target))


def _match(
    staged: Sequence[tuple[int, Fingerprint]], target: Sequence[tuple[int, Fingerprint]]
) -> list[tuple[int, int]]:
    """Return pairs as early as possible in *target*, up to the first record not found."""
    pairs, rest = [], iter(target)
    for upstream, wanted in staged:
        downstream = next((offset for offset, found in rest if found == wanted), None)
        if downstream is None:
            break
        pairs.append((upstream, downstream))
    return pairs
