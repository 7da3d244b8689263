"""The loops' states in; whether all is well out: what /healthz answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from schemas.monitoring.flow_state import LoopState

LIVENESS_TIMEOUT_S = 120.0
"""How long a loop may give no sign of life: a tick that is throttled or recovers may take long."""

OK, STANDBY, FAILING = "ok", "standby", "failing"


@dataclass(frozen=True, slots=True)
class Health:
    """*status*: ok, standby (every replay waits for another process) or failing; who is sick."""

    status: str
    failing: tuple[str, ...]


def check_health(loops: Sequence[LoopState], now_s: float, grace_s: float) -> Health:
    """Return how *loops* are at *now_s* (monotonic, s).

    A loop is sick where it gave no sign of life for LIVENESS_TIMEOUT_S, or failed for longer than
    *grace_s* without a tick in between that worked.
    """
    failing = tuple(
        why for loop in loops if (why := _failure_reason(loop, now_s, grace_s)) is not None
    )
    if failing:
        return Health(FAILING, failing)
    replays = [loop for loop in loops if loop.loop == "replay"]
    waits = bool(replays) and all(loop.state == "waiting" for loop in replays)
    return Health(STANDBY if waits else OK, ())


def _failure_reason(loop: LoopState, now_s: float, grace_s: float) -> str | None:
    silent_s = now_s - loop.last_sign_at_s
    if silent_s > LIVENESS_TIMEOUT_S:
        return f"{loop.name}: no sign of life for {silent_s:.0f} s"
    if loop.failing_since_s is not None and now_s - loop.failing_since_s > grace_s:
        return f"{loop.name}: {loop.error}"
    return None
