"""Find the files of the staged log that may hold an offset range, from Delta's file statistics."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote

import numpy as np

from resources.delta.records_table import RecordsTable

_ANY_OFFSET = np.iinfo(np.int64)


@dataclass(frozen=True)
class FileIndex:
    """The live files of a snapshot, ordered by slot and sequence, with their offset bounds.

    *lows* and *highs* are inclusive. A file without statistics was written by another program;
    it may hold any offset.
    """

    paths: list[str]
    slots: np.ndarray[tuple[int], np.dtype[np.int64]]
    lows: np.ndarray[tuple[int], np.dtype[np.int64]]
    highs: np.ndarray[tuple[int], np.dtype[np.int64]]

    @classmethod
    def from_table(cls, records: RecordsTable) -> FileIndex:
        """Return the index of the snapshot that *records* read last."""
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
