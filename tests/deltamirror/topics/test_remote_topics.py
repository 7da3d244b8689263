"""Report remote topics that the user may not create or expand, and continue with the others."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from deltamirror.topics.remote_topics import RemoteTopics
from schemas.errors.environment import PermissionMissingError
from schemas.kafka.acl import Permission
from schemas.kafka.partition import TopicPartition
from tests.support.fake_context import FakeContext

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
USERS = TopicPartition("users", 0)
INTERVAL_S = 600


@pytest.fixture
def context(lake, monkeypatch):
    made = FakeContext(lake, monkeypatch)
    for topic in ("orders", "users"):
        made.source.make(topic)
    return made


@pytest.fixture
def clock(monkeypatch):
    made = SimpleNamespace(now=0.0)
    made.monotonic = lambda: made.now
    monkeypatch.setattr("deltamirror.topics.remote_topics.time", made)
    return made


@pytest.fixture
def remote(context, clock):
    return RemoteTopics(context, replace(context.flow, refresh_topics_interval_s=INTERVAL_S))


def missing(operation, topic):
    return PermissionMissingError("eu-west", "do it", Permission(operation, "topic", topic))


def deny_alter(name, _):
    raise missing("Alter", name)


def deny_create(wanted):
    return {topic.name: missing("Create", topic.name) for topic in wanted}


def test_if_a_topic_may_not_be_expanded_only_its_new_partitions_have_an_error(context, remote):
    remote.refresh([FIRST])
    context.source.logs[SECOND] = []
    context.target.add_partitions = deny_alter

    for _ in range(2):
        remote.refresh([FIRST, SECOND])

    (error,) = remote.partition_errors([FIRST, SECOND]).values()
    assert "lacks Alter on topic us-east.orders" in str(error)
    assert remote.topic_id(FIRST) == context.target.ids["us-east.orders"]
    assert remote.topic_id(SECOND) is None


def test_a_granted_permission_takes_effect_at_the_next_topic_refresh(context, remote, clock):
    remote.refresh([USERS])
    create, context.target.create_topics = context.target.create_topics, deny_create
    remote.refresh([FIRST, USERS])
    refused = remote.partition_errors([FIRST, USERS])
    context.target.create_topics = create

    while clock.now <= INTERVAL_S:
        assert remote.partition_errors([FIRST, USERS]) == refused
        clock.now += context.timings.topics_max_age_s
        remote.refresh([FIRST, USERS])

    assert list(refused) == [FIRST]
    assert remote.partition_errors([FIRST, USERS]) == {}
    assert remote.topic_id(FIRST) == context.target.ids["us-east.orders"]
