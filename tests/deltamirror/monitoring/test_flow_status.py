"""Status of a flow, also while a cluster is down or after the loop has ended."""

import time

import pytest

from deltamirror.control import PAUSE, RESUME, ControlTable
from deltamirror.monitoring.flow_status import flow_status
from deltamirror.monitoring.lag import write_lag
from schemas.errors.lake import TableDamagedError
from schemas.errors.source import TopicMissingError
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


def test_a_partition_has_source_end_staged_and_replayed_offsets(context):
    state = flow_status(context, context.flow)

    (orders,) = state.partitions
    assert state.state == "running"
    assert (orders.topic, orders.partition, orders.target_topic) == ("orders", 0, "us-east.orders")
    assert (orders.source_end, orders.staged, orders.replayed, orders.lag) == (10, 8, 6, 4)


def test_reading_the_status_creates_nothing(lake):
    context = ScriptedContext(lake)
    context.source.hold(ORDERS, 10)

    state = flow_status(context, context.flow)

    assert (state.state, state.lag, state.age_ms) == ("stopped", 10, None)
    assert not lake.exists()


def test_age_is_that_of_the_oldest_staged_record_that_is_not_replayed(context):
    hour_ago_ms = int(time.time() * 1000) - 3_600_000
    stage(context, ORDERS, 8, 10, oldest_ms=hour_ago_ms, version=2)
    context.target.progress(REMOTE, 8)

    assert 3_600_000 <= flow_status(context, context.flow).age_ms < 3_660_000


def test_a_partition_that_is_caught_up_has_neither_lag_nor_age(context):
    stage(context, ORDERS, 8, 10, version=2)
    context.target.progress(REMOTE, 10)

    state = flow_status(context, context.flow)

    assert (state.lag, state.age_ms) == (0, 0)


def test_progress_of_an_earlier_incarnation_does_not_count_for_the_current_one(context):
    context.source.hold(ORDERS, 4, topic_id="life2")

    (orders,) = flow_status(context, context.flow).partitions

    assert (orders.source_end, orders.staged, orders.replayed, orders.lag) == (4, 0, 0, 4)


def test_a_truncated_log_is_a_new_incarnation_of_the_same_topic_id(context):
    stage(context, ORDERS, 5, 9, topic_id="life1+1", version=2)
    context.target.progress(REMOTE, 7, incarnation="life1+1")

    (orders,) = flow_status(context, context.flow).partitions

    assert (orders.staged, orders.replayed, orders.lag) == (9, 7, 3)


def test_offsets_above_the_last_stable_offset_are_held_back_and_are_no_lag(context):
    context.source.hold(ORDERS, 10, open_transaction=5)

    (orders,) = flow_status(context, context.flow).partitions

    assert (orders.source_end, orders.held_back, orders.lag) == (10, 5, 4)


def test_the_stage_is_shown_while_the_source_is_down(context):
    context.source.is_down = True

    state = flow_status(context, context.flow)

    (orders,) = state.partitions
    assert state.state == "unreachable"
    assert "cluster us-east (localhost:1) does not answer" in state.error
    assert (orders.source_end, orders.staged, orders.replayed, orders.lag) == (8, 8, 6, 2)


def test_replayed_offsets_come_from_the_offset_map_while_the_target_is_down(context):
    replay(context, (0, 0, 5))
    context.target.is_down = True

    state = flow_status(context, context.flow)

    (orders,) = state.partitions
    assert state.state == "unreachable"
    assert (orders.source_end, orders.staged, orders.replayed, orders.lag) == (10, 8, 5, 5)


def test_a_damaged_offset_map_matters_only_while_the_target_is_down(context):
    replay(context, (0, 0, 5))
    (context.lake.offset_map(FLOW).path / "_delta_log" / f"{1:020d}.json").write_text("torn")

    (orders,) = flow_status(context, context.flow).partitions
    assert (orders.source_end, orders.staged, orders.replayed, orders.lag) == (10, 8, 6, 4)

    context.target.is_down = True
    with pytest.raises(TableDamagedError):
        flow_status(context, context.flow)


@pytest.mark.parametrize(
    ("reported", "state"),
    [
        pytest.param("running", "stopped", id="killed while it ran"),
        pytest.param("stopped", "stopped", id="ended"),
        pytest.param("failed", "failed", id="gave up"),
    ],
)
def test_a_loop_that_has_ended_keeps_its_last_error(context, monkeypatch, reported, state):
    context.status_file.post(REPLAY, reported, "disk full", [])
    monkeypatch.setattr("resources.coordination.status_file._is_alive", lambda pid: False)

    seen = flow_status(context, context.flow)

    assert (seen.state, seen.error) == (state, "disk full")


def test_a_failed_partition_is_counted_while_the_flow_runs(context):
    error = {"topic": "orders", "partition": 0, "message": "too large"}
    context.status_file.post(REPLAY, "running", None, [error])

    state = flow_status(context, context.flow)

    assert (state.state, state.error) == ("running", "1 of 1 partitions wait: too large")
    assert state.partitions[0].error == "too large"


def test_a_partition_without_a_leader_does_not_hide_the_numbers_of_the_others(context):
    lost = TopicPartition("orders", 1)
    stage(context, lost, 0, 3)
    context.source.marks[lost] = GONE

    first, second = flow_status(context, context.flow).partitions

    assert (first.error, first.lag) == (None, 4)
    assert (second.error, second.lag) == (str(GONE), 3)


def test_a_pause_is_shown_until_the_flow_is_resumed(context):
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


def test_lag_rows_equal_the_status_at_that_time(context):
    write_lag(context, context.flow)

    (row,) = context.lake.flow_table(FLOW, LAG).rows().to_pylist()
    assert (row["source_end"], row["staged"], row["replayed"], row["lag"]) == (10, 8, 6, 4)


def test_no_lag_is_written_while_a_cluster_is_down(context):
    context.target.is_down = True

    assert write_lag(context, context.flow) == []
    assert not context.lake.flow_table(FLOW, LAG).exists()
