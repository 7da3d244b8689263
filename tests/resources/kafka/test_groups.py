import socket
import struct
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaPartition

from resources.kafka import groups
from resources.kafka.cluster import KafkaCluster
from schemas.errors.base import GroupActiveError, RequestRefusedError
from schemas.errors.environment import UnreachableError
from schemas.kafka.partition import TopicPartition
from tests.support.brokers import cli_environment, create_topic
from tests.support.mm2_java_classes import mm2_tools
from tests.support.raw_groups import RawMember
from tests.support.world import until

pytestmark = pytest.mark.kafka


@pytest.fixture
def cluster(source):
    return KafkaCluster("us-east", {"bootstrap.servers": source.bootstrap_servers})


@pytest.fixture
def orders(source, unique_topic):
    create_topic(source.bootstrap_servers, unique_topic, partitions=2)
    return unique_topic


@pytest.fixture
def bootstrap(source):
    return source.bootstrap_servers


def test_offsets_of_a_new_group_are_set_and_read_back_with_metadata(cluster, orders, names):
    first, second = TopicPartition(orders, 0), TopicPartition(orders, 1)
    cluster.commit_offsets(names("group"), {first: (7, "1:AbCdEf0123456789-_Zz:x")})

    read = cluster.committed_offsets(names("group"), [first, second])

    assert read == {first: (7, "1:AbCdEf0123456789-_Zz:x"), second: None}
    assert cluster.group_offsets(names("group")) == {first: 7}
    assert cluster.groups()[names("group")] == "EMPTY"


@pytest.mark.story  # it starts a JVM
def test_streams_groups_are_listed_and_share_groups_have_no_offsets(cluster, orders, names):
    with mm2_tools() as gateway:
        servers = cluster._admin.servers
        streams = RawMember(gateway, servers, "Streams", names("Streams"), orders)
        share = RawMember(gateway, servers, "Share", names("Share"), orders)
        share.join()
        streams.join()
        streams.leave()
        cluster.commit_offsets(names("Streams"), {TopicPartition(orders, 0): (7, "md")})

        found = cluster.groups()

        assert [found[names(kind)] for kind in ("Streams", "Share")] == ["UNKNOWN", "UNKNOWN"]
        assert cluster.group_commits(names("Streams")) == {TopicPartition(orders, 0): (7, "md")}
        assert cluster.group_commits(names("Share")) == {}
        share.leave()


def test_offsets_of_the_first_group_of_a_fresh_cluster_are_set_after_a_coordinator_is_elected(
    make_broker,
):
    servers = make_broker("fresh").bootstrap_servers
    create_topic(servers, "wide", partitions=60)
    fresh = KafkaCluster("eu-west", {"bootstrap.servers": servers})

    fresh.commit_offsets("first", {TopicPartition("wide", 0): (7, "")})

    assert fresh.group_offsets("first") == {TopicPartition("wide", 0): 7}


@pytest.mark.parametrize("attempt", range(2))
def test_the_first_request_for_a_group_of_a_fresh_cluster_succeeds(make_broker, attempt):
    # Use a new process: librdkafka's admin client crashes in three of four attempts.
    servers = make_broker(f"fresh-{attempt}").bootstrap_servers

    asked = _asked(servers, "cluster.committed_offsets('g', [TopicPartition('x', 0)])")
    assert asked.endswith(": None}")
    assert _asked(servers, "cluster.group_offsets('another')") == "{}"


def test_a_request_during_an_outage_of_the_cluster_succeeds_when_it_is_back(make_broker):
    # A timed-out request of librdkafka crashes the process when the broker is back.
    broker = make_broker("away")

    printed = _asked(
        broker.bootstrap_servers,
        "cluster.probe()",
        f"os.kill({broker.pid}, signal.SIGSTOP)",
        f"threading.Timer(3, os.kill, ({broker.pid}, signal.SIGCONT)).start()",
        "[cluster.group_offsets(f'g{n}') for n in range(5)]",
    )

    assert printed == "[{}, {}, {}, {}, {}]"


def test_clients_without_a_response_end_and_an_unreachable_cluster_is_reported_in_time(
    make_broker, monkeypatch
):
    monkeypatch.setattr(groups, "COORDINATOR_TIMEOUT_S", 4.0)
    broker = make_broker("lost")
    lost = KafkaCluster("eu-west", {"bootstrap.servers": broker.bootstrap_servers})
    lost.probe()
    broker.kill()
    before = _clients_alive()

    with pytest.raises(UnreachableError, match="eu-west"):
        lost.group_offsets("g")

    until(lambda: _clients_alive() <= before, "the clients that had no answer have ended")


