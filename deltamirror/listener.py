"""Who hears what the loops move."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from schemas.config.flow import Flow
from schemas.errors import DeltamirrorError
from schemas.replay.slot_work import Move
from schemas.staging.segment import Segment


class Reporter(Protocol):
    """Hears what moved; called from the loops' threads, and never lets an error out."""

    def staged(self, alias: str, segments: Sequence[Segment]) -> None:
        """Hear that *segments* of source cluster *alias* were committed."""

    def replayed(self, flow: Flow, moves: Sequence[Move]) -> None:
        """Hear that *moves* of *flow* were committed on its target."""

    def troubled(self, duty: str, error: DeltamirrorError) -> None:
        """Hear that *duty*'s tick failed; it tries again."""


class Silent:
    """A reporter that says nothing."""

    def staged(self, alias: str, segments: Sequence[Segment]) -> None:
        """Say nothing."""

    def replayed(self, flow: Flow, moves: Sequence[Move]) -> None:
        """Say nothing."""

    def troubled(self, duty: str, error: DeltamirrorError) -> None:
        """Say nothing."""
