"""Who hears what the loops move."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import entry_points
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


class Both:
    """Several reporters as one."""

    def __init__(self, *reporters: Reporter) -> None:
        self._both = reporters

    def staged(self, alias: str, segments: Sequence[Segment]) -> None:
        """Tell both that *segments* of source cluster *alias* were committed."""
        for each in self._both:
            each.staged(alias, segments)

    def replayed(self, flow: Flow, moves: Sequence[Move]) -> None:
        """Tell both that *moves* of *flow* were committed."""
        for each in self._both:
            each.replayed(flow, moves)

    def troubled(self, duty: str, error: DeltamirrorError) -> None:
        """Tell both that *duty*'s tick failed."""
        for each in self._both:
            each.troubled(duty, error)


def installed_listeners() -> list[Reporter]:
    """Return a listener of each installed package that offers one and has something to report to.

    A package offers a function without arguments, under the entry point group
    `deltamirror.listeners`. It returns None if there is nothing to report to.
    """
    offered = [point.load()() for point in entry_points(group="deltamirror.listeners")]
    return [listener for listener in offered if listener is not None]
