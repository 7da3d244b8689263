"""Find the files of the staged log that may hold an offset range, from Delta's file statistics."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote

import numpy as np

from resources.delta.records_table import RecordsTable

_ANY_OFFSET = np.iinfo(np.int64)


@dataclass(frozen=True)
class FileIndex:
    """The live files of a snapshot in order of sequence, with their slots and offset bounds.

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
        written = [unquote(path) for path in actions.column("path").to_pylist()]
        files = records.files()

        def bounds(name: str, unknown: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
            if name not in actions.schema.names:
                return np.full(len(files), unknown, np.int64)
            found = dict(zip(written, actions.column(name).to_pylist(), strict=True))
            known = (found[file.path] for file in files)
            return np.array([unknown if at is None else at for at in known], np.int64)

        return cls(
            [file.path for file in files],
            np.array([file.slots for file in files], np.int64),
            bounds("min.offset", _ANY_OFFSET.min),
            bounds("max.offset", _ANY_OFFSET.max),
        )

    def files_for(self, slot: int, start: int, end: int) -> tuple[str, ...]:
        """Return the files of *slot* that may hold an offset of `[start, end)`, in order."""
        is_of_slot = (self.slots >> slot & 1).astype(bool)
        found = np.flatnonzero(is_of_slot & (self.lows < end) & (self.highs >= start))
        return tuple(self.paths[i] for i in found)
