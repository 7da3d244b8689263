"""Array types, and groups of rows, that several modules use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Offsets = npt.NDArray[np.int64]
Indexes = npt.NDArray[np.int64]
FingerprintArray = npt.NDArray[np.bytes_]
NO_OFFSETS: Offsets = np.empty(0, np.int64)


def offsets_of(rows: pa.RecordBatch) -> Offsets:
    """Return the offsets of *rows* without copying them."""
    offsets: Offsets = rows.column("offset").to_numpy()
    return offsets


def group_rows(rows: pa.Table, names: Sequence[str]) -> Iterator[tuple[tuple[Any, ...], pa.Table]]:
    """Yield each key with its rows, in their order. Rows of one key must be adjacent."""
    if not rows.num_rows:
        return
    rows = rows.combine_chunks()
    codes = [rows[n].combine_chunks().dictionary_encode().indices.to_numpy() for n in names]
    edges = np.flatnonzero(np.any([c[1:] != c[:-1] for c in codes], axis=0)) + 1
    for start, end in pairwise([0, *edges.tolist(), rows.num_rows]):
        yield tuple(rows[n][start].as_py() for n in names), rows.slice(start, end - start)
