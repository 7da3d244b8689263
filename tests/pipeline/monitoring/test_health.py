"""The health of a process follows from the states of its loops."""

from dataclasses import replace

import pytest

from pipeline.monitoring.health import FAILING, LIVENESS_TIMEOUT_S, OK, STANDBY, check_health
from schemas.errors.environment import UnreachableError
from schemas.monitoring.flow_state import LoopState

STAGE = LoopState("stage", "us-east", "", 1_000, 1_000, "running")
REPLAY = LoopState("replay", "us-east", "eu-west", 1_000, 1_000, "running")
FAILED = replace(
    REPLAY,
    state="failed",
    failing_since_s=1_000,
    error=UnreachableError("eu-west", servers="", reason="it is down"),
)


def test_ticking_loops_are_ok():
    assert check_health([STAGE, REPLAY], 1_001, 30).status == OK


@pytest.mark.parametrize(
    ("now_s", "status"),
    [
        pytest.param(1_030, OK, id="within the grace period"),
        pytest.param(1_031, FAILING, id="after the grace period"),
    ],
)
def test_a_loop_is_failing_only_after_the_grace_period(now_s, status):
    health = check_health([STAGE, FAILED], now_s, 30)

    assert health.status == status
    assert all("replay us-east->eu-west: " in why and "it is down" in why for why in health.failing)
    assert bool(health.failing) == (status == FAILING)


def test_a_loop_that_reports_nothing_is_failing_and_named():
    health = check_health(
        [STAGE, replace(REPLAY, last_sign_at_s=2_000)], 1_001 + LIVENESS_TIMEOUT_S, 30
    )

    assert health.failing == (
        f"stage us-east: reported nothing for {LIVENESS_TIMEOUT_S + 1:.0f} s",
    )


def test_a_process_is_on_standby_if_other_processes_replay_all_its_flows():
    waiting = replace(REPLAY, state="waiting")

    assert check_health([STAGE, waiting], 1_001, 30).status == STANDBY
    assert check_health([STAGE, waiting, REPLAY], 1_001, 30).status == OK
