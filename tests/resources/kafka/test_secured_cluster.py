"""Clients with the security settings of the configuration file connect to a secured broker."""

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from demo.kafka.brokers import Broker, running_brokers
from demo.kafka.processes import free_ports
from resources.config.load import read_config

MODULES = "org.apache.kafka.common.security"
PASSWORD = "p w;'=x"
LISTENER = "listener.name.sasl_plaintext"

FILE = r"""
clusters = us-east, eu-west
us-east.bootstrap.servers = {servers}
eu-west.bootstrap.servers = {servers}
us-east->eu-west.enabled = true
security.protocol = sasl_plaintext
sasl.mechanism = PLAIN
sasl.jaas.config = org.apache.kafka.common.security.plain.PlainLoginModule required \
    username="mirror" password="${{env:MIRROR_PASSWORD}}";
us-east.consumer.fetch.max.wait.ms = 50
eu-west.producer.buffer.memory = 67108864
"""


@pytest.fixture
def secured(tmp_path):
    """Yield the address of a broker that accepts only the user `mirror`."""
    broker = Broker("secured", tmp_path / "secured")
    controller, sasl = free_ports(2)
    plain = broker.bootstrap_servers
    broker.properties |= {
        "listeners": f"PLAINTEXT://{plain},CONTROLLER://127.0.0.1:{controller},"
        f"SASL_PLAINTEXT://127.0.0.1:{sasl}",
        "advertised.listeners": f"PLAINTEXT://{plain},SASL_PLAINTEXT://127.0.0.1:{sasl}",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        f"{LISTENER}.sasl.enabled.mechanisms": "PLAIN",
        f"{LISTENER}.plain.sasl.jaas.config": f"{MODULES}.plain.PlainLoginModule required "
        f'user_mirror="{PASSWORD}";',
    }
    with running_brokers(broker):
        yield f"127.0.0.1:{sasl}"


@pytest.mark.kafka
def test_consumer_producer_and_admin_client_log_in_with_the_configured_credentials(
    secured, tmp_path, monkeypatch
):
    monkeypatch.setenv("MIRROR_PASSWORD", PASSWORD)
    path = tmp_path / "mm2.properties"
    path.write_text(FILE.format(servers=secured))
    config = read_config(path)
    source, target = config.clusters["us-east"], config.clusters["eu-west"]

    admin = AdminClient(dict(target.admin))
    producer = Producer(dict(config.flow("us-east->eu-west").producer))
    consumer = Consumer({**source.consumer, "group.id": "g"})

    assert admin.list_topics(timeout=10).brokers
    assert producer.list_topics(timeout=10).brokers
    assert consumer.list_topics(timeout=10).brokers
    consumer.close()
