"""Truncate a partition's log like an unclean leader election: the new leader has fewer records.

A single broker has no other leader to elect. It is stopped, gets an older copy of the partition's
folder, and is started again. Its next election increments the leader epoch, like an unclean one.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from demo.kafka.brokers import Broker
from resources.kafka.cluster import KafkaCluster
from schemas.kafka.partition import TopicPartition, Watermarks

ANSWER_S = 30.0
TRIES = 4


class PartitionBackup:
    """A copy of the folder of *partition* that can be restored. The broker is stopped meanwhile."""

    def __init__(self, broker: Broker, partition: TopicPartition, backup: Path) -> None:
        self._broker, self._partition, self._backup = broker, partition, backup
        broker.stop()
        shutil.copytree(self._folder, backup)
        broker.start()
        watermarks(broker, partition)

    def restore(self) -> None:
        """Replace the partition's records with those of the copy, with a later leader epoch."""
        before = watermarks(self._broker, self._partition)
        self._broker.stop()
        folder = self._folder
        shutil.rmtree(folder)
        shutil.copytree(self._backup, folder)
        (self._broker.home / "data" / ".kafka_cleanshutdown").unlink(missing_ok=True)
        for checkpoint in self._broker.home.rglob("*-offset-checkpoint"):
            checkpoint.unlink()
        self._broker.start()
        elect_again(self._broker, self._partition, before.leader_epoch)

    @property
    def _folder(self) -> Path:
        name = f"{self._partition.topic}-{self._partition.partition}"
        return next(self._broker.home.rglob(name))


def elect_again(broker: Broker, partition: TopicPartition, epoch: int | None) -> None:
    """Restart *broker* until the leader epoch of *partition* is later than *epoch*."""
    for _ in range(TRIES):
        if (watermarks(broker, partition).leader_epoch or 0) > (epoch or 0):
            return
        broker.kill()
        broker.start()
    raise AssertionError("no later epoch")


def watermarks(broker: Broker, partition: TopicPartition) -> Watermarks:
    """Wait until the broker returns the watermarks of *partition*; return them."""
    cluster = KafkaCluster(broker.name, {"bootstrap.servers": broker.bootstrap_servers})
    give_up_at = time.monotonic() + ANSWER_S
    while time.monotonic() < give_up_at:
        found = cluster.watermarks([partition])[partition]
        if isinstance(found, Watermarks):
            return found
        time.sleep(0.1)
    raise TimeoutError(f"no watermarks of {partition}: {found}")
