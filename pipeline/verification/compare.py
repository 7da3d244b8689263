"""Compare two sides of a mirror: match records by offset, and compare their contents as columns.

Both sides come in batches with increasing offsets and are read once, so memory holds one batch of
each. Single records are compared only if the columns of two windows differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.arrays import NO_OFFSETS, Indexes, Offsets, offsets_of

Mask = npt.NDArray[np.bool_]

SCALAR_COLUMNS = ("timestamp_ms", "key", "value")
HEADER_COLUMNS = ("headers", "raw_header_keys")
CONTENT_COLUMNS = (*SCALAR_COLUMNS, *HEADER_COLUMNS)


class RecordStream:
    """One side's records in order of offset, read on demand."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._held: pa.RecordBatch | None = None

    def until(self, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the records below offset *end* that were not yielded yet, in batches."""
        while (rows := self._next()) is not None:
            inside = int(np.searchsorted(offsets_of(rows), end))
            self._held = rows.slice(inside) if inside < rows.num_rows else None
            if inside:
                yield rows.slice(0, inside)
            if self._held is not None:
                return

    def _next(self) -> pa.RecordBatch | None:
        while self._held is None:
            rows = next(self._batches, None)
            if rows is None:
                return None
            self._held = rows if rows.num_rows else None
        return self._held


@dataclass(frozen=True)
class WindowDiff:
    """Differences between two windows, as row numbers.

    *missing* rows of the first window and *extra* rows of the second have no counterpart. *altered*
    are pairs of rows at the same offset with different contents.
    """

    missing: Indexes
    extra: Indexes
    altered: tuple[Indexes, Indexes]


NO_DIFFERENCE = WindowDiff(NO_OFFSETS, NO_OFFSETS, (NO_OFFSETS, NO_OFFSETS))


def align_windows(
    rows: pa.RecordBatch, positions: Offsets, stream: RecordStream
) -> Iterator[tuple[pa.RecordBatch, Offsets, pa.RecordBatch | None]]:
    """Yield slices of *rows* and *positions*, each with the records of *stream* in the same range.

    *positions* are the increasing offsets at which the rows should be in *stream*. The records are
    None if *stream* has no more of them up to the last position.
    """
    done = 0
    for other in stream.until(int(positions[-1]) + 1):
        until = int(np.searchsorted(positions, int(offsets_of(other)[-1]), side="right"))
        yield rows.slice(done, until - done), positions[done:until], other
        done = until
    if done < len(positions):
        yield rows.slice(done), positions[done:], None


def diff_windows(
    rows: pa.RecordBatch, positions: Offsets, other: pa.RecordBatch | None
) -> WindowDiff:
    """Return the differences between *rows*, which should be at *positions*, and *other*."""
    if other is None:
        return replace(NO_DIFFERENCE, missing=np.arange(rows.num_rows))
    found = offsets_of(other)
    if len(positions) == len(found) and bool((positions == found).all()) and is_same(rows, other):
        return NO_DIFFERENCE
    at = np.searchsorted(found, positions)
    hits = at < len(found)
    hits[hits] = found[at[hits]] == positions[hits]
    here, there = np.flatnonzero(hits), at[hits]
    different = diff_fields(rows.take(pa.array(here)), other.take(pa.array(there)))
    extra = np.ones(len(found), np.bool_)
    extra[there] = False
    return WindowDiff(
        np.flatnonzero(~hits), np.flatnonzero(extra), (here[different], there[different])
    )


def is_same(one: pa.RecordBatch, other: pa.RecordBatch) -> bool:
    """Return whether timestamps, keys, values and headers are equal, row by row."""
    return all(_column(one, name, other).equals(other.column(name)) for name in CONTENT_COLUMNS)


def diff_fields(one: pa.RecordBatch, other: pa.RecordBatch) -> Mask:
    """Return for each row whether timestamp, key, value or headers differ; null is not empty.

    Null headers equal an empty list, because Kafka's record format encodes both as zero headers.
    """
    different = np.zeros(one.num_rows, np.bool_)
    for name in SCALAR_COLUMNS:
        mine, theirs = _column(one, name, other), other.column(name)
        if not mine.equals(theirs):
            equal = pc.equal(mine, theirs).fill_null(False)
            both_null = pc.and_(pc.is_null(mine), pc.is_null(theirs))
            different |= ~pc.or_(equal, both_null).to_numpy(zero_copy_only=False)
    for name in HEADER_COLUMNS:
        mine, theirs = _column(one, name, other), other.column(name)
        if not mine.equals(theirs):
            pairs = zip(mine.to_pylist(), theirs.to_pylist(), strict=True)
            different |= np.array([(a or []) != (b or []) for a, b in pairs], np.bool_)
    return different


def _column(one: pa.RecordBatch, name: str, other: pa.RecordBatch) -> pa.Array:
    """Return a column of *one*, cast to its type in *other*, because file writers' types differ."""
    column, wanted = one.column(name), other.column(name).type
    return column if column.type == wanted else column.cast(wanted)
