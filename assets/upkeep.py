"""What goes on beside the loops: groups seen and translated, lag kept."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial

from assets.checkpoints import write_checkpoints
from assets.group_offsets import snapshot_groups
from assets.lag import write_lag
from assets.site import Site
from schemas.config import FlowConfig
from schemas.errors import DeltamirrorError

log = logging.getLogger(__name__)

EVERY_S = 60.0
"""How often where a flow sets no interval of its own (emit.checkpoints.interval.seconds)."""


class Upkeep:
    """The thread that keeps group offsets, checkpoints and lag of *flows*.

    It runs at its interval, and once more when the loops are *done*.
    """

    def __init__(
        self,
        site: Site,
        flows: Sequence[FlowConfig],
        stop: threading.Event,
        done: threading.Event,
    ) -> None:
        self._site, self._flows, self._stop, self._done = site, flows, stop, done

    def run(self) -> None:
        """Work until told to stop; a failure is logged and tried again at the next turn."""
        intervals = [f.emit_checkpoints_interval_s or EVERY_S for f in self._flows]
        while not self._stop.is_set():
            is_last = self._done.wait(min(intervals))
            if self._stop.is_set():
                return
            self.turn()
            if is_last:
                return

    def turn(self) -> None:
        """Snapshot the sources' groups, then translate and measure each flow."""
        for alias in dict.fromkeys(flow.flow.source for flow in self._flows):
            self._try(f"groups of {alias}", partial(snapshot_groups, self._site, alias))
        for flow in self._flows:
            self._try(f"checkpoints of {flow.flow}", partial(write_checkpoints, self._site, flow))
            self._try(f"lag of {flow.flow}", partial(write_lag, self._site, flow))

    def _try(self, what: str, step: Callable[[], object]) -> None:
        try:
            step()
        except DeltamirrorError as error:
            log.warning("%s: %s", what, error)
