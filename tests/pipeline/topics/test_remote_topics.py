import dataclasses

import pytest

from pipeline.topics.configs import UNCHANGED_TIMESTAMPS
from pipeline.topics.remote_topics import (
    AddPartitions,
    CreateTopic,
    RefusedTopic,
    missing_topics,
    plan_remote_topics,
)
from schemas.config.config import FlowConfig
from schemas.config.flow import Flow
from schemas.kafka.topic import ConfigValue, Topic, TopicSpec
from schemas.mm2.name_filter import NameFilter
from schemas.mm2.replication_policy import DefaultPolicy

FLOW = FlowConfig(
    flow=Flow("us-east", "eu-west"),
    topics=NameFilter((".*",), (r"mm2.*\.internal", r".*\.replica", "__.*")),
    groups=NameFilter(),
    policy=DefaultPolicy(),
    replication_factor=2,
    producer={},
    refresh_topics_interval_s=600,
    emit_checkpoints_interval_s=60,
    config_properties_exclude=NameFilter((r"message\.timestamp\.type", "min.insync.replicas")),
)
OWN = ConfigValue(
    "compact", "DYNAMIC_TOPIC_CONFIG", is_default=False, is_read_only=False, is_sensitive=False
)


def topics(**partitions):
    return {
        name: Topic(name, f"id-of-{name}", count, is_internal=False)
        for name, count in partitions.items()
    }


def remote(**partitions):
    return topics(**{f"us-east.{name}": count for name, count in partitions.items()})


def plan(source, target=None, configs=None):
    return plan_remote_topics(
        FLOW, source, {name: {} for name in source} | (configs or {}), target or {}
    )


def test_a_missing_remote_topic_gets_the_sources_partitions_and_the_flows_replication_factor():
    assert plan(topics(orders=3)) == [
        CreateTopic(TopicSpec("us-east.orders", 3, 2, UNCHANGED_TIMESTAMPS), "orders")
    ]


def test_a_remote_topic_gets_more_partitions_and_never_fewer():
    source = topics(narrow=4, same=2, wide=1)

    steps = plan(source, remote(narrow=2, same=2, wide=3))

    assert steps == [AddPartitions("us-east.narrow", "narrow", 4)]


@pytest.mark.parametrize(
    ("name", "config", "is_carried"),
    [
        pytest.param("cleanup.policy", OWN, True, id="set on the topic"),
        pytest.param(
            "retention.ms",
            dataclasses.replace(OWN, source="DYNAMIC_DEFAULT_BROKER_CONFIG"),
            True,
            id="set for all brokers",
        ),
        pytest.param(
            "retention.ms",
            dataclasses.replace(OWN, source="DEFAULT_CONFIG", is_default=True),
            False,
            id="Kafka's default",
        ),
        pytest.param(
            "segment.bytes",
            dataclasses.replace(OWN, source="STATIC_BROKER_CONFIG"),
            False,
            id="a broker's file",
        ),
        pytest.param(
            "read.only", dataclasses.replace(OWN, is_read_only=True), False, id="read-only"
        ),
        pytest.param(
            "secret", dataclasses.replace(OWN, value=None, is_sensitive=True), False, id="sensitive"
        ),
        pytest.param("min.insync.replicas", OWN, False, id="excluded"),
    ],
)
def test_a_remote_topic_is_created_with_the_configs_set_on_the_source(name, config, is_carried):
    [step] = plan(topics(orders=1), configs={"orders": {name: config}})

    assert step.topic.configs == UNCHANGED_TIMESTAMPS | ({name: "compact"} if is_carried else {})


@pytest.mark.parametrize("name", ["message.timestamp.type", "message.timestamp.after.max.ms"])
def test_a_remote_topic_is_created_to_keep_timestamps_unchanged(name):
    [step] = plan(
        topics(orders=1), configs={"orders": {name: dataclasses.replace(OWN, value="3600000")}}
    )

    assert step.topic.configs == UNCHANGED_TIMESTAMPS


def test_internal_topics_and_topics_from_the_target_are_not_replicated():
    source = topics(**{"__consumer_offsets": 1, "eu-west.orders": 1, "mm2-x.internal": 1})

    assert plan(source) == []


def test_a_name_that_kafka_rejects_stops_only_that_topic():
    too_long = "t" * 242

    steps = plan(topics(**{"orders": 1, too_long: 1, "t" * 241: 1}))

    assert [type(step) for step in steps] == [CreateTopic, CreateTopic, RefusedTopic]
    assert steps[2].source_topic == too_long
    assert "250 characters" in str(steps[2].error)


def test_a_separator_that_kafka_rejects_stops_the_topic():
    flow = dataclasses.replace(FLOW, policy=DefaultPolicy(separator="/"))

    [step] = plan_remote_topics(flow, topics(orders=1), {"orders": {}}, {})

    assert "topic us-east/orders cannot be created on eu-west" in str(step.error)


def test_a_topic_whose_configs_cannot_be_read_is_not_created():
    [step] = plan_remote_topics(FLOW, topics(orders=1), {}, {})

    assert "settings of orders could not be read on us-east" in str(step.error)


def test_configs_are_needed_only_for_topics_that_do_not_exist_yet():
    source = topics(orders=1, flights=1, __internal=1)

    assert missing_topics(FLOW, source, remote(orders=1)) == ["flights"]
