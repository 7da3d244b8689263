"""Measure a failover's precision: records that a group reads again or skips on the target."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import Consumer, TopicPartition

from benchmarks.ground import Ground
from benchmarks.mm2 import catch_up, rivals
from benchmarks.mm2.catch_up import Backlog
from benchmarks.mm2.remote import Topic
from benchmarks.mm2.rivals import Flow
from benchmarks.mm2.topics import ANSWER_S
from demo.kafka.brokers import Broker

GROUPS = "lags-.*"
SYNCED = (
    "{source}->target.sync.group.offsets.enabled = true\n"
    "sync.group.offsets.interval.seconds = 1\n"
    "emit.checkpoints.interval.seconds = 1\n"
)
"""More lines of the file: the mirror itself commits the group's offsets on the target."""

WAIT_S = 120.0
STANDS_S = 10.0
"""Seconds without a change after which offsets are final; groups are synced each second."""


@dataclass(frozen=True)
class Precision:
    """A group that lags *lag* records on the source, over all partitions, and then fails over.

    It reads *reread* records again and skips *skipped* records. *unknown* partitions have no offset
    on the target, so the group starts there by its consumers' auto.offset.reset.
    """

    lag: int
    reread: int
    skipped: int
    unknown: int


def measure(on: Ground, flow: Flow, backlog: Backlog, lags: Sequence[int]) -> list[Precision]:
    """Commit offsets of a group for each of *lags* on the source; compare its target offsets.

    *flow* has `SYNCED` in its file. Raises RuntimeError if the rival ends, TimeoutError.
    """
    remote = backlog.remote(on, flow)
    offsets = {lag: _behind(backlog, lag) for lag in lags}
    for lag, committed in offsets.items():
        _commit(on.source, _group(flow, lag), backlog.topic.name, committed)
    with rivals.running(flow) as process:
        catch_up.until_caught_up(remote, flow, process, backlog)
        found = _standing(on, flow, remote, lags)
        before: dict[int, dict[int, int]] = {}
        give_up_at = time.monotonic() + WAIT_S
        while found != before or not any(found.values()):
            rivals.check(flow, process)
            if time.monotonic() > give_up_at:
                raise TimeoutError(f"{flow.rival.words}: offsets still change after {WAIT_S:.0f} s")
            time.sleep(STANDS_S)
            before, found = found, _standing(on, flow, remote, lags)
    precise = [_compare(remote, lag, offsets[lag], found[lag]) for lag in lags]
    remote.delete()
    return precise


def _group(flow: Flow, lag: int) -> str:
    return f"lags-{flow.alias}-{lag}"


def _behind(backlog: Backlog, lag: int) -> dict[int, int]:
    """Return the offsets of a group that lags *lag* records, the same number in each partition."""
    return {
        p: content.records - lag // backlog.topic.partitions
        for p, content in backlog.contents.items()
    }


def _commit(broker: Broker, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    consumer = _member(broker, group)
    wanted = [TopicPartition(topic, p, offset) for p, offset in offsets.items()]
    consumer.committed(wanted, timeout=ANSWER_S)  # waits for the group's coordinator
    consumer.commit(offsets=wanted, asynchronous=False)
    consumer.close()


def _standing(
    on: Ground, flow: Flow, remote: Topic, lags: Sequence[int]
) -> dict[int, dict[int, int]]:
    """Return the offsets that the groups have on the target, by lag and partition."""
    found = {}
    for lag in lags:
        consumer = _member(on.target, _group(flow, lag))
        asked = [TopicPartition(remote.name, p) for p in range(remote.partitions)]
        answer = consumer.committed(asked, timeout=ANSWER_S)
        consumer.close()
        found[lag] = {at.partition: at.offset for at in answer if at.offset >= 0}
    return found


def _compare(
    remote: Topic, lag: int, upstream: Mapping[int, int], downstream: Mapping[int, int]
) -> Precision:
    reread = skipped = 0
    for partition, offset in downstream.items():
        # A record's key is its number in the topic, and records go to the partitions in turn. The
        # source has no other records, so a record's source offset is its number in the partition.
        key = remote.key_at(partition, offset)
        end = upstream[partition] + lag // remote.partitions
        stands = end if key is None else int(key) // remote.partitions
        reread += max(0, upstream[partition] - stands)
        skipped += max(0, stands - upstream[partition])
    return Precision(lag, reread, skipped, remote.partitions - len(downstream))


def _member(broker: Broker, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "enable.auto.commit": False,
        }
    )
