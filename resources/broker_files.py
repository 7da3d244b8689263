"""What a local Kafka broker is told: its server.properties and its logging."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

# One broker, few threads, little memory: enough for a demo, and two fit beside Spark.
_PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "inter.broker.listener.name": "PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": (
        "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,"
        "SASL_SSL:SASL_SSL,SSL:SSL"
    ),
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "2",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    # The default cleaner takes 128 MB for itself.
    "log.cleaner.threads": "1",
    "log.cleaner.dedupe.buffer.size": "2097152",
    "log.cleaner.io.buffer.size": "65536",
    # After kill -9 the controller waits for the former session to end: 5 s instead of 14.5 s.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "200",
}

# Warnings, errors, and the one line that says that a broker is ready.
LOGGING = """\
status=error
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d %p %m (%c{1})%n%ex
rootLogger.level=WARN
rootLogger.appenderRef.out.ref=out
logger.ready.name=kafka.server.KafkaRaftServer
logger.ready.level=INFO
"""


def write_files(home: Path, port: int, controller_port: int, properties: Mapping[str, str]) -> None:
    """Write `server.properties` and `log4j2.properties` into *home*; *properties* win."""
    home.mkdir(parents=True, exist_ok=True)
    settings = {
        **_PROPERTIES,
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "log.dirs": str(home / "data"),
        **properties,
    }
    lines = "".join(f"{key}={value}\n" for key, value in settings.items())
    (home / "server.properties").write_text(lines)
    (home / "log4j2.properties").write_text(LOGGING)
