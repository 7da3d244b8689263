"""Compute the process's health from the states of its loops; /healthz returns it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from schemas.monitoring.flow_state import LoopState

LIVENESS_TIMEOUT_S = 120.0
"""A loop that reports nothing for this long is failing. A throttled or recovering tick is slow."""

OK, STANDBY, FAILING = "ok", "standby", "failing"


@dataclass(frozen=True, slots=True)
class Health:
    """*status* is ok, standby (every replay waits for another process) or failing.

    *failing* has one line per failing loop: its name and the reason.
    """

    status: str
    failing: tuple[str, ...]


def check_health(loops: Sequence[LoopState], now_s: float, grace_s: float) -> Health:
    """Return the health of *loops* at *now_s* (monotonic, s).

    A loop is failing if it reported nothing for LIVENESS_TIMEOUT_S, or if its ticks have failed
    for longer than *grace_s* without a success in between.
    """
    failing = tuple(filter(None, (_failure_reason(loop, now_s, grace_s) for loop in loops)))
    if failing:
        return Health(FAILING, failing)
    replays = [loop for loop in loops if loop.loop == "replay"]
    waits = bool(replays) and all(loop.state == "waiting" for loop in replays)
    return Health(STANDBY if waits else OK, ())


def _failure_reason(loop: LoopState, now_s: float, grace_s: float) -> str | None:
    silent_s = now_s - loop.last_sign_at_s
    if silent_s > LIVENESS_TIMEOUT_S:
        return f"{loop.name}: reported nothing for {silent_s:.0f} s"
    if loop.failing_since_s is not None and now_s - loop.failing_since_s > grace_s:
        return f"{loop.name}: {loop.error}"
    return None
