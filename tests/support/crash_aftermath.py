"""Read the state of broker and lake after a crash, without the product's code.

The lake is read with deltalake and from the lines of its log, the broker with a plain consumer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from deltalake import DeltaTable

ANSWER_S = 20.0
PENDING_S = 1.0
"""Seconds that a reader of stable committed offsets waits before it considers them pending."""

NOT_STABLE = (KafkaError.UNSTABLE_OFFSET_COMMIT, KafkaError._TIMED_OUT)


@dataclass(frozen=True)
class LakeProbe:
    """The lake of one flow at *root*, of one topic."""

    root: Path
    source: str
    target: str
    topic: str

    def staged(self) -> list[tuple[int, int]]:
        """Return partition and offset of each staged record, sorted."""
        rows = _rows(self._records)
        return sorted((r["partition"], r["offset"]) for r in rows if r["topic"] == self.topic)

    def frontiers(self) -> list[int]:
        """Return the txn versions of `records`: the frontiers of the partitions, sorted."""
        marks: dict[str, int] = {}
        for action in _log(self._records):
            if action.get("txn", {}).get("appId", "").startswith(f"{self.topic}/"):
                marks[action["txn"]["appId"]] = action["txn"]["version"]
        return sorted(marks.values())

    def sealed(self) -> list[int]:
        """Return the end offsets of the partitions in `segments`, sorted."""
        ends: dict[int, int] = {}
        for row in _rows(self._cluster / "segments"):
            if row["topic"] == self.topic:
                ends[row["partition"]] = max(ends.get(row["partition"], 0), row["end"])
        return sorted(ends.values())

    def orphans(self) -> int:
        """Return the number of files of `records`, drafts included, that no commit adds."""
        named = {unquote(a["add"]["path"]) for a in _log(self._records) if "add" in a}
        there = {file.name for file in self._records.glob("*") if file.is_file()}
        assert named <= there
        return len(there - named)

    def mapped(self) -> list[tuple[int, int, int]]:
        """Return partition, upstream and downstream offset of each mapped record, sorted."""
        rows = _rows(self.root / "flows" / f"{self.source}__{self.target}" / "offset_map")
        return sorted(
            (r["partition"], r["upstream_start"] + i, r["downstream_start"] + i)
            for r in rows
            if r["topic"] == self.topic
            for i in range(r["length"])
        )

    @property
    def _cluster(self) -> Path:
        return self.root / "clusters" / self.source

    @property
    def _records(self) -> Path:
        return self._cluster / "records"


def _rows(table: Path) -> list[dict[str, Any]]:
    if not DeltaTable.is_deltatable(str(table)):
        return []
    return list(DeltaTable(str(table)).to_pyarrow_table().to_pylist())


def _log(table: Path) -> Iterator[dict[str, Any]]:
    """Return every action of *table*, oldest first; the tables here are too young for less."""
    for commit in sorted((table / "_delta_log").glob("*.json")):
        yield from map(json.loads, commit.read_text().splitlines())


@dataclass(frozen=True)
class TopicProbe:
    """A topic of a cluster with one broker, and the offsets that *group* committed for it."""

    bootstrap: str
    topic: str
    partitions: int
    group: str

    def high(self) -> list[int]:
        """Return the high watermarks by partition, or none if the topic does not exist."""
        return self._ends("read_uncommitted")

    def stable(self) -> list[int]:
        """Return the last stable offsets; below a high watermark, a transaction is open."""
        return self._ends("read_committed")

    def visible(self) -> list[Message]:
        """Return the records that are visible with read_committed, in order."""
        ends = self.stable()
        found: list[Message] = []
        for partition, end in enumerate(ends):
            with _Client(self.bootstrap, "read_committed") as reader:
                reader.assign([TopicPartition(self.topic, partition, 0)])
                found += _read(reader, end)
        return found

    def progress(self) -> list[int]:
        """Return the group's committed offsets without pending ones, sorted."""
        if not self.high():
            return []
        with _Client(self.bootstrap, "read_uncommitted", self.group) as reader:
            answer = reader.committed(self._all(), ANSWER_S)
        assert [p.error for p in answer if p.error is not None] == []
        return sorted(p.offset for p in answer if p.offset >= 0)

    def is_pending(self) -> bool:
        """Return whether offsets of the group wait for the end of a transaction."""
        if not self.high():
            return False
        with _Client(self.bootstrap, "read_committed", self.group) as reader:
            try:
                answer = reader.committed(self._all(), PENDING_S)
            except KafkaException as error:
                if error.args[0].code() in NOT_STABLE:
                    return True
                raise
        return any(p.error is not None and p.error.code() in NOT_STABLE for p in answer)

    def _all(self) -> list[TopicPartition]:
        return [TopicPartition(self.topic, partition) for partition in range(self.partitions)]

    def _ends(self, isolation: str) -> list[int]:
        with _Client(self.bootstrap, isolation) as reader:
            try:
                if self.topic not in reader.list_topics(timeout=ANSWER_S).topics:
                    return []
                ends = [reader.get_watermark_offsets(p, ANSWER_S) for p in self._all()]
            except KafkaException as error:
                if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    return []
                raise
        return [high for _, high in ends]


def _read(reader: Consumer, end: int) -> list[Message]:
    found: list[Message] = []
    while end > 0:
        message = reader.poll(ANSWER_S)
        assert message is not None, f"no end at {end}"
        if message.error() is None:
            found.append(message)
        elif message.error().code() != KafkaError._PARTITION_EOF:
            raise KafkaException(message.error())
        elif message.offset() >= end:
            break
    return found


class _Client:
    """Yield a consumer that commits nothing; close it after the block."""

    def __init__(self, bootstrap: str, isolation: str, group: str = "tests-aftermath") -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "isolation.level": isolation,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 50,
            }
        )

    def __enter__(self) -> Consumer:
        return self._consumer

    def __exit__(self, *_: object) -> None:
        self._consumer.close()
