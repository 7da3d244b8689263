"""What `status` and `lag` print, for people and for scripts."""

import pytest

from schemas.kafka.partition import TopicPartition
from tests.support.cli import answer, run
from tests.support.lake import FLOW, ORDERS

PARTITION = {
    "topic", "partition", "target_topic", "source_end", "staged", "replayed", "lag", "age_ms",
}  # fmt: skip


@pytest.mark.parametrize("command", ["status", "lag"])
def test_status_and_lag_print_one_json_object_with_the_promised_fields(halfway_context, command):
    (flow,) = answer(command)["flows"]

    (orders,) = flow["partitions"]
    assert {"flow", "state", "error", "partitions"} <= flow.keys()
    assert orders.keys() >= PARTITION
    assert (orders["source_end"], orders["staged"], orders["replayed"]) == (20, 18, 16)


def test_the_table_of_status_shows_state_topic_and_error(halfway_context):
    trouble = {"topic": "orders", "partition": 0, "message": "the record is too large"}
    halfway_context.status_file.post(
        f"replay {FLOW.name}", "failed", "1 partition failed", [trouble]
    )

    shown = run("status").stdout

    for word in (FLOW.name, "failed", "us-east.orders", "the record is too large"):
        assert word in shown


def test_the_table_of_lag_has_a_line_for_each_partition(halfway_context):
    assert "orders[0]" in run("lag", "--flow", FLOW.name).stdout


def test_lag_does_not_shorten_the_partition_on_a_narrow_terminal(halfway_context, monkeypatch):
    long = "a-topic-with-a-name-that-is-longer-than-a-column"
    halfway_context.source.hold(TopicPartition(long, 0), 20)
    monkeypatch.setattr("deltamirror.cli.app.PIPE_WIDTH", 100)

    assert f" {long}[0] " in run("lag").stdout


def test_lag_shows_the_consumer_lag_of_each_group(halfway_context):
    (flow,) = answer("lag")["flows"]

    (billing,) = flow["groups"]
    assert (billing["group"], billing["committed"], billing["lag"]) == ("billing", 12, 8)
    assert "consumer lag" in run("lag").stdout


def test_a_commit_in_an_earlier_incarnation_of_the_topic_has_no_lag(halfway_context):
    halfway_context.source.hold(ORDERS, 20, topic_id="life2")

    assert answer("lag")["flows"][0]["groups"] == []


def test_a_flow_that_is_not_enabled_is_wrong_usage(halfway_context):
    assert answer("status", "--flow", "a->b", code=2)["error"]["type"] == "UnknownFlowError"
