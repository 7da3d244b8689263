"""A point-in-time replay: a flow of its own, apart from the flow it is taken from."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.flow import Flow


@dataclass(frozen=True, slots=True)
class ReplayFlow:
    """One replay of *flow*'s stage, with producers and progress of its own.

    Neither fences the running flow nor moves its progress (DESIGN 2.2).
    """

    flow: Flow
    replay_id: str

    @property
    def target(self) -> str:
        """Return the alias of the cluster that is written to."""
        return self.flow.target

    @property
    def name(self) -> str:
        """Return what its duty is called."""
        return f"replay.{self.replay_id}"

    @property
    def progress_group(self) -> str:
        """Return the group on the target that keeps its progress."""
        return f"deltamirror.{self.name}"

    def transactional_id(self, slot: int) -> str:
        """Return the id of the producer of *slot*."""
        return f"deltamirror.{self.name}.{slot}"
