"""A survey tells how a flow is, also when a cluster is down or the loop has died."""

import time

import pytest

from deltamirror.control import PAUSE, RESUME, Orders
from deltamirror.monitoring.flow_status import survey
from deltamirror.monitoring.lag import write_lag
from schemas.errors import TopicMissingError
from schemas.kafka.partition import TopicPartition
from schemas.tables import LAG
from tests.support.lake import FLOW, ORDERS, REMOTE, FakeSite, replay, stage

REPLAY = f"replay {FLOW.name}"
GONE = TopicMissingError("orders[1]", "on cluster us-east")


@pytest.fixture
def site(lake):
    """Ten records at the source, eight staged, six replayed; the loop runs."""
    site = FakeSite(lake)
    site.source.hold(ORDERS, 10)
    stage(site, ORDERS, 0, 8)
    site.target.progress(REMOTE, 6)
    site.bulletin.post(REPLAY, "running", None, [])
    return site


def test_a_partition_is_shown_from_the_sources_end_to_the_targets_progress(site):
    state = survey(site, site.flow)

    (orders,) = state.partitions
    assert state.state == "running"
    assert (orders.topic, orders.partition, orders.target_topic) == ("orders", 0, "us-east.orders")
    assert (orders.source_end, orders.staged, orders.replayed, orders.lag) == (10, 8, 6, 4)


def test_a_survey_makes_nothing(lake):
    site = FakeSite(lake)
    site.source.hold(ORDERS, 10)

    state = survey(site, site.flow)

    assert (state.state, state.lag, state.age_ms) == ("stopped", 10, None)
    assert not lake.exists()


def test_age_is_that_of_the_oldest_staged_record_that_waits(site):
    hour_ago_ms = int(time.time() * 1000) - 3_600_000
    stage(site, ORDERS, 8, 10, oldest_ms=hour_ago_ms, version=2)
    site.target.progress(REMOTE, 8)

    assert 3_600_000 <= survey(site, site.flow).age_ms < 3_660_000


def test_what_has_arrived_in_full_has_neither_lag_nor_age(site):
    stage(site, ORDERS, 8, 10, version=2)
    site.target.progress(REMOTE, 10)

    state = survey(site, site.flow)

    assert (state.lag, state.age_ms) == (0, 0)


def test_progress_of_a_former_life_is_none_of_the_present_one(site):
    site.source.hold(ORDERS, 4, topic_id="life2")

    (orders,) = survey(site, site.flow).partitions

    assert (orders.source_end, orders.staged, orders.replayed, orders.lag) == (4, 0, 0, 4)


def test_a_cut_log_goes_on_as_an_incarnation_of_the_same_topic_id(site):
    stage(site, ORDERS, 5, 9, topic_id="life1+1", version=2)
    site.target.progress(REMOTE, 7, incarnation="life1+1")

    (orders,) = survey(site, site.flow).partitions

    assert (orders.staged, orders.replayed, orders.lag) == (9, 7, 3)


def test_records_behind_an_open_transaction_are_held_back_and_are_no_lag(site):
    site.source.hold(ORDERS, 10, open_transaction=5)

    (orders,) = survey(site, site.flow).partitions

    assert (orders.source_end, orders.held_back, orders.lag) == (10, 5, 4)


def test_with_the_source_down_the_stage_is_still_shown(site):
    site.source.is_down = True

    state = survey(site, site.flow)

    (orders,) = state.partitions
    assert state.state == "unreachable"
    assert "cluster us-east (localhost:1) does not answer" in state.error
    assert (orders.source_end, orders.staged, orders.replayed, orders.lag) == (8, 8, 6, 2)


def test_with_the_target_down_the_offset_map_tells_how_far_it_is(site):
    replay(site, (0, 0, 5))
    site.target.is_down = True

    state = survey(site, site.flow)

    (orders,) = state.partitions
    assert state.state == "unreachable"
    assert (orders.source_end, orders.staged, orders.replayed, orders.lag) == (10, 8, 5, 5)


@pytest.mark.parametrize(
    ("said", "state"),
    [
        pytest.param("running", "stopped", id="killed while it ran"),
        pytest.param("stopped", "stopped", id="ended"),
        pytest.param("failed", "failed", id="gave up"),
    ],
)
def test_a_loop_that_is_gone_left_its_last_words(site, monkeypatch, said, state):
    site.bulletin.post(REPLAY, said, "disk full", [])
    monkeypatch.setattr("resources.coordination.status_file._is_alive", lambda pid: False)

    seen = survey(site, site.flow)

    assert (seen.state, seen.error) == (state, "disk full")


def test_a_partition_that_waits_is_named_while_the_flow_runs(site):
    trouble = {"topic": "orders", "partition": 0, "message": "too large"}
    site.bulletin.post(REPLAY, "running", None, [trouble])

    state = survey(site, site.flow)

    assert (state.state, state.error) == ("running", "1 of 1 partitions wait: too large")
    assert state.partitions[0].error == "too large"


def test_a_partition_without_an_answer_leaves_the_others_their_numbers(site):
    lost = TopicPartition("orders", 1)
    stage(site, lost, 0, 3)
    site.source.marks[lost] = GONE

    first, second = survey(site, site.flow).partitions

    assert (first.error, first.lag) == (None, 4)
    assert (second.error, second.lag) == (str(GONE), 3)


def test_an_operators_pause_shows_until_he_resumes(site):
    orders = Orders(site.lake.control)
    orders.give(PAUSE, FLOW.name)
    assert survey(site, site.flow).state == "paused"

    orders.give(RESUME, FLOW.name)
    orders.give(PAUSE, FLOW.name, "orders")
    state = survey(site, site.flow)
    assert state.state == "running"
    assert state.partitions[0].is_paused


def test_only_topics_of_the_flow_are_shown(site):
    site.source.hold(TopicPartition("mm2-offsets.us-east.internal", 0), 5)
    site.source.hold(TopicPartition("eu-west.orders", 0), 5)

    assert [each.topic for each in survey(site, site.flow).partitions] == ["orders"]


def test_lag_is_kept_over_time_as_the_survey_showed_it(site):
    write_lag(site, site.flow)

    (row,) = site.lake.of_flow(FLOW, LAG).rows().to_pylist()
    assert (row["source_end"], row["staged"], row["replayed"], row["lag"]) == (10, 8, 6, 4)


def test_lag_that_cannot_be_known_is_not_written(site):
    site.target.is_down = True

    assert write_lag(site, site.flow) == []
    assert not site.lake.of_flow(FLOW, LAG).exists()
