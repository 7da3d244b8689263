"""A Parquet file that a task wrote and the driver has not committed yet."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StagedFile:
    """What Delta needs to know to add a file: its path in the table, size and statistics."""

    path: str
    size_bytes: int
    slot: int
    stats_json: str
    modified_ms: int
