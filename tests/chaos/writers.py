"""Producers that write all the time: plain, idempotent, and transactional with aborts."""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException, Producer

WAIT_SECONDS = 10
BATCH = 60
PAUSE_S = (0.02, 0.1)
ABORTED = 0.25
"""Share of transactions that their writer aborts."""

_OF_KIND: dict[str, dict[str, object]] = {
    "plain": {"enable.idempotence": False},
    "idempotent": {"enable.idempotence": True},
    "transactional": {"transactional.id": "chaos-writer", "transaction.timeout.ms": 10_000},
}


class Writer(threading.Thread):
    """Thread that writes records of *kind* to random partitions of *topics* until `stop`.

    It continues after every error. Each record names itself: the value begins with its writer and
    number, or the key does if there is no value. The target is compared with the source's log, not
    with the writer's delivery reports.
    """

    def __init__(self, kind: str, bootstrap: str, topics: Mapping[str, int], seed: int) -> None:
        super().__init__(name=f"writer {kind}", daemon=True)
        self._kind, self._topics = kind, topics
        self._settings = {
            "bootstrap.servers": bootstrap,
            "linger.ms": 5,
            "message.timeout.ms": 10_000,
            "topic.metadata.refresh.interval.ms": 2_000,
            "log_level": 0,
            **_OF_KIND[kind],
        }
        self._random = random.Random(f"{seed} {kind}")
        self._over = threading.Event()
        self._number = 0

    def run(self) -> None:
        """Write; after an error, use a new producer, as a restarted application does."""
        while not self._over.is_set():
            try:
                self._write(Producer(self._settings))
            except (KafkaException, BufferError):
                self._over.wait(0.2)

    def stop(self) -> None:
        """Stop after the current batch."""
        self._over.set()

    def _write(self, producer: Producer) -> None:
        is_transactional = self._kind == "transactional"
        if is_transactional:
            producer.init_transactions(WAIT_SECONDS)
        while not self._over.is_set():
            if is_transactional:
                producer.begin_transaction()
            for _ in range(self._random.randint(1, BATCH)):
                topic = self._random.choice(list(self._topics))
                partition = self._random.randrange(self._topics[topic])
                producer.produce(topic, partition=partition, **self._record())
                producer.poll(0)
            producer.flush(WAIT_SECONDS)
            if is_transactional and self._random.random() < ABORTED:
                producer.abort_transaction(WAIT_SECONDS)
            elif is_transactional:
                producer.commit_transaction(WAIT_SECONDS)
            self._over.wait(self._random.uniform(*PAUSE_S))

    def _record(self) -> dict[str, Any]:
        self._number += 1
        name = b"%s-%d " % (self._kind.encode(), self._number)
        if self._random.random() < 0.05:
            return {"key": name, "value": None}
        headers = [("trace", b"%d" % self._number), ("trace", None), ("empty", b"")]
        return {
            "key": self._random.choice([None, b"", b"k%d" % (self._number % 7)]),
            "value": name + self._random.randbytes(self._random.randrange(300)),
            "headers": headers[: self._random.randrange(4)],
        }


def writers(bootstrap: str, topics: Mapping[str, int], seed: int) -> list[Writer]:
    """Return a writer of each kind, not started."""
    return [Writer(kind, bootstrap, topics, seed) for kind in _OF_KIND]


def name_of(key: bytes | None, value: bytes | None) -> bytes:
    """Return the name of the record."""
    return ((key if value is None else value) or b"").partition(b" ")[0]
