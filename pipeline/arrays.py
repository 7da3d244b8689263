"""Array types that several modules of `pipeline` use."""

from __future__ import annotations

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
