"""What `translate` and `groups` print, for people and for scripts."""

import pytest

from deltamirror.times import format_iso, parse_time_ms
from schemas.kafka.partition import TopicPartition
from tests.support.cli import answer, run
from tests.support.lake import FLOW, ORDERS

TRANSLATION = {
    "flow", "topic", "partition", "upstream_offset", "target_topic", "target_partition",
    "downstream_offset",
}  # fmt: skip


def test_translate_prints_the_promised_fields(halfway_context):
    at = answer("translate", "--flow", FLOW.name, *["--topic", "orders", "--partition", "0"],
                "--offset", "12")  # fmt: skip

    assert at.keys() >= TRANSLATION
    assert (at["target_topic"], at["target_partition"]) == ("us-east.orders", 0)
    assert (at["upstream_offset"], at["downstream_offset"]) == (12, 6)


@pytest.mark.parametrize("topic", ["orders", "us-east.orders"])
def test_translate_reverse_accepts_the_source_and_the_target_topic(halfway_context, topic):
    at = answer("translate", "--flow", FLOW.name, "--reverse", "--topic", topic,
                *["--partition", "0", "--offset", "5"])  # fmt: skip

    assert (at["topic"], at["upstream_offset"], at["downstream_offset"]) == ("orders", 14, 5)


UNMAPPED = ("translate", "--flow", FLOW.name, "--topic", "orders", "--partition", "1",
            "--offset", "12")  # fmt: skip


def test_the_downstream_offset_is_null_if_nothing_of_the_partition_has_arrived(halfway_context):
    halfway_context.source.hold(TopicPartition("orders", 1), 20)

    assert answer(*UNMAPPED)["downstream_offset"] is None


def test_the_downstream_offset_is_null_if_the_source_cannot_report_its_partitions(halfway_context):
    halfway_context.source.is_down = True

    assert answer(*UNMAPPED)["downstream_offset"] is None


def test_a_partition_that_the_source_does_not_have_is_an_error(halfway_context):
    error = answer(*UNMAPPED, code=1)["error"]

    assert error["type"] == "NothingToTranslateError"
    assert "us-east has no partition orders[1]" in error["message"]


def test_a_topic_that_is_not_mirrored_is_an_error(halfway_context):
    error = answer("translate", "--flow", FLOW.name, "--topic", "eu-west.orders",
                   *["--partition", "0", "--offset", "12"], code=1)["error"]  # fmt: skip

    assert error["type"] == "NothingToTranslateError"


def test_a_group_is_translated_with_all_its_partitions(halfway_context):
    found = answer("translate", "--flow", FLOW.name, "--group", "billing")

    assert (found["flow"], found["group"], found["as_of"]) == (FLOW.name, "billing", None)
    assert [at["downstream_offset"] for at in found["partitions"]] == [6]
    assert "orders[0]" in run("translate", "--flow", FLOW.name, "--group", "billing").stdout


def test_a_group_is_translated_as_of_a_time(halfway_context):
    args = ("translate", "--flow", FLOW.name, "--group", "billing", "--as-of")

    assert answer(*args, "1970-01-01T00:00:01Z")["as_of"] == "1970-01-01T00:00:01.000Z"
    assert "groups snapshot" in answer(*args, "999", code=1)["error"]["hint"]
    assert answer(*args, "yesterday", code=2)["error"]["type"] == "UsageError"


@pytest.mark.parametrize(
    "args",
    [
        pytest.param((), id="nothing to translate"),
        pytest.param(("--topic", "orders", "--partition", "0"), id="no offset"),
        pytest.param(("--group", "g", "--topic", "orders"), id="a group and an offset"),
    ],
)
def test_translate_without_enough_options_is_wrong_usage(halfway_context, args):
    run("translate", "--flow", FLOW.name, *args, code=2)


def test_a_snapshot_reports_changed_offsets_and_groups_that_could_not_be_read(halfway_context):
    halfway_context.source.offsets |= {"billing": {ORDERS: 14}, "odd": {}}
    halfway_context.source.unreadable.add("odd")

    (found,) = answer("groups", "snapshot", code=1)["clusters"]

    assert (found["cluster"], found["changed"]) == ("us-east", 1)
    assert "odd" in found["troubles"][0]


def test_a_snapshot_of_a_cluster_that_is_no_source_is_wrong_usage(halfway_context):
    found = answer("groups", "snapshot", "--cluster", "eu-west", code=2)

    assert found["error"]["type"] == "ConfigError"


def test_a_plan_is_shown_with_its_limits(halfway_context):
    plan = answer("groups", "plan", "--flow", FLOW.name)

    (billing,) = plan["groups"]
    assert "read_uncommitted" in plan["note"]
    assert (billing["group"], billing["partitions"][0]["resumes_at"]) == ("billing", 6)
    assert "us-east.orders[0]" in run("groups", "plan", "--flow", FLOW.name).stdout


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1700000000000", 1_700_000_000_000),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("2023-11-14T22:13:20", 1_700_000_000_000),
        ("2023-11-15T00:13:20.5+02:00", 1_700_000_000_500),
    ],
)
def test_a_time_is_iso_8601_or_milliseconds(text, ms):
    assert parse_time_ms(text) == ms
    assert parse_time_ms(format_iso(ms)) == ms
