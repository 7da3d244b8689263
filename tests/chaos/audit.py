"""Independent auditor: reads both sides with read_committed, and counts differences.

It shares no code with `deltamirror verify`. It reads to the true high watermark, which a
read_uncommitted consumer names, and past the markers in between.
"""

from __future__ import annotations

import time
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from tests.chaos.writers import name_of
from tests.support.brokers import high_watermarks

STALL_SECONDS = 60
KINDS = ("lost", "duplicated", "reordered", "altered")


@dataclass
class Log:
    """Visible records of a partition: offsets, and the name and digest of each record."""

    offsets: array[int] = field(default_factory=lambda: array("q"))
    contents: list[bytes] = field(default_factory=list)


@dataclass(frozen=True)
class Counts:
    """Counts of differences between a partition's target and its source."""

    records: int = 0
    lost: int = 0
    duplicated: int = 0
    reordered: int = 0
    altered: int = 0


def read(bootstrap: str, topic: str, isolation: str = "read_committed") -> dict[int, Log]:
    """Return each partition of *topic*. Raises TimeoutError if its end is not reached."""
    ends = high_watermarks(bootstrap, topic)
    logs = {partition: Log() for partition in ends}
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "chaos-auditor",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
        }
    )
    left = {partition for partition, end in ends.items() if end > 0}
    give_up_at = time.monotonic() + STALL_SECONDS
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in left])
        while left:
            found = consumer.consume(1_000, 0.2)
            if sum(_take(message, logs, ends, left) for message in found):
                give_up_at = time.monotonic() + STALL_SECONDS
            if time.monotonic() > give_up_at:
                raise TimeoutError(f"{topic} {isolation}: {sorted(left)} not read to {ends}")
    finally:
        consumer.close()
    return logs


def _take(message: Message, logs: dict[int, Log], ends: dict[int, int], left: set[int]) -> bool:
    """Store a record or a partition's end; return whether it was a record."""
    error = message.error()
    if error is None:
        log = logs[message.partition()]
        log.offsets.append(message.offset())
        log.contents.append(_content(message))
        return True
    if error.code() != KafkaError._PARTITION_EOF:
        raise KafkaException(error)
    if message.offset() >= ends[message.partition()]:
        left.discard(message.partition())
    return False


def _content(message: Message) -> bytes:
    key, value = message.key(), message.value()
    all_of_it = repr((key, value, message.headers(), message.timestamp())).encode()
    return name_of(key, value) + b" " + blake2b(all_of_it, digest_size=12).digest()


def compare(source: Sequence[bytes], target: Sequence[bytes]) -> Counts:
    """Count the differences of *target* from *source*; an unknown record counts as altered."""
    if source == target:
        return Counts(len(source))
    here, there = Counter(source), Counter(target)
    missing, extra = _names(here - there), _names(there - here)
    changed = (missing & extra).total()
    known = _names(here)
    strangers = sum(n for name, n in (extra - missing).items() if name not in known)
    return Counts(
        records=len(source),
        lost=missing.total() - changed,
        duplicated=extra.total() - changed - strangers,
        reordered=_reordered(source, target),
        altered=changed + strangers,
    )


def _names(contents: Counter[bytes]) -> Counter[bytes]:
    names: Counter[bytes] = Counter()
    for content, n in contents.items():
        names[content.partition(b" ")[0]] += n
    return names


def _reordered(source: Sequence[bytes], target: Sequence[bytes]) -> int:
    """Return the number of records on both sides that would have to be moved."""
    places: dict[bytes, list[int]] = {}
    for at, content in enumerate(source):
        places.setdefault(content, []).append(at)
    for each in places.values():
        each.reverse()
    order = [places[content].pop() for content in target if places.get(content)]
    tails: list[int] = []  # last values of the longest rising subsequences, by length
    for at in order:
        index = bisect_left(tails, at)
        tails[index : index + 1] = [at]
    return len(order) - len(tails)
