"""Groups are synced to the target automatically and resume there: no record repeated or skipped."""

import pytest
from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as KafkaPartition

from deltamirror.groups.snapshots import snapshot_groups
from deltamirror.groups.sync import sync_groups
from schemas.kafka.partition import TopicPartition
from tests.support.brokers import (
    Record,
    commit_group,
    committed_offsets,
    consume_all,
    create_topic,
    high_watermarks,
    produce,
)
from tests.support.kafka_cli import console_consumer
from tests.support.mm2_java_classes import mm2_tools
from tests.support.raw_groups import RawMember
from tests.support.world import FLOW, until

pytestmark = [pytest.mark.kafka, pytest.mark.story]

RECORDS = 6_000
LAGS = (0, 100, 5_000)
CLASSIC, NEW = "classic", "consumer"


@pytest.fixture
def here(world, unique_topic, names):
    """A mirrored topic with values 0 to 5,999; aborted records in the middle shift the offsets."""
    here = world(
        unique_topic,
        **{
            f"{FLOW}.groups": f"{names('group')}.*",
            "sync.group.offsets.enabled": "true",
            "deltamirror.replay.chunk.records": "700",
        },
    )
    at = here.source.bootstrap_servers
    create_topic(at, unique_topic)
    values = [Record(b"k", b"%d" % n) for n in range(RECORDS)]
    produce(at, unique_topic, values[: RECORDS // 2])
    produce(at, unique_topic, values[:5], transactional_id=names("app"), commit=False)
    produce(at, unique_topic, values[RECORDS // 2 :])
    here.mirror()
    return here


def stop_at(here, topic, group, lag, metadata=""):
    """Commit offsets of *group* as if it had read all source records except the last *lag*."""
    offsets = [message.offset() for message in consume_all(here.source.bootstrap_servers, topic)]
    here.context.cluster("us-east").commit_offsets(
        group, {TopicPartition(topic, 0): ([*offsets, offsets[-1] + 1][-lag - 1], metadata)}
    )


def sync(here):
    """Read the source's groups, and sync them to the target."""
    context = here.context
    snapshot_groups(context, "us-east")
    return sync_groups(context, context.config.flow(FLOW))


def member(bootstrap, group, protocol=CLASSIC):
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )


def read_on(bootstrap, group, topic, protocol=CLASSIC, at_most=RECORDS):
    """Read as a member of *group* to the end or *at_most* values; commit, leave, return them."""
    consumer = member(bootstrap, group, protocol)
    consumer.subscribe([topic])
    values = []

    def is_over():
        messages = consumer.consume(at_most - len(values), timeout=0.1)
        errors = [message.error().code() for message in messages if message.error()]
        values.extend(int(message.value()) for message in messages if not message.error())
        assert set(errors) <= {KafkaError._PARTITION_EOF}
        return bool(errors) or len(values) == at_most

    try:
        until(is_over, f"{group} reads {topic} to its end")
        if values:
            consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return values


@pytest.mark.parametrize("protocol", [CLASSIC, NEW])
def test_each_group_resumes_at_its_next_record_regardless_of_its_lag(
    here, unique_topic, names, protocol
):
    groups = {lag: f"{names('group')}-{lag}" for lag in LAGS}
    for lag, group in groups.items():
        stop_at(here, unique_topic, group, lag)

    moved = sync(here).moved

    assert moved == dict.fromkeys(groups.values(), 1)
    for lag, group in groups.items():
        remote = here.remote(unique_topic)
        read = read_on(here.target.bootstrap_servers, group, remote, protocol)
        assert read == list(range(RECORDS - lag, RECORDS))


def test_a_group_of_the_new_protocol_is_synced(here, unique_topic, names):
    group = names("group")
    before = read_on(here.source.bootstrap_servers, group, unique_topic, NEW, at_most=1_234)
    until(lambda: sync(here).moved == {group: 1}, "the group is idle and moved")

    after = read_on(here.target.bootstrap_servers, group, here.remote(unique_topic), NEW)

    assert before + after == list(range(RECORDS))


def test_kafkas_console_consumer_resumes_at_the_next_record(here, unique_topic, names):
    stop_at(here, unique_topic, names("group"), lag=100)
    sync(here)

    read = console_consumer(
        here.target.bootstrap_servers, here.remote(unique_topic), names("group"), at_most=100
    )

    assert read == [str(n) for n in range(RECORDS - 100, RECORDS)]


def test_the_metadata_of_committed_offsets_is_synced(here, unique_topic, names):
    # Like Kafka Streams: base64 of a version and the stream's time.
    stop_at(here, unique_topic, names("group"), 100, metadata="AgAAAYvP5WgA")

    sync(here)

    (commit,) = here.context.cluster("eu-west").group_commits(names("group")).values()
    assert commit[1] == "AgAAAYvP5WgA"


def test_a_streams_group_is_synced_unless_it_is_active_on_the_target(here, unique_topic, names):
    remote, group = TopicPartition(here.remote(unique_topic), 0), names("group")
    target = here.context.cluster("eu-west")
    with mm2_tools() as gateway:
        source = here.source.bootstrap_servers
        before = RawMember(gateway, source, "Streams", group, unique_topic)
        before.join()
        before.leave()
        stop_at(here, unique_topic, group, lag=100, metadata="AgAAAYvP5WgA")
        at = here.target.bootstrap_servers
        after = RawMember(gateway, at, "Streams", group, remote.topic)
        after.join()

        assert sync(here).active == [group]
        assert target.group_commits(group) == {}

        after.leave()

    assert sync(here).moved == {group: 1}
    (offset, metadata) = target.group_commits(group)[remote]
    left = [each for each in consume_all(at, remote.topic) if each.offset() >= offset]
    assert (len(left), metadata) == (100, "AgAAAYvP5WgA")


def test_an_active_group_is_not_changed_until_its_members_are_gone(here, unique_topic, names):
    stop_at(here, unique_topic, names("group"), lag=100)
    remote = here.remote(unique_topic)
    consumer = member(here.target.bootstrap_servers, names("group"))
    try:
        consumer.subscribe([remote])
        until(lambda: consumer.poll(0.1) is not None, "the group has a member")
        consumer.commit(offsets=[KafkaPartition(remote, 0, 3)], asynchronous=False)

        assert sync(here).active == [names("group")]
        assert committed_offsets(here.target.bootstrap_servers, names("group")) == {(remote, 0): 3}
    finally:
        consumer.close()

    assert sync(here).moved == {names("group"): 1}
    read = read_on(here.target.bootstrap_servers, names("group"), remote)
    assert read == list(range(RECORDS - 100, RECORDS))


def test_a_group_that_is_ahead_on_the_target_is_not_moved_back(here, unique_topic, names):
    stop_at(here, unique_topic, names("group"), lag=100)
    remote = here.remote(unique_topic)
    end = high_watermarks(here.target.bootstrap_servers, remote)[0]
    commit_group(here.target.bootstrap_servers, names("group"), {(remote, 0): end})

    assert sync(here).moved == {}
    assert committed_offsets(here.target.bootstrap_servers, names("group")) == {(remote, 0): end}


def test_a_run_syncs_its_groups_before_it_ends(here, unique_topic, names):
    stop_at(here, unique_topic, names("group"), lag=100)

    here.mirror()

    read = read_on(
        here.target.bootstrap_servers, names("group"), here.remote(unique_topic), at_most=1
    )
    assert read == [RECORDS - 100]
