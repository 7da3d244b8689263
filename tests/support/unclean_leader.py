"""A partition whose log is cut, as an unclean leader election does: the leader has fewer records.

One broker cannot elect another one. It is stopped, given an older copy of the partition's folder
and started again; its next election gives the log a later epoch, as an unclean one would.
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
    """A copy of the folder of *partition*, to be put back: the broker is stopped to take it."""

    def __init__(self, broker: Broker, partition: TopicPartition, place: Path) -> None:
        self._broker, self._partition, self._place = broker, partition, place
        broker.stop()
        shutil.copytree(self._folder, place)
        broker.start()
        watermarks(broker, partition)

    def restore(self) -> None:
        """Give the partition the copy's records in place of its own, under a later epoch."""
        before = watermarks(self._broker, self._partition)
        self._broker.stop()
        folder = self._folder
        shutil.rmtree(folder)
        shutil.copytree(self._place, folder)
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
    """Kill and start *broker* until the leader of *partition* has a later epoch than *epoch*."""
    for _ in range(TRIES):
        if (watermarks(broker, partition).leader_epoch or 0) > (epoch or 0):
            return
        broker.kill()
        broker.start()
    raise AssertionError("no later epoch")


def watermarks(broker: Broker, partition: TopicPartition) -> Watermarks:
    """Return the watermarks of *partition* once its broker tells them."""
    cluster = KafkaCluster(broker.name, {"bootstrap.servers": broker.bootstrap_servers})
    give_up_at = time.monotonic() + ANSWER_S
    while time.monotonic() < give_up_at:
        found = cluster.watermarks([partition])[partition]
        if isinstance(found, Watermarks):
            return found
        time.sleep(0.1)
    raise TimeoutError(f"no watermarks of {partition}: {found}")
