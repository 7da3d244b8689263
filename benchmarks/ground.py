"""Set-up of every measure: two real brokers, filled topics, one configuration per round."""

from __future__ import annotations

import contextlib
import functools
import random
import string
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from demo.kafka.brokers import Broker, running_brokers
from resources.config.load import read_config
from schemas.config.config import Config

PARTITIONS = 4
TARGET = "target"
HEAP_MB = 512

_ANSWER_S = 30.0
_SEED = 7
_LETTERS_BYTES = 4 * 2**20


@dataclass(frozen=True)
class Ground:
    """A source and a target broker on this machine, and a folder for lakes."""

    home: Path
    source: Broker
    target: Broker

    @property
    def broker_pids(self) -> list[int]:
        """Return the process ids of the brokers."""
        return [pid for pid in (self.source.pid, self.target.pid) if pid is not None]

    def settings_file(self, alias: str, topic: str) -> Path:
        """Write the file of a flow that mirrors *topic* into its own lake; return its path.

        Each call gives the source broker another *alias*. So remote topics, progress and lake are
        new each time, while the source is filled only once.
        """
        folder = self.home / alias
        folder.mkdir()
        file = folder / "mm2.properties"
        file.write_text(
            f"clusters = {alias}, {TARGET}\n"
            f"{alias}.bootstrap.servers = {self.source.bootstrap_servers}\n"
            f"{TARGET}.bootstrap.servers = {self.target.bootstrap_servers}\n"
            f"{alias}->{TARGET}.enabled = true\n"
            f"{alias}->{TARGET}.topics = {topic}\n"
            "replication.factor = 1\n"
            "checkpoints.topic.replication.factor = 1\n"
            "emit.heartbeats.enabled = false\n"
        )
        return file

    def config(self, alias: str, topic: str) -> Config:
        """Write the file with `settings_file`; return its configuration."""
        return read_config(self.settings_file(alias, topic))

    def fill(
        self,
        topic: str,
        records: int,
        size_bytes: int,
        *,
        partitions: int = PARTITIONS,
        compression: str = "none",
    ) -> None:
        """Create *topic* and write *records* with 10-byte keys and values of *size_bytes*.

        Values are cut from 4 MiB of random letters, so that they compress to about three quarters,
        as base64 does. A record's key is its number. Records go to the partitions in turn.
        """
        make_topic(self.source, topic, partitions)
        self.write(topic, range(records), size_bytes, partitions, compression)

    def write(
        self,
        topic: str,
        numbers: range,
        size_bytes: int,
        partitions: int = PARTITIONS,
        compression: str = "none",
        random_bytes: int | None = None,
    ) -> None:
        """Write the records *numbers* as `fill` does.

        If *random_bytes* is given, only so many bytes of a value are random letters.
        """
        letters = _letters()
        producer = producer_of(self.source, compression)
        step, last = 7919, _LETTERS_BYTES - size_bytes
        fresh = size_bytes if random_bytes is None else random_bytes
        rest = b"v" * (size_bytes - fresh)
        for i in numbers:
            at = i * step % last
            value = letters[at : at + fresh] + rest
            send(producer, topic, i % partitions, b"%010d" % i, value)
        flush(producer)


@contextlib.contextmanager
def ground(home: Path) -> Iterator[Ground]:
    """Start both brokers in *home*; always end them after the block.

    Retention is unlimited: otherwise brokers would delete the flights, which are of 2013.
    """
    kept = {"log.retention.ms": "-1"}
    source = Broker("source", home / "source", heap_mb=HEAP_MB, properties=kept)
    target = Broker("target", home / "target", heap_mb=HEAP_MB, properties=kept)
    with running_brokers(source, target):
        yield Ground(home, source, target)


@functools.cache
def _letters() -> bytes:
    """Return `_LETTERS_BYTES` of random letters, always the same."""
    return "".join(random.Random(_SEED).choices(string.ascii_letters, k=_LETTERS_BYTES)).encode()


def make_topic(broker: Broker, topic: str, partitions: int = PARTITIONS) -> None:
    """Create *topic*, and wait until its partitions have leaders."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(_ANSWER_S)
    give_up_at = time.monotonic() + _ANSWER_S
    while time.monotonic() < give_up_at:
        found = admin.list_topics(topic, timeout=_ANSWER_S).topics[topic].partitions
        if len(found) == partitions and all(p.leader >= 0 for p in found.values()):
            return
        time.sleep(0.02)
    raise TimeoutError(f"topic {topic} has no leaders after {_ANSWER_S:.0f} s")


def producer_of(
    broker: Broker, compression: str = "none", partitioner: str = "consistent_random"
) -> Producer:
    """Return a producer with the defaults of Java's (KIP-679), and librdkafka's *partitioner*.

    It is idempotent, so that retried records keep their order.
    """
    return Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 20,
            "compression.type": compression,
            "partitioner": partitioner,
            "log_level": 2,
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 64 * 1024,
        }
    )


def send(producer: Producer, topic: str, partition: int, key: bytes, value: bytes) -> None:
    """Queue a record; wait while the queue is full."""
    while True:
        try:
            producer.produce(topic, value, key, partition)
        except BufferError:
            producer.poll(0.05)
        else:
            return


def flush(producer: Producer) -> None:
    """Wait until all records are written. Raises TimeoutError."""
    if producer.flush(_ANSWER_S):
        raise TimeoutError(f"records are not written after {_ANSWER_S:.0f} s")
