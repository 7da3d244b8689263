"""Who hears what the loops move."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Protocol

from schemas.config.flow import Flow
from schemas.errors import DeltamirrorError
from schemas.replay.slot_work import CommittedBatch
from schemas.staging.segment import Segment


class Listener(Protocol):
    """Hears what moved; called from the loops' threads, and never lets an error out."""

    def staged(self, alias: str, segments: Sequence[Segment]) -> None:
        """Hear that *segments* of source cluster *alias* were committed."""

    def replayed(self, flow: Flow, moves: Sequence[CommittedBatch]) -> None:
        """Hear that *moves* of *flow* were committed on its target."""

    def tick_failed(self, role: str, error: DeltamirrorError) -> None:
        """Hear that *role*'s tick failed; it tries again."""


class NullListener:
    """A reporter that says nothing."""

    def staged(self, alias: str, segments: Sequence[Segment]) -> None:
        """Say nothing."""

    def replayed(self, flow: Flow, moves: Sequence[CommittedBatch]) -> None:
        """Say nothing."""

    def tick_failed(self, role: str, error: DeltamirrorError) -> None:
        """Say nothing."""


class CompositeListener:
    """Several reporters as one."""

    def __init__(self, *reporters: Listener) -> None:
        self._listeners = reporters

    def staged(self, alias: str, segments: Sequence[Segment]) -> None:
        """Tell both that *segments* of source cluster *alias* were committed."""
        for each in self._listeners:
            each.staged(alias, segments)

    def replayed(self, flow: Flow, moves: Sequence[CommittedBatch]) -> None:
        """Tell both that *moves* of *flow* were committed."""
        for each in self._listeners:
            each.replayed(flow, moves)

    def tick_failed(self, role: str, error: DeltamirrorError) -> None:
        """Tell both that *role*'s tick failed."""
        for each in self._listeners:
            each.tick_failed(role, error)


def installed_listeners() -> list[Listener]:
    """Return a listener of each installed package that offers one and has something to report to.

    A package offers a function without arguments, under the entry point group
    `deltamirror.listeners`. It returns None if there is nothing to report to.
    """
    offered = [point.load()() for point in entry_points(group="deltamirror.listeners")]
    return [listener for listener in offered if listener is not None]
