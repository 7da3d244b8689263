"""How often the loops tick."""

from __future__ import annotations

import time

TICK_S = 0.25
"""How often a loop begins a tick, at most: each makes commits, and a small file for each slot."""

IDLE_S = 1.0
"""The same for a loop with nothing to do, where looking takes long: at 1,000 topics it is 0.1 s."""

IDLE_SHARE = 5
"""A loop with nothing to do looks for a fifth of the time."""

LEASE_S = 1.0
"""How often a duty that another process does is tried for."""


def pause_s(began_at_s: float, *, is_idle: bool) -> float:
    """Return how many seconds to wait from now on, after a tick that began then (monotonic)."""
    took_s = time.monotonic() - began_at_s
    every_s = max(TICK_S, min(IDLE_S, IDLE_SHARE * took_s)) if is_idle else TICK_S
    return max(0.0, every_s - took_s)
