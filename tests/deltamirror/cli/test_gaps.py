"""What `gaps` prints, for people and for scripts."""

from tests.support.cli import answer, run
from tests.support.lake import ORDERS


def stage_gap(context, start, end, cause):
    row = {
        "topic": ORDERS.topic, "topic_id": "life1", "partition": ORDERS.partition, "start": start,
        "end": end, "count": 0, "size_bytes": 0, "low": 0, "stable": end, "high": end,
        "gap_cause": cause, "digest": "", "staged_at_ms": 7, "sequence": 1, "version": 2,
    }  # fmt: skip
    context.lake.records("us-east").refresh()  # which makes it, without a record
    context.lake.segments("us-east").append([row])


def test_the_json_of_gaps_has_each_interval(halfway_context):
    stage_gap(halfway_context, 18, 21, "expired, accepted")
    stage_gap(halfway_context, 21, 22, "transaction markers or aborted")

    gaps = answer("gaps")["gaps"]

    assert gaps[0] == {
        "cluster": "us-east", "topic": "orders", "topic_id": "life1", "partition": 0,
        "start_offset": 18, "end_offset": 21, "offsets": 3, "cause": "expired, accepted",
        "version": 2, "staged_at_ms": 7,
    }  # fmt: skip
    assert [gap["start_offset"] for gap in gaps] == [18, 21]
    assert answer("gaps", "--topic", "users")["gaps"] == []


def test_the_table_of_gaps_adds_them_up_by_cause(halfway_context):
    stage_gap(halfway_context, 18, 21, "expired, accepted")
    stage_gap(halfway_context, 30, 32, "expired, accepted")

    (line,) = [line for line in run("gaps").stdout.splitlines() if "orders[0]" in line]

    for word in ("us-east", "expired, accepted", " 2 ", " 5 ", "18", "32"):
        assert word in line


def test_a_cluster_that_is_no_source_is_wrong_usage(halfway_context):
    assert answer("gaps", "--cluster", "eu-west", code=2)["error"]["type"] == "ConfigError"
