import json
import os
import signal
import subprocess
import sys

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from demo.kafka.brokers import Broker, brokers, start_brokers, stop_brokers
from demo.kafka.processes import free_ports, started_at
from schemas.errors.environment import BrokerStartError
from tests.support.brokers import (
    Record,
    commit_group,
    committed_offsets,
    consume_all,
    create_topic,
    high_watermarks,
    produce,
)

pytestmark = pytest.mark.kafka

THREE = [Record(b"k", b"0"), Record(None, b"1", [("h", b"x"), ("h", None)]), Record(b"k", None)]


def values(bootstrap, topic, isolation="read_committed"):
    return [message.value() for message in consume_all(bootstrap, topic, isolation)]


def answers(broker, within_s=30):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    try:
        admin.list_topics(timeout=within_s)
    except KafkaException:
        return False
    return True


def test_source_and_target_are_two_clusters(source, target):
    assert source.bootstrap_servers != target.bootstrap_servers
    assert source.cluster_id != target.cluster_id


def test_what_is_produced_is_read_back_in_order_with_key_headers_and_timestamp(source, names):
    topic = names("orders")
    create_topic(source.bootstrap_servers, topic, partitions=2)

    produce(source.bootstrap_servers, topic, [*THREE, Record(b"p", b"1", (), 5, 1)])

    read = consume_all(source.bootstrap_servers, topic)
    assert [(m.partition(), m.offset(), m.key(), m.value()) for m in read] == [
        (0, 0, b"k", b"0"),
        (0, 1, None, b"1"),
        (0, 2, b"k", None),
        (1, 0, b"p", b"1"),
    ]
    assert read[1].headers() == [("h", b"x"), ("h", None)]
    assert read[3].timestamp()[1] == 5


def test_only_a_read_uncommitted_reader_sees_an_aborted_transaction(source, names):
    topic = names("orders")
    create_topic(source.bootstrap_servers, topic)
    produce(source.bootstrap_servers, topic, [Record(b"", b"kept")], transactional_id=names("t"))

    produce(
        source.bootstrap_servers,
        topic,
        [Record(b"", b"gone")],
        transactional_id=names("t"),
        commit=False,
    )

    assert values(source.bootstrap_servers, topic) == [b"kept"]
    assert values(source.bootstrap_servers, topic, "read_uncommitted") == [b"kept", b"gone"]


def test_a_group_has_the_offsets_that_were_committed(source, names):
    topic, group = names("orders"), names("group")
    create_topic(source.bootstrap_servers, topic, partitions=2)

    commit_group(source.bootstrap_servers, group, {(topic, 0): 7, (topic, 1): 0})

    assert committed_offsets(source.bootstrap_servers, group) == {(topic, 0): 7, (topic, 1): 0}


def test_a_broker_restarts_on_its_port_with_its_records_after_a_stop_or_a_kill(make_broker):
    broker = make_broker("east")
    where, cluster_id = broker.bootstrap_servers, broker.cluster_id
    create_topic(where, "orders")
    produce(where, "orders", THREE)
    for end in (broker.kill, broker.stop):
        former = broker.pid
        end()
        assert broker.pid is None
        assert started_at(former) is None

        broker.start()

        assert broker.bootstrap_servers == where
        assert broker.pid != former
        assert high_watermarks(where, "orders") == {0: 3}
    assert broker.cluster_id == cluster_id


def test_a_frozen_broker_does_not_answer_until_it_is_thawed(make_broker):
    broker = make_broker("east")

    broker.freeze()
    silent = not answers(broker, within_s=1)
    broker.thaw()

    assert silent
    assert answers(broker)


def test_a_frozen_broker_can_be_stopped(make_broker):
    broker = make_broker("east")
    broker.freeze()

    broker.stop()

    assert broker.pid is None


def test_a_broker_that_does_not_start_raises_the_cause_and_leaves_no_process(tmp_path):
    broker = Broker("east", tmp_path / "east", properties={"log.segment.bytes": "never"})

    with pytest.raises(BrokerStartError, match=r"log\.segment\.bytes") as error:
        broker.start()

    assert broker.pid is None
    assert str(broker.log) in error.value.hint


def test_extra_properties_reach_the_broker(make_broker):
    broker = make_broker("east", properties={"message.max.bytes": "2000"})
    create_topic(broker.bootstrap_servers, "orders")

    with pytest.raises(KafkaException, match="MSG_SIZE_TOO_LARGE"):
        produce(broker.bootstrap_servers, "orders", [Record(None, os.urandom(3000))])


def test_started_brokers_outlive_their_process_until_they_are_stopped(tmp_path):
    script = "import sys; from pathlib import Path; from demo.kafka.brokers import start_brokers\n"
    script += "start_brokers(['east', 'west'], Path(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", script, tmp_path], check=True, timeout=150)
    try:
        left = brokers(tmp_path)
        assert [broker.name for broker in left] == ["east", "west"]
        assert all(answers(broker) for broker in left)
        pids = [broker.pid for broker in left]

        servers = start_brokers(["east", "west"], tmp_path)

        assert servers == {broker.name: broker.bootstrap_servers for broker in left}
        assert [broker.pid for broker in brokers(tmp_path)] == pids
    finally:
        stopped = stop_brokers(tmp_path)
    assert stopped == ["east", "west"]
    assert [broker.pid for broker in brokers(tmp_path)] == [None, None]
    assert stop_brokers(tmp_path, forget=True) == []
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_reuses_a_brokers_process_id_is_not_ended(tmp_path):
    home = tmp_path / "east"
    home.mkdir()
    other = subprocess.Popen(["sleep", "60"])
    state = {"port": 20000, "controller_port": 20001, "cluster_id": "K", "pid": other.pid}
    (home / "broker.json").write_text(json.dumps({**state, "started": "long ago"}))
    try:
        assert stop_brokers(tmp_path) == []
        assert other.poll() is None
    finally:
        other.send_signal(signal.SIGKILL)
        other.wait()


def test_free_ports_differ_and_are_below_the_ephemeral_range():
    ports = free_ports(20)

    assert len(set(ports)) == 20
    assert max(ports) < 32_768


def test_a_free_port_is_returned_once_even_if_it_is_still_unused():
    ports = [port for _ in range(60) for port in free_ports(10)]

    assert len(set(ports)) == len(ports)


def test_a_process_that_ended_has_no_start_time():
    process = subprocess.Popen(["true"])
    process.wait()

    assert started_at(process.pid) is None
    assert started_at(os.getpid()) is not None


@pytest.mark.kafka
def test_a_broker_stops_even_if_its_parent_ignores_sigterm(tmp_path):
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        broker = Broker("deaf", tmp_path / "deaf").start()
    finally:
        signal.signal(signal.SIGTERM, before)
    try:
        broker.stop()
        assert broker.pid is None
    finally:
        broker.kill()
