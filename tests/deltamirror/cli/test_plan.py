"""`plan` tells what a run would do, and does nothing."""

import dataclasses

import pytest

from deltamirror import context as site_module
from deltamirror.cli.app import Console
from schemas.kafka.acl import TopicAcl
from schemas.kafka.partition import TopicPartition
from schemas.kafka.topic import ConfigValue
from schemas.mm2.name_filter import NameFilter
from tests.support.cli import answer, run
from tests.support.lake import ORDERS, REMOTE, ScriptedContext, stage

FLOW = "us-east->eu-west"


@pytest.fixture
def halfway_context(lake, monkeypatch):
    """A source with records and an empty target; the lake is not there yet."""
    context = ScriptedContext(lake)
    filtered = dataclasses.replace(context.flow, topics=NameFilter(exclude=("secret",)))
    context.config = dataclasses.replace(context.config, flows=(filtered,))
    context.source.hold(ORDERS, 20, low=5)
    context.source.topic_configs = lambda names: {name: {} for name in names}
    monkeypatch.setattr(Console, "config", lambda self: context.config)
    monkeypatch.setattr(site_module, "MirrorContext", lambda _: context)
    monkeypatch.setattr(context, "close", lambda: None)
    return context


def test_a_plan_of_a_first_run_lists_all_steps_and_creates_nothing(halfway_context, lake):
    data = answer("plan")

    (cluster,), (flow,) = data["clusters"], data["flows"]
    assert [(step["topic"], step["partitions"]) for step in flow["create"]] == [
        ("us-east.orders", 1)
    ]
    assert cluster["stage"] == [{"topic": "orders", "partition": 0, "start": 5, "end": 20}]
    assert [(each["topic"], each["end"]) for each in flow["replay"]] == [("orders", 20)]
    assert not lake.exists()


def test_a_plan_of_a_later_run_starts_at_the_frontier(halfway_context):
    stage(halfway_context, ORDERS, 5, 12)

    (cluster,) = answer("plan")["clusters"]

    assert cluster["stage"] == [{"topic": "orders", "partition": 0, "start": 12, "end": 20}]


def test_a_plan_without_steps_reports_that_all_is_in_sync(halfway_context):
    halfway_context.source.hold(ORDERS, 20)
    stage(halfway_context, ORDERS, 0, 20)
    halfway_context.target.hold(REMOTE, 20)
    halfway_context.target.progress(REMOTE, 20)

    assert run("plan").stdout == "Nothing to do: in sync.\n"


def test_a_plan_lists_partitions_that_were_added_on_the_source(halfway_context):
    halfway_context.source.hold(TopicPartition("orders", 1), 3)
    halfway_context.target.hold(TopicPartition("us-east.orders", 0), 0)

    (flow,) = answer("plan")["flows"]

    assert (flow["create"], flow["widen"]) == ([], [{"topic": "us-east.orders", "partitions": 2}])


def test_a_plan_lists_settings_that_differ_only_if_the_flow_syncs_settings(
    halfway_context,
):
    own = ConfigValue("1000", "DYNAMIC_TOPIC_CONFIG", False, False, False)
    halfway_context.source.topic_configs = lambda names: {
        name: {"retention.ms": own} for name in names
    }
    halfway_context.target.topic_configs = lambda names: {name: {} for name in names}
    halfway_context.target.hold(REMOTE, 0)

    (unsynced,) = answer("plan")["flows"]
    synced = dataclasses.replace(halfway_context.flow, sync_topic_configs_interval_s=600.0)
    halfway_context.config = dataclasses.replace(halfway_context.config, flows=(synced,))
    (flow,) = answer("plan")["flows"]

    assert unsynced["alter"] == []
    assert flow["alter"] == [
        {
            "topic": "us-east.orders",
            "configs": {"retention.ms": "1000"},
            "before": {"retention.ms": None},
        }
    ]
    assert "retention.ms: default -> 1000" in run("plan").stdout


def test_a_plan_lists_acls_that_are_missing_on_the_target(halfway_context):
    acl = TopicAcl("orders", "User:bob", "*", "ALL", "ALLOW")
    halfway_context.source.topic_acls = lambda: {acl}
    halfway_context.target.topic_acls = set
    synced = dataclasses.replace(halfway_context.flow, sync_topic_acls_interval_s=600.0)
    halfway_context.config = dataclasses.replace(halfway_context.config, flows=(synced,))

    (flow,) = answer("plan")["flows"]

    expected = dataclasses.replace(acl, topic="us-east.orders", operation="READ")
    assert flow["acls"] == [dataclasses.asdict(expected)]
    assert "create ACL" in run("plan").stdout


def test_a_plan_shows_errors_that_need_an_operator_with_their_hints(halfway_context):
    stage(halfway_context, ORDERS, 0, 3)

    (cluster,) = answer("plan", code=1)["clusters"]

    (trouble,) = cluster["troubles"]
    assert (trouble["topic"], trouble["type"]) == ("orders", "RecordsExpiredError")
    assert "accept-gap" in trouble["hint"]
    assert "waits for you" in run("plan", code=1).stdout


def test_a_plan_shows_the_reason_for_each_topic_that_is_not_mirrored(halfway_context):
    for topic in ("secret", "eu-west.orders", "__consumer_offsets"):
        halfway_context.source.hold(TopicPartition(topic, 0), 1)

    (flow,) = answer("plan", "--flow", FLOW)["flows"]

    assert {each["topic"]: each["reason"] for each in flow["not_mirrored"]} == {
        "secret": "not chosen by topics and topics.exclude",
        "eu-west.orders": "came from eu-west",
        "__consumer_offsets": "internal to Kafka or MirrorMaker",
    }


def test_a_source_that_is_down_is_an_error(halfway_context):
    halfway_context.source.is_down = True

    assert answer("plan", code=1)["error"]["type"] == "UnreachableError"
