"""How far a planned range was read."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.errors import PartitionError
from schemas.offset_range import OffsetRange


@dataclass(frozen=True, slots=True)
class Reached:
    """*range* was read up to *end*, and proven so; *error* says why not to its planned end.

    No error and an earlier end: it was cut at a record boundary to bound memory.
    """

    range: OffsetRange
    end: int
    error: PartitionError | None = None
