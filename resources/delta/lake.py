"""Paths of the lake's tables.

clusters/<alias>/records | segments | group_offsets
flows/<source>__<target>/offset_map | checkpoints | lag | verification
replays, control, replay_maps/<id>/offset_map, leases/, audits/
"""

from __future__ import annotations

from pathlib import Path

from resources.delta.records_table import RecordsTable
from resources.delta.segments_table import SegmentsTable
from resources.delta.table import LakeTable
from schemas.config.flow import Flow
from schemas.errors.lake import LakeError
from schemas.tables import CONTROL, OFFSET_MAP, RECORDS, REPLAYS, SEGMENTS, Table


class DeltaLake:
    """The folder of all tables. It is created with mode 0700, because it holds every payload."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)

    def ensure_exists(self) -> None:
        """Create the folder if it is missing. Raises LakeError if that fails."""
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise LakeError(f"{self.root} cannot be created: {error.strerror}") from error

    def records(self, alias: str) -> RecordsTable:
        """Return the staged log of source cluster *alias*."""
        return RecordsTable(self.root / "clusters" / alias / "records")

    def segments(self, alias: str) -> SegmentsTable:
        """Return the segments of source cluster *alias*."""
        folder = self.root / "clusters" / alias
        return SegmentsTable(folder / SEGMENTS.name, folder / RECORDS.name)

    def cluster_table(self, alias: str, table: Table) -> LakeTable:
        """Return a table of source cluster *alias*."""
        return LakeTable(self.root / "clusters" / alias / table.name, table)

    def flow_table(self, flow: Flow, table: Table) -> LakeTable:
        """Return a table of *flow*."""
        return LakeTable(self.root / "flows" / flow.key / table.name, table)

    def offset_map(self, flow: Flow, replay_id: str | None = None) -> LakeTable:
        """Return the offset map of *flow*, or of one of its point-in-time replays."""
        if replay_id is None:
            return self.flow_table(flow, OFFSET_MAP)
        return LakeTable(self.root / "replay_maps" / replay_id / OFFSET_MAP.name, OFFSET_MAP)

    @property
    def control(self) -> LakeTable:
        """Return the table of operator requests."""
        return LakeTable(self.root / CONTROL.name, CONTROL)

    @property
    def replays(self) -> LakeTable:
        """Return the table of point-in-time replays."""
        return LakeTable(self.root / REPLAYS.name, REPLAYS)
