"""A partition's lag is computed from its staged links and its progress."""

import pytest

from pipeline.monitoring.lag import partition_lag
from schemas.kafka.partition import SourcePartition
from schemas.replay.slot_work import ChainLink, Progress
from schemas.staging.frontier import Frontier

PREVIOUS, NEWEST = "life1", "life2"
LINKS = [
    (ChainLink(PREVIOUS, 0, 50, 50), 1_000),
    (ChainLink(NEWEST, 10, 20, 10), 3_000),
    (ChainLink(NEWEST, 20, 30, 5), 2_000),
    (ChainLink(NEWEST, 30, 35, 0), None),
]


def standing(at, links=LINKS):
    frontier = Frontier(SourcePartition("orders", NEWEST, 0), 35, 1, 40)
    return partition_lag(frontier, links, [PREVIOUS, NEWEST], at, "us-east.orders", is_paused=False)


@pytest.mark.parametrize(
    ("at", "replayed", "oldest_ms"),
    [
        pytest.param(None, 0, 1_000, id="not begun: everything waits"),
        pytest.param(Progress(20, PREVIOUS, "t"), 0, 1_000, id="in the previous incarnation"),
        pytest.param(Progress(15, NEWEST, "t"), 15, 2_000, id="within a link"),
        pytest.param(Progress(20, NEWEST, "t"), 20, 2_000, id="at a link's end"),
        pytest.param(Progress(30, NEWEST, "t"), 30, None, id="only markers wait"),
        pytest.param(Progress(35, NEWEST, "t"), 35, None, id="nothing waits"),
    ],
)
def test_only_records_past_progress_in_the_order_of_incarnations_wait(at, replayed, oldest_ms):
    found = standing(at)

    assert (found.begin, found.staged, found.stable) == (10, 35, 40)
    assert (found.replayed, found.oldest_ms) == (replayed, oldest_ms)


def test_progress_is_never_reported_past_the_staged_end():
    found = standing(Progress(60, NEWEST, "t"))

    assert (found.replayed, found.staged, found.stable) == (60, 60, 60)


def test_records_without_a_timestamp_have_no_age():
    assert standing(None, [(ChainLink(NEWEST, 0, 35, 35), -1)]).oldest_ms is None
