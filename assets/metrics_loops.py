"""What each loop of a run says of itself: written by its thread, read by any."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection
from dataclasses import replace

from schemas.errors import DeltamirrorError
from schemas.monitoring.flow_state import LoopState


class LoopWatch:
    """The watch on one loop. Each change replaces `state` in one go: no lock is needed."""

    def __init__(self, loop: str, source: str, target: str = "") -> None:
        now_s = time.monotonic()
        self.state = LoopState(loop, source, target, sign_at_s=now_s, began_at_s=now_s)

    def begins(self) -> None:
        """Note that a tick begins."""
        now_s = time.monotonic()
        self.state = replace(self.state, began_at_s=now_s, sign_at_s=now_s)

    def waits(self) -> None:
        """Note that another process has the lease."""
        now_s = time.monotonic()
        self.state = replace(self.state, state="waiting", failing_since_s=None, sign_at_s=now_s)

    def worked(self, troubles: Collection[DeltamirrorError], *, is_paused: bool = False) -> None:
        """Note that the tick worked, but for *troubles*; *is_paused*: none of it may go on."""
        now_s = time.monotonic()
        self.state = replace(
            self.state,
            state="paused" if is_paused else "running",
            sign_at_s=now_s,
            ticks=self.state.ticks + 1,
            ticks_s=self.state.ticks_s + now_s - self.state.began_at_s,
            failing_since_s=None,
            troubles=Counter(error.kind for error in troubles),
        )

    def failed(self, error: DeltamirrorError) -> None:
        """Note that the tick failed with *error*."""
        now_s, before = time.monotonic(), self.state.failing_since_s
        self.state = replace(
            self.state,
            state="failed",
            sign_at_s=now_s,
            ticks=self.state.ticks + 1,
            ticks_s=self.state.ticks_s + now_s - self.state.began_at_s,
            failures=self.state.failures + 1,
            failing_since_s=now_s if before is None else before,
            error=error,
            error_at_ms=int(time.time() * 1000),
        )
