"""Records of compacted topics are written where MirrorMaker 2's tools read them."""

import pytest

from demo.kafka.processes import free_ports
from resources.kafka.cluster import KafkaCluster
from resources.kafka.compacted_topic import CompactedTopic
from schemas.errors.base import RequestRefusedError
from schemas.errors.environment import UnreachableError
from schemas.mm2.records import Checkpoint
from tests.support.brokers import consume_all, create_topic


@pytest.fixture
def topic(target, names):
    settings = {"bootstrap.servers": target.bootstrap_servers}
    return CompactedTopic(KafkaCluster("eu-west", settings), names("checkpoints"), settings)


@pytest.mark.kafka
def test_records_are_read_in_order_from_the_one_partition_of_a_compacted_topic(topic, target):
    written = [Checkpoint("g", "us-east.orders", 0, n, n * 2) for n in range(3)]
    topic.ensure_exists(replication_factor=1)
    topic.ensure_exists(replication_factor=1)

    topic.write((each.key, each.value) for each in written)

    name = topic._name
    found = consume_all(target.bootstrap_servers, name, isolation="read_uncommitted")
    assert [Checkpoint.read(record.key(), record.value()) for record in found] == written
    assert {record.partition() for record in found} == {0}
    cluster = KafkaCluster("eu-west", {"bootstrap.servers": target.bootstrap_servers})
    assert cluster.topic_configs([name])[name]["cleanup.policy"].value == "compact"


@pytest.mark.kafka
def test_a_producer_is_reused_until_a_write_fails(topic, target):
    topic.ensure_exists(replication_factor=1)

    topic.write([(b"k", b"1")])
    first = topic._producer
    topic.write([(b"k", b"2")])

    assert first is topic._producer
    with pytest.raises(RequestRefusedError):
        topic.write([(b"k", b"v" * 2**20)])
    topic.write([(b"k", b"3")])
    assert first is not topic._producer
    found = consume_all(target.bootstrap_servers, topic._name, isolation="read_uncommitted")
    assert [record.value() for record in found] == [b"1", b"2", b"3"]


@pytest.mark.kafka
def test_an_existing_topic_needs_no_create_permission(target, unique_topic):
    class Strict(KafkaCluster):
        def create_topic(self, *_):
            raise AssertionError("no request to create the topic is expected")

    settings = {"bootstrap.servers": target.bootstrap_servers}
    create_topic(target.bootstrap_servers, unique_topic)

    CompactedTopic(Strict("eu-west", settings), unique_topic, settings).ensure_exists(1)


@pytest.mark.kafka
def test_a_refused_record_raises_an_error_with_cluster_and_topic(target, unique_topic):
    create_topic(target.bootstrap_servers, unique_topic, max_message_bytes=100)
    settings = {"bootstrap.servers": target.bootstrap_servers}
    topic = CompactedTopic(KafkaCluster("eu-west", settings), unique_topic, settings)

    with pytest.raises(RequestRefusedError, match=f"eu-west refused to accept .* {unique_topic}"):
        topic.write([(b"k", b"v" * 1000)])


def test_a_cluster_that_is_down_raises_unreachable_error_in_time(monkeypatch):
    monkeypatch.setattr("resources.kafka.compacted_topic.REQUEST_TIMEOUT_S", 1.0)
    settings = {"bootstrap.servers": f"127.0.0.1:{free_ports(1)[0]}"}
    topic = CompactedTopic(KafkaCluster("eu-west", settings), "checkpoints", settings)

    with pytest.raises(UnreachableError, match="eu-west"):
        topic.write([(b"k", b"v")])
