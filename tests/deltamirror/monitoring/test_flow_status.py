"""A survey tells how a flow is, also when a cluster is down or the loop has died."""

import time

import pytest

from deltamirror.control import PAUSE, RESUME, ControlTable
from deltamirror.monitoring.flow_status import flow_status
from deltamirror.monitoring.lag import write_lag
from schemas.errors import TopicMissingError
from schemas.kafka.partition import TopicPartition
from schemas.tables import LAG
from tests.support.lake import FLOW, ORDERS, REMOTE, ScriptedContext, replay, stage

REPLAY = f"replay {FLOW.name}"
GONE = TopicMissingError("orders[1]", location="on cluster us-east")


@pytest.fixture
def context(lake):
    """Ten records at the source, eight staged, six replayed; the loop runs."""
    context = ScriptedContext(lake)
    context.source.hold(ORDERS, 10)
    stage(context, ORDERS, 0, 8)
    context.target.progress(REMOTE, 6)
    context.status_file.post(REPLAY, "running", None, [])
    return context


def test_a_partition_is_shown_from_the_sources_end_to_the_targets_progress(context):
    state = flow_status(context, context.flow)

    (orders,) = state.partitions
    assert state.state == "running"
    assert (orders.topic, orders.partition, orders.target_topic) == ("orders", 0, "us-east.orders")
    assert (orders.source_end, orders.staged, orders.replayed, orders.lag) == (10, 8, 6, 4)


def test_a_survey_makes_nothing(lake):
    context = ScriptedContext(lake)
    context.source.hold(ORDERS, 10)

    state = flow_status(context, context.flow)

    assert (state.state, state.lag, state.age_ms) == ("stopped", 10, None)
    assert not lake.exists()


def test_age_is_that_of_the_oldest_staged_record_that_waits(context):
    hour_ago_ms = int(time.time() * 1000) - 3_600_000
    stage(context, ORDERS, 8, 10, oldest_ms=hour_ago_ms, version=2)
    context.target.progress(REMOTE, 8)

    assert 3_600_000 <= flow_status(context, context.flow).age_ms < 3_660_000


def test_what_has_arrived_in_full_has_neither_lag_nor_age(context):
    stage(context, ORDERS, 8, 10, version=2)
    context.target.progress(REMOTE, 10)

    state = flow_status(context, context.flow)

    assert (state.lag, state.age_ms) == (0, 0)


def test_progress_of_a_former_life_is_none_of_the_present_one(context):
    context.source.hold(ORDERS, 4, topic_id="life2")

    (orders,) = flow_status(context, context.flow).partitions

    assert (orders.source_end, orders.staged, orders.replayed, orders.lag) == (4, 0, 0, 4)


def test_a_cut_log_goes_on_as_an_incarnation_of_the_same_topic_id(context):
    stage(context, ORDERS, 5, 9, topic_id="life1+1", version=2)
    context.target.progress(REMOTE, 7, incarnation="life1+1")

    (orders,) = flow_status(context, context.flow).partitions

    assert (orders.staged, orders.replayed, orders.lag) == (9, 7, 3)


def test_records_behind_an_open_transaction_are_held_back_and_are_no_lag(context):
    context.source.hold(ORDERS, 10, open_transaction=5)

    (orders,) = flow_status(context, context.flow).partitions

    assert (orders.source_end, orders.held_back, orders.lag) == (10, 5, 4)


def test_with_the_source_down_the_stage_is_still_shown(context):
    context.source.is_down = True

    state = flow_status(context, context.flow)

    (orders,) = state.partitions
    assert state.state == "unreachable"
    assert "cluster us-east (localhost:1) does not answer" in state.error
    assert (orders.source_end, orders.staged, orders.replayed, orders.lag) == (8, 8, 6, 2)


def test_with_the_target_down_the_offset_map_tells_how_far_it_is(context):
    replay(context, (0, 0, 5))
    context.target.is_down = True

    state = flow_status(context, context.flow)

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
def test_a_loop_that_is_gone_left_its_last_words(context, monkeypatch, said, state):
    context.status_file.post(REPLAY, said, "disk full", [])
    monkeypatch.setattr("resources.coordination.status_file._is_alive", lambda pid: False)

    seen = flow_status(context, context.flow)

    assert (seen.state, seen.error) == (state, "disk full")


def test_a_partition_that_waits_is_named_while_the_flow_runs(context):
    trouble = {"topic": "orders", "partition": 0, "message": "too large"}
    context.status_file.post(REPLAY, "running", None, [trouble])

    state = flow_status(context, context.flow)

    assert (state.state, state.error) == ("running", "1 of 1 partitions wait: too large")
    assert state.partitions[0].error == "too large"


def test_a_partition_without_an_answer_leaves_the_others_their_numbers(context):
    lost = TopicPartition("orders", 1)
    stage(context, lost, 0, 3)
    context.source.marks[lost] = GONE

    first, second = flow_status(context, context.flow).partitions

    assert (first.error, first.lag) == (None, 4)
    assert (second.error, second.lag) == (str(GONE), 3)


def test_an_operators_pause_shows_until_he_resumes(context):
    orders = ControlTable(context.lake.control)
    orders.add_request(PAUSE, FLOW.name)
    assert flow_status(context, context.flow).state == "paused"

    orders.add_request(RESUME, FLOW.name)
    orders.add_request(PAUSE, FLOW.name, "orders")
    state = flow_status(context, context.flow)
    assert state.state == "running"
    assert state.partitions[0].is_paused


def test_only_topics_of_the_flow_are_shown(context):
    context.source.hold(TopicPartition("mm2-offsets.us-east.internal", 0), 5)
    context.source.hold(TopicPartition("eu-west.orders", 0), 5)

    assert [each.topic for each in flow_status(context, context.flow).partitions] == ["orders"]


def test_lag_is_kept_over_time_as_the_survey_showed_it(context):
    write_lag(context, context.flow)

    (row,) = context.lake.flow_table(FLOW, LAG).rows().to_pylist()
    assert (row["source_end"], row["staged"], row["replayed"], row["lag"]) == (10, 8, 6, 4)


def test_lag_that_cannot_be_known_is_not_written(context):
    context.target.is_down = True

    assert write_lag(context, context.flow) == []
    assert not context.lake.flow_table(FLOW, LAG).exists()
