"""Which files of the staged log may hold what offsets, from the table's own statistics."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote

import numpy as np

from resources.delta.records_table import RecordsTable

_ANY_OFFSET = np.iinfo(np.int64)


@dataclass(frozen=True)
class FileIndex:
    """The live files of a snapshot, in order of slot and sequence, with their offsets' bounds.

    A file without statistics, which somebody else wrote, may hold anything.
    """

    paths: list[str]
    slots: np.ndarray[tuple[int], np.dtype[np.int64]]
    lows: np.ndarray[tuple[int], np.dtype[np.int64]]
    highs: np.ndarray[tuple[int], np.dtype[np.int64]]

    @classmethod
    def from_table(cls, records: RecordsTable) -> FileIndex:
        """Return the files of the snapshot that *records* saw last."""
        actions = records.delta.get_add_actions(flatten=True)
        names = actions.schema.names
        bounds: dict[str, tuple[int, int]] = {}
        for i, path in enumerate(actions.column("path").to_pylist()):
            low, high = (
                actions.column(name)[i].as_py() if name in names else None
                for name in ("min.offset", "max.offset")
            )
            bounds[unquote(path)] = (
                _ANY_OFFSET.min if low is None else low,
                _ANY_OFFSET.max if high is None else high,
            )
        files = records.files()
        return cls(
            [file.path for file in files],
            np.array([file.slot for file in files], np.int64),
            np.array([bounds[file.path][0] for file in files], np.int64),
            np.array([bounds[file.path][1] for file in files], np.int64),
        )

    def files_for(self, slot: int, start: int, end: int) -> tuple[str, ...]:
        """Return the files of *slot* that may hold an offset of `[start, end)`, in order."""
        found = np.flatnonzero((self.slots == slot) & (self.lows < end) & (self.highs >= start))
        return tuple(self.paths[i] for i in found)
