"""`python -m benchmarks.groups`: time that each client takes to read the offsets of many groups."""

from __future__ import annotations

import json
import shlex
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path

import click
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import report
from demo.kafka.broker import Broker
from demo.kafka.brokers import running_brokers
from resources.kafka.cluster import KafkaCluster
from resources.librdkafka.group_offsets_client import GroupClient
from schemas.kafka.partition import TopicPartition

GROUPS = [f"group-{n}" for n in range(200)]
TOPICS = [f"topic-{n}" for n in range(40)]
PARTITIONS, ROUNDS, THREADS, WAIT_S = 50, 3, 16, 30


@click.command()
def main() -> None:
    """Commit 50 of 2,000 partitions in each of 200 groups, and read all commits back."""
    with tempfile.TemporaryDirectory(prefix="deltamirror-groups-") as home:
        broker = Broker("groups", Path(home))
        with running_brokers(broker):
            seconds = measure(broker.bootstrap_servers)
    result = {
        "date": date.today().isoformat(),
        "commit": report.commit(),
        "machine": report.machine(),
        "command": shlex.join(["python", "-m", "benchmarks.groups", *sys.argv[1:]]),
        "seconds": seconds,
    }
    click.echo(json.dumps(result, indent=2))
    report.save(result, name="groups")


def measure(servers: str) -> dict[str, dict[str, float]]:
    """Return the seconds that each client takes, including its start."""
    admin = AdminClient({"bootstrap.servers": servers})
    made = admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in TOPICS])
    for future in made.values():
        future.result(WAIT_S)
    committed = [(TOPICS[0], partition) for partition in range(PARTITIONS)]
    every = [(topic, partition) for topic in TOPICS for partition in range(PARTITIONS)]
    offsets = {TopicPartition(*each): (7, "metadata") for each in committed}
    cluster = KafkaCluster("groups", {"bootstrap.servers": servers})
    for group in GROUPS:
        cluster.commit_offsets(group, offsets)
    return {
        "GroupClient": _timed(lambda: _by_group_client(servers)),
        "AdminClient": _timed(lambda: _by_admin_client(servers)),
        "a consumer per group": _timed(lambda: _by_consumers(servers, committed, 1)),
        f"the same, {THREADS} threads": _timed(lambda: _by_consumers(servers, committed, THREADS)),
        f"the same, {len(every)} partitions": _timed(
            lambda: _by_consumers(servers, every, THREADS)
        ),
    }


def _timed(read: Callable[[], int]) -> dict[str, float]:
    taken = []
    for _ in range(ROUNDS):
        begun = time.monotonic()
        if read() != len(GROUPS) * PARTITIONS:
            raise RuntimeError("offsets are missing")
        taken.append(time.monotonic() - begun)
    return report.spread(taken, 2)


def _by_group_client(servers: str) -> int:
    client = GroupClient({"bootstrap.servers": servers})
    return sum(len(client.committed_offsets(group, None, WAIT_S)) for group in GROUPS)


def _by_admin_client(servers: str) -> int:
    client = AdminClient({"bootstrap.servers": servers})
    futures = [
        client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group]
        for group in GROUPS
    ]
    return sum(len(each.result(WAIT_S).topic_partitions) for each in futures)


def _by_consumers(servers: str, partitions: list[tuple[str, int]], threads: int) -> int:
    def read(group: str) -> int:
        consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
        try:
            asked = [KafkaPartition(*each) for each in partitions]
            return sum(each.offset >= 0 for each in consumer.committed(asked, timeout=WAIT_S))
        finally:
            consumer.close()

    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(read, GROUPS))


if __name__ == "__main__":
    main()
