"""What moved records weigh."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.spread import NOTHING, Spread


@dataclass(frozen=True, slots=True)
class Load:
    """The bytes of some records' values, and how their timestamps (ms since 1970) spread.

    Keys and headers do not count, as in MirrorMaker 2's `byte-count`. Records without a timestamp
    are left out of *stamps*.
    """

    value_bytes: int = 0
    stamps: Spread = NOTHING

    def __add__(self, later: Load) -> Load:
        """Return the load of these records and *later* ones together."""
        return Load(self.value_bytes + later.value_bytes, self.stamps + later.stamps)
