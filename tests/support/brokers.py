"""Helpers for tests with clusters: create topics, write, read to the end, run the CLI."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from resources.delta.arrow_schema import HEADERS, RAW_HEADER_KEYS
from resources.librdkafka.arrow_producer import ArrowProducer
from resources.librdkafka.produce_columns import to_produce_batch

ANSWER_SECONDS = 30
COMMAND_SECONDS = 150
ROOT = Path(__file__).parents[2]


class Record(NamedTuple):
    """A record to produce; timestamp None means the time of writing."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str | bytes, bytes | None]] = ()
    timestamp: int | None = None
    partition: int = 0


def create_topic(bootstrap: str, name: str, partitions: int = 1, **configs: object) -> None:
    """Create a topic and wait for its leaders; `retention_ms=-1` is `retention.ms=-1`.

    Kafka deletes records with old timestamps within minutes unless retention.ms is -1, so that is
    the default here, as are timestamps of any age or future.
    """
    settings = {
        "retention.ms": "-1",
        "message.timestamp.after.max.ms": str(2**63 - 1),
        **{key.replace("_", "."): str(value) for key, value in configs.items()},
    }
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(
        ANSWER_SECONDS
    )
    _await_leaders(admin, name, partitions)


def delete_topic(bootstrap: str, name: str) -> None:
    """Delete a topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([name], operation_timeout=ANSWER_SECONDS)[name].result(ANSWER_SECONDS)


def _await_leaders(admin: AdminClient, name: str, partitions: int) -> None:
    """Wait until all partitions have leaders that accept requests.

    Metadata names a leader a moment before it accepts requests. A batch that it refuses in that
    moment is sent again after later batches, unless the producer is idempotent: `max.in.flight`
    limits requests in flight, not batches that are already built.
    """
    give_up_at = time.monotonic() + ANSWER_SECONDS
    while time.monotonic() < give_up_at:
        topic = admin.list_topics(name, timeout=ANSWER_SECONDS).topics[name]
        led = [p for p in topic.partitions.values() if p.leader >= 0 and p.error is None]
        if topic.error is None and len(led) == partitions and _lead(admin, name, partitions):
            return
        time.sleep(0.02)
    raise TimeoutError(f"topic {name} has no leaders")


def _lead(admin: AdminClient, name: str, partitions: int) -> bool:
    latest = {TopicPartition(name, p): OffsetSpec.latest() for p in range(partitions)}
    try:
        asked = admin.list_offsets(latest, request_timeout=ANSWER_SECONDS).values()
        return all(future.result(ANSWER_SECONDS).offset >= 0 for future in asked)
    except KafkaException:
        return False


def produce(
    bootstrap: str,
    topic: str,
    records: Iterable[Record],
    *,
    transactional_id: str | None = None,
    commit: bool = True,
) -> None:
    """Write *records* in order and wait until all are acknowledged.

    With *transactional_id* they are one transaction, committed or, if *commit* is False, aborted,
    with its markers: later records are written after them.
    """
    # The leaders that `create_topic` waited for keep the order. An idempotent producer would take
    # 0.5 s to get its id.
    settings = {"bootstrap.servers": bootstrap, "max.in.flight": 1, "linger.ms": 5}
    if transactional_id:
        settings["transactional.id"] = transactional_id
    producer = Producer(settings)
    if transactional_id:
        _init_transactions(producer)
        producer.begin_transaction()
    errors: list[KafkaError] = []
    for record in records:
        _send(producer, topic, record, errors)
    unsent = producer.flush(ANSWER_SECONDS)
    if errors or unsent:
        raise KafkaException(errors[0] if errors else KafkaError(KafkaError._TIMED_OUT))
    if transactional_id:
        settle = producer.commit_transaction if commit else producer.abort_transaction
        settle(ANSWER_SECONDS)
        # Markers are written a moment later: the next producer of the id waits for them.
        _init_transactions(Producer(settings))


def _init_transactions(producer: Producer) -> None:
    """Initialize transactions in short calls: in a long call a late coordinator costs 0.5 s."""
    give_up_at = time.monotonic() + ANSWER_SECONDS
    wait = 0.06
    while True:
        try:
            producer.init_transactions(wait)
        except KafkaException as failure:
            if not failure.args[0].retriable() or time.monotonic() > give_up_at:
                raise
            wait = min(1.0, wait * 1.5)
        else:
            return


def produce_exactly(bootstrap: str, topic: str, records: Iterable[Record]) -> None:
    """Write *records* in order, including those that confluent-kafka cannot write."""
    settings = {"bootstrap.servers": bootstrap, "max.in.flight": 1, "message.max.bytes": 2**27}
    producer = ArrowProducer(settings, "")
    for record in records:
        stamp = int(time.time() * 1000) if record.timestamp is None else record.timestamp
        columns = {
            "timestamp_ms": pa.array([stamp], pa.int64()),
            "key": pa.array([record.key], pa.binary()),
            "value": pa.array([record.value], pa.binary()),
            "headers": pa.array([[{"key": "", "value": v} for _, v in record.headers]], HEADERS),
            "raw_header_keys": pa.array(
                [[k.encode() if isinstance(k, str) else k for k, _ in record.headers]],
                RAW_HEADER_KEYS,
            ),
        }
        row = pa.RecordBatch.from_pydict(columns)
        assert producer.send(topic, record.partition, to_produce_batch(row), 0) == 1
    give_up_at = time.monotonic() + ANSWER_SECONDS
    while producer.reported_count < producer.queued_count and time.monotonic() < give_up_at:
        producer.poll_reports(0.1)
    errors = [error for _, error in producer.errors()]
    if producer.reported_count < producer.queued_count or errors:
        raise KafkaException(errors[0] if errors else KafkaError(KafkaError._TIMED_OUT))


def _send(producer: Producer, topic: str, record: Record, errors: list[KafkaError]) -> None:
    def report(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            errors.append(error)

    # No timestamp at all, rather than 0: librdkafka takes 0 for now as well.
    stamp = {} if record.timestamp is None else {"timestamp": record.timestamp}
    while True:
        try:
            producer.produce(
                topic,
                value=record.value,
                key=record.key,
                partition=record.partition,
                headers=list(record.headers),
                on_delivery=report,
                **stamp,
            )
        except BufferError:
            producer.poll(0.1)
        else:
            producer.poll(0)
            return


def consume_all(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[Message]:
    """Return every record of *topic* that *isolation* shows, ordered by (partition, offset).

    The end is the high watermark of a read_uncommitted consumer. Markers of a transaction are
    written a moment after the answer to its commit, so a read_committed consumer reads until its
    end-of-partition offset has reached that watermark.
    """
    ends = high_watermarks(bootstrap, topic)
    consumer = _reader(bootstrap, isolation)
    found: list[Message] = []
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
        open_partitions = {partition for partition, end in ends.items() if end > 0}
        give_up_at = time.monotonic() + ANSWER_SECONDS
        while open_partitions:
            if time.monotonic() > give_up_at:
                raise TimeoutError(f"{topic}: {open_partitions} not read to {ends}")
            message = consumer.poll(0.2)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            elif message.offset() >= ends[message.partition()]:
                open_partitions.discard(message.partition())
    finally:
        consumer.close()
    return sorted(found, key=lambda message: (message.partition(), message.offset()))


LEADERLESS = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError._UNKNOWN_PARTITION)


def high_watermarks(bootstrap: str, topic: str) -> dict[int, int]:
    """Return each partition's high watermark: the offset after the last record or marker."""
    consumer = _reader(bootstrap, "read_uncommitted")
    try:
        partitions = consumer.list_topics(topic, timeout=ANSWER_SECONDS).topics[topic].partitions
        return {
            partition: _end(consumer, TopicPartition(topic, partition))
            for partition in sorted(partitions)
        }
    finally:
        consumer.close()


