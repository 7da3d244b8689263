import dataclasses
import gc
import socket

import pytest
from confluent_kafka import OFFSET_INVALID, Producer, Uuid

from demo.kafka.brokers import Broker, running_brokers
from demo.kafka.processes import free_ports
from resources.kafka import cluster as cluster_module
from resources.kafka import topics as topics_module
from resources.kafka.admin_session import topic_id_text
from resources.kafka.cluster import KafkaCluster
from schemas.errors.base import ConfigError, RequestRefusedError
from schemas.errors.environment import LoginRefusedError, UnreachableError
from schemas.errors.source import TopicMissingError
from schemas.errors.target import TargetTopicError
from schemas.kafka.partition import TopicPartition, Watermarks
from schemas.kafka.topic import Topic, TopicSpec
from tests.support.brokers import Record, create_topic, delete_topic, produce
from tests.support.unclean_leader import elect_again, watermarks

FIVE = [Record(b"k", b"v%d" % n, timestamp=1_000 * n) for n in range(1, 6)]


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


pytestmark = pytest.mark.kafka


# Connections


def test_a_probe_returns_when_the_cluster_answers(cluster):
    cluster.probe()


def test_a_probe_without_an_answer_raises_an_error_in_time_with_alias_servers_and_reason():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        servers = f"127.0.0.1:{taken.getsockname()[1]}"
        unreachable = KafkaCluster("eu-west", {"bootstrap.servers": servers})

        with pytest.raises(UnreachableError, match=rf"eu-west \({servers}\).*refused"):
            unreachable.probe(timeout_s=1.0)


def test_a_failed_login_raises_an_error_without_its_secret(tmp_path):
    broker, port = Broker("secured", tmp_path / "secured"), free_ports(1)[0]
    controller = f"CONTROLLER://127.0.0.1:{broker._state.controller_port}"
    plain, secured = f"PLAINTEXT://{broker.bootstrap_servers}", f"SASL_PLAINTEXT://127.0.0.1:{port}"
    broker.properties |= {
        "listeners": f"{plain},{secured},{controller}",
        "advertised.listeners": f"{plain},{secured}",
        "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            'user_mirror="right-secret";'
        ),
    }
    with running_brokers(broker):
        KafkaCluster("us-east", _login(f"127.0.0.1:{port}", "mirror", "right-secret")).probe()
        stranger = KafkaCluster("us-east", _login(f"127.0.0.1:{port}", "mirror", "wrong-secret"))

        with pytest.raises(LoginRefusedError, match="password is wrong") as raised:
            stranger.probe()

    assert "secret" not in str(raised.value)


def _login(servers, user, password):
    return {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": password,
    }


def test_a_setting_that_the_client_does_not_know_is_a_configuration_error(bootstrap):
    with pytest.raises(ConfigError, match=r"us-east: .*no\.such"):
        KafkaCluster("us-east", {"bootstrap.servers": bootstrap, "no.such": 1}).probe()


# Topics


def test_topics_are_returned_with_their_ids_and_partitions(cluster, orders):
    found = cluster.topics([orders, "not-there"])

    assert found == {orders: Topic(orders, found[orders].topic_id, 2, is_internal=False)}
    assert cluster.topics()[orders] == found[orders]


def test_listing_topics_again_and_again_leaves_no_topic_ids_in_memory(cluster, orders):
    def left():
        gc.collect()
        return sum(isinstance(each, Uuid) for each in gc.get_objects())

    cluster.topics()
    before = left()
    for _ in range(5):
        assert cluster.topics()[orders].topic_id
    assert left() == before


def test_describing_a_missing_topic_does_not_create_it(cluster, names):
    assert cluster.topics([names("ghost")]) == {}
    assert names("ghost") not in cluster.topics()


def test_a_recreated_topic_has_another_id(cluster, bootstrap, names):
    first = cluster.create_topic(names(), 1, 1, {})
    delete_topic(bootstrap, names())

    assert cluster.create_topic(names(), 1, 1, {}) != first


def test_many_topics_are_described_in_batches(cluster, names, monkeypatch):
    monkeypatch.setattr(topics_module, "BATCH_SIZE", 2)
    made = {names(f"t{n}"): cluster.create_topic(names(f"t{n}"), 1, 1, {}) for n in range(5)}

    assert {name: topic.topic_id for name, topic in cluster.topics(made).items()} == made
    assert cluster.topic_configs(made).keys() == made.keys()


@pytest.mark.parametrize(
    ("text", "topic_id"),
    [
        pytest.param("A/b+AAAAAAAAAAAAAAAAAA", "A_b-AAAAAAAAAAAAAAAAAA", id="in Kafka's alphabet"),
        pytest.param("A" * 22, "none", id="the zero id of a cluster without ids"),
        pytest.param(None, "none", id="no id"),
    ],
)
def test_a_topic_id_is_written_as_kafkas_own_tools_write_it(text, topic_id):
    assert topic_id_text(text) == topic_id


