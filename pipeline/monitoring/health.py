"""The loops' states in; whether all is well out: what /healthz answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from schemas.monitoring.flow_state import LoopState

LATE_S = 120.0
"""How long a loop may give no sign of life: a tick that is throttled or recovers may take long."""

OK, STANDBY, FAILING = "ok", "standby", "failing"


@dataclass(frozen=True, slots=True)
class Health:
    """*status*: ok, standby (every replay waits for another process) or failing; who is sick."""

    status: str
    sick: tuple[str, ...]


def diagnose(loops: Sequence[LoopState], now_s: float, patience_s: float) -> Health:
    """Return how *loops* are at *now_s* (monotonic, s).

    A loop is sick where it gave no sign of life for LATE_S, or failed for longer than
    *patience_s* without a tick in between that worked.
    """
    sick = tuple(why for loop in loops if (why := _sickness(loop, now_s, patience_s)) is not None)
    if sick:
        return Health(FAILING, sick)
    replays = [loop for loop in loops if loop.loop == "replay"]
    waits = bool(replays) and all(loop.state == "waiting" for loop in replays)
    return Health(STANDBY if waits else OK, ())


def _sickness(loop: LoopState, now_s: float, patience_s: float) -> str | None:
    silent_s = now_s - loop.sign_at_s
    if silent_s > LATE_S:
        return f"{loop.name}: no sign of life for {silent_s:.0f} s"
    if loop.failing_since_s is not None and now_s - loop.failing_since_s > patience_s:
        return f"{loop.name}: {loop.error}"
    return None
