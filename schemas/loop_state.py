"""How a loop of a run is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from schemas.errors import DeltamirrorError

STATES = ("starting", "waiting", "running", "paused", "failed")
"""Before its first tick; another process has its lease; ticking; so, with all of it paused by an
operator; its last tick failed, and it tries again."""


@dataclass(frozen=True, slots=True)
class LoopState:
    """A loop, staging `source` or replaying `source->target`, at a moment.

    *target* is empty for staging. Times with *_at_s* are monotonic, in seconds; *began_at_s* and
    *sign_at_s* those of the last tick's beginning and of the last sign of life. *failing_since_s*
    is the first failure in a row; None: the last tick worked. *troubles* counts the partitions
    that are left out, by the error's type. *error* is the last one there was, however long ago.
    """

    loop: str
    source: str
    target: str
    sign_at_s: float
    began_at_s: float
    state: str = "starting"
    ticks: int = 0
    ticks_s: float = 0.0
    failures: int = 0
    failing_since_s: float | None = None
    error: DeltamirrorError | None = None
    error_at_ms: int | None = None
    troubles: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def name(self) -> str:
        """Return what the loop is called in bulletins, logs and leases."""
        return f"{self.loop} {self.source}" + (f"->{self.target}" if self.target else "")