def _clients_alive():
    """Return the number of librdkafka clients of this process; each has one main thread."""
    alive = 0
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # the thread has ended since it was listed
            alive += (thread / "comm").read_text() == "rdk:main\n"
    return alive


def _asked(servers, *lines):
    """Return the value of the last of *lines*, evaluated in a new process, which may crash."""
    code = "\n".join(
        [
            "import os, signal, threading",
            "from resources.kafka.cluster import KafkaCluster",
            "from schemas.kafka.partition import TopicPartition",
            f"cluster = KafkaCluster('eu-west', {{'bootstrap.servers': {servers!r}}})",
            *lines[:-1],
            f"print({lines[-1]})",
        ]
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=cli_environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def test_an_unknown_group_has_no_commits(cluster, orders, names):
    assert cluster.committed_offsets(names("new"), [TopicPartition(orders, 0)]) == {
        TopicPartition(orders, 0): None
    }
    assert cluster.group_offsets(names("new")) == {}


def test_progress_is_that_of_the_last_committed_transaction(cluster, bootstrap, orders, names):
    partition, group = TopicPartition(orders, 0), names("progress")
    cluster.commit_offsets(group, {partition: (0, "")})
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": names("writer")})
    producer.init_transactions(10)
    metadata = consumer.consumer_group_metadata()
    for progress in range(1, 21):
        producer.begin_transaction()
        producer.produce(orders, b"v", partition=0)
        producer.send_offsets_to_transaction(
            [KafkaPartition(orders, 0, progress, f"at {progress}")], metadata, 10
        )
        producer.commit_transaction(10)

        # The response to a commit arrives before its marker, so the group is unstable for a moment.
        assert cluster.committed_offsets(group, [partition]) == {
            partition: (progress, f"at {progress}")
        }
    consumer.close()


def test_a_read_waits_for_an_open_transaction_and_then_reports_it(
    cluster, bootstrap, orders, names, monkeypatch
):
    monkeypatch.setattr(groups, "REQUEST_TIMEOUT_S", 0.5)
    partition, group = TopicPartition(orders, 0), names("progress")
    cluster.commit_offsets(group, {partition: (3, "")})
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": names("writer")})
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.send_offsets_to_transaction(
        [KafkaPartition(orders, 0, 9)], consumer.consumer_group_metadata(), 10
    )

    with pytest.raises(RequestRefusedError, match="UNSTABLE_OFFSET_COMMIT"):
        cluster.committed_offsets(group, [partition])

    assert cluster.committed_offsets(group, [partition], require_stable=False) == {
        partition: (3, "")
    }
    producer.abort_transaction(10)
    consumer.close()


def test_offsets_of_a_group_with_members_are_not_changed(cluster, bootstrap, orders, names):
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": names("busy")})
    consumer.subscribe([orders])
    give_up_at = time.monotonic() + 30
    while not consumer.assignment() and time.monotonic() < give_up_at:
        consumer.poll(0.1)

    try:
        with pytest.raises(GroupActiveError, match=names("busy")):
            cluster.commit_offsets(names("busy"), {TopicPartition(orders, 0): (1, "")})
    finally:
        consumer.close()


def test_offsets_that_another_client_committed_with_metadata_are_read(cluster, source, names):
    topic, group = names("wide"), names("streams")
    create_topic(source.bootstrap_servers, topic, partitions=60)
    wanted = {TopicPartition(topic, n): 100 + n for n in range(60)}
    cluster.commit_offsets(names("first"), {TopicPartition(topic, 0): (0, "")})
    _commit_as_java_does(source.bootstrap_servers, group, wanted, metadata="md")

    assert cluster.group_offsets(group) == wanted
    assert cluster.committed_offsets(group, wanted) == {
        each: (at, "md") for each, at in wanted.items()
    }


def _commit_as_java_does(bootstrap, group, offsets, metadata):
    """Send OffsetCommit 2. Its metadata does not end with a NUL byte, unlike confluent-kafka's."""

    def text(word):
        return struct.pack(">h", len(word)) + word.encode()

    [topic] = {each.topic for each in offsets}
    body = text(group) + struct.pack(">i", -1) + text("") + struct.pack(">q", -1)
    body += struct.pack(">i", 1) + text(topic) + struct.pack(">i", len(offsets))
    for each, offset in offsets.items():
        body += struct.pack(">iq", each.partition, offset) + text(metadata)
    request = struct.pack(">hhi", 8, 2, 1) + text("java") + body
    host, port = bootstrap.split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        stream = connection.makefile("rb")
        answer = stream.read(*struct.unpack(">i", stream.read(4)))
    errors = [struct.unpack(">h", answer[-6 * n + 4 :][:2])[0] for n in range(1, len(offsets) + 1)]
    assert errors == [0] * len(offsets)