def test_each_of_many_created_topics_has_its_own_result(cluster, names, monkeypatch):
    monkeypatch.setattr(topics_module, "BATCH_SIZE", 3)
    there = cluster.create_topic(names("t0"), 1, 1, {})
    wanted = [TopicSpec(names(f"t{n}"), 2, 1, {}) for n in range(7)]
    wanted[4] = dataclasses.replace(wanted[4], configs={"no.such.setting": "1"})

    made = cluster.create_topics(wanted)

    assert made.keys() == {topic.name for topic in wanted}
    assert made[names("t0")] == there
    refused = made.pop(names("t4"))
    assert isinstance(refused, TargetTopicError)
    assert {name: topic.topic_id for name, topic in cluster.topics(made).items()} == made


@pytest.mark.parametrize(
    ("partitions", "batches"),
    [
        pytest.param([1] * 7, [3, 3, 1], id="so many topics"),
        pytest.param([6, 4, 1, 9, 2], [2, 2, 1], id="so many partitions"),
        pytest.param([25, 1], [1, 1], id="one too large for any"),
        pytest.param([], [], id="none"),
    ],
)
def test_a_create_request_is_limited_in_topics_and_partitions(monkeypatch, partitions, batches):
    monkeypatch.setattr(topics_module, "BATCH_SIZE", 3)
    monkeypatch.setattr(topics_module, "BATCH_PARTITIONS", 10)
    wanted = [TopicSpec(str(n), count, 1, {}) for n, count in enumerate(partitions)]

    made = list(topics_module._create_batches(wanted))

    assert [len(batch) for batch in made] == batches
    assert [topic for batch in made for topic in batch] == wanted


def test_creating_an_existing_topic_returns_its_id_and_does_not_change_it(cluster, names):
    first = cluster.create_topic(names(), 2, 1, {"cleanup.policy": "compact"})

    assert cluster.create_topic(names(), 7, 1, {}) == first
    assert cluster.topics([names()])[names()].partitions == 2


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        pytest.param((1, 1, {"no.such.setting": "1"}), "INVALID_CONFIG", id="unknown setting"),
        pytest.param((1, 5, {}), "INVALID_REPLICATION_FACTOR", id="too few brokers"),
    ],
)
def test_a_refused_topic_has_its_own_error(cluster, names, arguments, reason):
    with pytest.raises(TargetTopicError, match=rf"us-east .*{names()}.*{reason}"):
        cluster.create_topic(names(), *arguments)


def test_partitions_are_added_once(cluster, names):
    cluster.create_topic(names(), 1, -1, {})
    cluster.add_partitions(names(), 3)
    cluster.add_partitions(names(), 3)
    cluster.add_partitions(names(), 2)

    assert cluster.topics([names()])[names()].partitions == 3


def test_partitions_cannot_be_added_to_a_missing_topic(cluster, names):
    with pytest.raises(TargetTopicError, match=names()):
        cluster.add_partitions(names(), 3)


def test_topic_configs_have_their_source(cluster, names):
    cluster.create_topic(names(), 1, 1, {"retention.ms": "-1"})

    found = cluster.topic_configs([names(), "not-there"])

    assert found.keys() == {names()}
    own, default = found[names()]["retention.ms"], found[names()]["segment.bytes"]
    assert (own.value, own.source, own.is_default) == ("-1", "DYNAMIC_TOPIC_CONFIG", False)
    assert (default.source, default.is_default) == ("DEFAULT_CONFIG", True)


# Offsets


def test_watermarks_are_returned_and_a_missing_partition_has_its_own_error(
    cluster, bootstrap, orders
):
    produce(bootstrap, orders, FIVE)
    there, empty = TopicPartition(orders, 0), TopicPartition(orders, 1)
    absent = [TopicPartition(orders, 9), TopicPartition("not-there", 0)]

    found = cluster.watermarks([there, empty, *absent])

    assert found[there] == Watermarks(0, 5, 5, leader_epoch=0)
    assert (found[empty].low, found[empty].high) == (0, 0)
    assert all(isinstance(found[each], TopicMissingError) for each in absent)


def test_known_watermarks_are_returned_while_the_last_stable_offset_is_unchanged(
    cluster, bootstrap, orders
):
    idle, busy = TopicPartition(orders, 0), TopicPartition(orders, 1)
    more = [record._replace(partition=1) for record in FIVE]
    produce(bootstrap, orders, [*FIVE, *more])
    known = {
        p: dataclasses.replace(marks, low=3)
        for p, marks in cluster.watermarks([idle, busy]).items()
    }
    produce(bootstrap, orders, more)

    found = cluster.watermarks([idle, busy], known)

    assert found == {idle: Watermarks(3, 5, 5, 0), busy: Watermarks(0, 10, 10, 0)}