def _end(consumer: Consumer, partition: TopicPartition) -> int:
    give_up_at = time.monotonic() + ANSWER_SECONDS
    while True:
        try:
            return int(consumer.get_watermark_offsets(partition, timeout=ANSWER_SECONDS)[1])
        except KafkaException as failure:
            # A partition is listed before it has a leader: when it has just been made, and when its
            # broker has just come back.
            error = failure.args[0]
            passes = error.retriable() or error.code() in LEADERLESS
            if not passes or time.monotonic() > give_up_at:
                raise
        time.sleep(0.02)


def _reader(bootstrap: str, isolation: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "tests-reader",  # librdkafka asks for one; nothing is ever committed
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
        }
    )


def commit_group(bootstrap: str, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Set the committed offsets of *group*, which has no members, keyed by (topic, partition)."""
    wanted = [TopicPartition(topic, partition, at) for (topic, partition), at in offsets.items()]
    # With a consumer that joins no group: librdkafka's admin clients may crash if a group has no
    # coordinator yet. A consumer waits for the coordinator to read committed offsets.
    with _group(bootstrap, group) as consumer:
        _committed(consumer, wanted)
        _raise_errors(consumer.commit(offsets=wanted, asynchronous=False))


def _committed(consumer: Consumer, partitions: list[TopicPartition]) -> list[TopicPartition]:
    """Return what the group has committed; the coordinator of a fresh cluster's first is late."""
    give_up_at = time.monotonic() + ANSWER_SECONDS
    while True:
        try:
            return list(consumer.committed(partitions, timeout=ANSWER_SECONDS))
        except KafkaException as failure:
            moves = failure.args[0].code() == KafkaError.NOT_COORDINATOR
            if not moves or time.monotonic() > give_up_at:
                raise
        time.sleep(0.02)


def committed_offsets(bootstrap: str, group: str) -> dict[tuple[str, int], int]:
    """Return what *group* has committed, keyed by (topic, partition)."""
    with _group(bootstrap, group) as consumer:
        everything = [
            TopicPartition(name, partition)
            for name, topic in consumer.list_topics(timeout=ANSWER_SECONDS).topics.items()
            for partition in topic.partitions
        ]
        if not everything:
            return {}
        found = _committed(consumer, everything)
    _raise_errors(found)
    return {(p.topic, p.partition): p.offset for p in found if p.offset >= 0}


@contextmanager
def _group(bootstrap: str, group: str) -> Iterator[Consumer]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
    )
    try:
        yield consumer
    finally:
        consumer.close()


def _raise_errors(partitions: Iterable[TopicPartition]) -> None:
    for partition in partitions:
        if partition.error is not None:
            raise KafkaException(partition.error)


def run_cli(
    *arguments: str | Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float = COMMAND_SECONDS,
) -> subprocess.CompletedProcess[str]:
    """Run `deltamirror` with *arguments* as a process; the exit code is not checked."""
    return subprocess.run(
        [sys.executable, "-m", "deltamirror", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=cli_environment(env),
        cwd=cwd,
    )


def cli_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return an environment that finds this repository's packages from any folder."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    # Never the folder Dagster keeps its state in on the developer's machine.
    inherited = {key: value for key, value in os.environ.items() if key != "DAGSTER_HOME"}
    return {**inherited, "PYTHONPATH": path, **(extra or {})}