def test_the_last_stable_offset_stays_before_an_open_transaction(cluster, bootstrap, orders, names):
    produce(bootstrap, orders, FIVE)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": names("open")})
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce(orders, b"pending", partition=0)
    producer.flush(10)

    found = cluster.watermarks([TopicPartition(orders, 0)])
    producer.abort_transaction(10)

    assert found == {TopicPartition(orders, 0): Watermarks(0, 5, 6, leader_epoch=0)}


@pytest.mark.parametrize(
    ("low", "stable", "high", "fits"),
    [
        pytest.param(2, 9, 5, (2, 5, 5), id="truncated below the last stable offset"),
        pytest.param(7, 9, 5, (5, 5, 5), id="truncated below the log start"),
        pytest.param(7, 9, 9, (7, 9, 9), id="nothing happened"),
    ],
)
def test_watermarks_from_before_a_truncation_are_limited_by_the_high_watermark(
    low, stable, high, fits
):
    answers = [
        cluster_module.ListOffsetsResultInfo(offset, -1, 3) for offset in (low, stable, high)
    ]

    assert cluster_module._watermarks(*answers) == Watermarks(*fits, leader_epoch=3)


@pytest.mark.timeout(90)  # one timeout per partition would take 150 s
def test_all_partitions_of_a_frozen_cluster_fail_after_a_single_timeout(make_broker, monkeypatch):
    source = make_broker("frozen")  # not shared: after a freeze a broker may be down for a while
    monkeypatch.setattr(cluster_module, "REQUEST_TIMEOUT_S", 1.0)
    frozen = KafkaCluster("us-east", {"bootstrap.servers": source.bootstrap_servers})
    partitions = [TopicPartition("a", number) for number in range(150)]
    source.freeze()
    try:
        found = frozen.watermarks(partitions)
    finally:
        source.thaw()

    assert all(isinstance(found[each], UnreachableError) for each in partitions)


@pytest.mark.story
def test_offsets_are_returned_even_if_the_client_knew_an_earlier_leader(make_broker, names):
    broker, orders = make_broker("elected"), TopicPartition(names("orders"), 0)
    create_topic(broker.bootstrap_servers, orders.topic)
    first = watermarks(broker, orders).leader_epoch
    broker.kill()
    broker.start()
    elect_again(broker, orders, first)
    cluster = KafkaCluster("us-east", {"bootstrap.servers": broker.bootstrap_servers})
    assert isinstance(cluster.watermarks([orders])[orders], Watermarks)

    # The leader epochs of the next incarnation start again, below those that the client knows.
    delete_topic(broker.bootstrap_servers, orders.topic)
    create_topic(broker.bootstrap_servers, orders.topic)
    produce(broker.bootstrap_servers, orders.topic, FIVE)

    assert cluster.watermarks([orders])[orders] == Watermarks(0, 5, 5, 0)


@pytest.mark.parametrize("way", ["created", "expanded"])
def test_create_topics_waits_until_the_leader_of_each_partition_accepts_requests(
    cluster, unique_topic, monkeypatch, way
):
    ask, last = cluster._request_offsets, TopicPartition(unique_topic, 2)
    refused = []

    def late(specs, *rest):
        found, failures = ask(specs, *rest)
        if last in found and len(refused) < 5:
            refused.append(found.pop(last))
            code = "NOT_LEADER_FOR_PARTITION"
            failures[last] = RequestRefusedError(
                "us-east", action=f"list offsets of {last}", code=code, reason=""
            )
        return found, failures

    monkeypatch.setattr(cluster, "_request_offsets", late)
    if way == "expanded":
        cluster.create_topic(unique_topic, 1, 1, {})
        cluster.add_partitions(unique_topic, 3)
    else:
        cluster.create_topic(unique_topic, 3, 1, {})

    assert len(refused) == 5
    assert isinstance(cluster.watermarks([last])[last], Watermarks)


def test_an_invalid_offset_set_by_the_client_is_an_error(cluster, orders, monkeypatch):
    wait_result = cluster._admin.wait_result

    def without_an_offset(future, what, *rest):
        answer = wait_result(future, what, *rest)
        if what == f"list offsets of {orders}[1]":
            answer.offset = OFFSET_INVALID
        return answer

    monkeypatch.setattr(cluster._admin, "wait_result", without_an_offset)
    found = cluster.watermarks([TopicPartition(orders, 0), TopicPartition(orders, 1)])

    assert found[TopicPartition(orders, 0)] == Watermarks(0, 0, 0, 0)
    assert isinstance(found[TopicPartition(orders, 1)], UnreachableError)
