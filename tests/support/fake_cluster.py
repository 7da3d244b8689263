"""A Kafka cluster in memory, for tests of pipeline/ and of its callers.

It has no brokers, no threads and no time: no retention, compaction, transaction timeouts, group
members or authorization. A marker is written together with the commit, not a moment later. Reads
end at once. tests/resources and tests/stories test these things on real brokers.

It has everything that exactly-once depends on. A transaction writes a marker with its own offset to
each of its partitions. Aborted records keep their offsets and are not visible. The last stable
offset stays before open transactions. Progress is committed with the records or not at all. A
writer is fenced by the next writer of its transactional id. `Faults` crash the caller before or
after any call.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa

from resources.delta.arrow_schema import ROW_SCHEMA
from schemas.errors.environment import UnreachableError
from schemas.errors.source import (
    LogTruncatedError,
    RangeUnfinishedError,
    RecordsExpiredError,
    TopicMissingError,
)
from schemas.errors.target import BatchRejectedError, FencedError
from schemas.kafka.partition import SourcePartition, TopicPartition, Watermarks, slot_of
from schemas.kafka.topic import ConfigValue, Topic
from schemas.replay.slot_work import Progress
from schemas.staging.read_range import ReadResult


class CrashError(Exception):
    """The process crashes here. The product must not catch it."""


@dataclass(frozen=True)
class RecordContent:
    """The content of a record, without topic, partition and offset."""

    value: bytes | None = b"v"
    key: bytes | None = None
    headers: tuple[tuple[str | bytes, bytes | None], ...] = ()
    timestamp_ms: int = 1_000


@dataclass
class LogEntry:
    """A record, or a marker (None), in the log; *state* is that of its transaction."""

    content: RecordContent | None
    state: str = "committed"


@dataclass
class Faults:
    """Crashes the caller at call number *at*, before the call or after it."""

    at: int | None = None
    after: bool = False
    calls: int = 0

    def around(self, call):
        number, self.calls = self.calls, self.calls + 1
        if number == self.at and not self.after:
            raise CrashError
        answer = call()
        if number == self.at:
            raise CrashError
        return answer


@dataclass
class TransactionState:
    """The coordinator's state of a transactional id."""

    epoch: int = 0
    entries: list[LogEntry] = field(default_factory=list)
    touched: set[TopicPartition] = field(default_factory=set)
    pending: dict[str, dict[TopicPartition, Progress]] = field(default_factory=dict)


class FakeCluster:
    """Logs, topics, groups and transactions of one cluster."""

    def __init__(self, alias="us-east"):
        self.alias = alias
        self.is_down = False
        self.logs: dict[TopicPartition, list[LogEntry]] = {}
        self.low: dict[TopicPartition, int] = {}
        self.ids: dict[str, str] = {}
        self.compacted: set[str] = set()
        self.groups: dict[str, dict[TopicPartition, Progress]] = {}
        self.writers: dict[str, TransactionState] = {}
        self.refused: dict[TopicPartition, bytes] = {}
        self.tells_what_it_refused = True
        self.incarnations = 0

    def make(self, name, partitions=1):
        """Create a topic, or re-create it with another id and delete its committed offsets."""
        self.incarnations += 1
        self.ids[name] = f"{name}-life{self.incarnations}"
        for group in self.groups.values():
            for partition in [p for p in group if p.topic == name]:
                del group[partition]
        for i in range(partitions):
            self.logs[TopicPartition(name, i)] = []
            self.low[TopicPartition(name, i)] = 0
        return self.ids[name]

    def drop(self, name):
        """Delete a topic; its committed offsets stay."""
        del self.ids[name]
        for partition in [p for p in self.logs if p.topic == name]:
            del self.logs[partition]

    def append(self, partition, *contents, state="committed"):
        """Append records without a transaction; return their offsets."""
        log = self.logs[partition]
        log.extend(LogEntry(each, state) for each in contents)
        return list(range(len(log) - len(contents), len(log)))

    def mark(self, partition):
        """Append a transaction marker."""
        self.logs[partition].append(LogEntry(None))

    def expire(self, partition, low):
        self.low[partition] = low

    def clean(self, partition, *offsets):
        """Remove records like compaction: their offsets have no record then."""
        self.compacted.add(partition.topic)
        for offset in offsets:
            self.logs[partition][offset].content = None

    def cut(self, partition, end):
        del self.logs[partition][end:]

    def stable(self, partition):
        log = self.logs[partition]
        return next((i for i, e in enumerate(log) if e.state == "open"), len(log))

    def visible(self, partition, start=0, end=None):
        """Return (offset, content) of the records that are visible with read_committed."""
        stop = self.stable(partition) if end is None else end
        return [
            (i, e.content)
            for i, e in enumerate(self.logs[partition])
            if max(start, self.low[partition]) <= i < stop and e.content and e.state == "committed"
        ]

    # Methods of resources.kafka.cluster.KafkaCluster

    def open(self):
        pass

    def unauthorized_topics(self, names):
        return {}

    def probe(self, timeout_s=3.0):
        if self.is_down:
            raise UnreachableError(self.alias, servers="nowhere:1", reason="it is down")

    def topics(self, names=None):
        self.probe()
        counts = {n: sum(p.topic == n for p in self.logs) for n in self.ids}
        return {
            n: Topic(n, self.ids[n], count, is_internal=False)
            for n, count in counts.items()
            if names is None or n in names
        }

    def watermarks(self, partitions, known=None):
        self.probe()
        return {p: self._marks(p, (known or {}).get(p)) for p in partitions}

    def _marks(self, p, known):
        if p not in self.logs:
            return TopicMissingError(str(p), location=f"on {self.alias}")
        marks = Watermarks(self.low[p], max(self.low[p], self.stable(p)), len(self.logs[p]), 0)
        return known if known and known.end_state == marks.end_state else marks

    def topic_configs(self, names):
        deletes = ConfigValue("delete", "DEFAULT_CONFIG", True, False, False)
        compacts = ConfigValue("compact", "DYNAMIC_TOPIC_CONFIG", False, False, False)
        return {n: {"cleanup.policy": compacts if n in self.compacted else deletes} for n in names}

    def create_topics(self, wanted):
        self.probe()
        return {topic.name: self.make(topic.name, topic.partitions) for topic in wanted}

    def committed_offsets(self, group, partitions, require_stable=True):
        self.probe()
        held = self.groups.get(group, {})
        return {
            p: (held[p].next_offset, held[p].metadata) if p in held else None for p in partitions
        }

    def group_commits(self, group):
        self.probe()
        held = self.groups.get(group, {})
        return {p: (progress.next_offset, progress.metadata) for p, progress in held.items()}


class FakeSource:
    """A reader of a fake cluster: a `pipeline.staging.stage.Source`."""

    def __init__(self, cluster, rows_at_once=3):
        self._cluster, self._rows_at_once = cluster, rows_at_once
        self.reads = []
        self.fails = {}  # SourcePartition -> the error with which its range ends at its start

    def read(self, ranges, max_bytes, take):
        self.reads.append(list(ranges))
        left, reached = max_bytes, {}
        for r in ranges:
            reached[r], used = self._range(r, left, take)
            left -= used
        return reached

    def close(self):
        pass

    def _range(self, r, max_bytes, take):
        topic_partition = r.partition.topic_partition
        low, end = self._cluster.low[topic_partition], len(self._cluster.logs[topic_partition])
        if r.partition in self.fails:
            return ReadResult(r, r.start, self.fails[r.partition]), 0
        if r.length and r.start < low:
            return ReadResult(
                r, r.start, RecordsExpiredError(topic_partition, wanted=r.start, low=low)
            ), 0
        if r.start > end:
            return ReadResult(
                r, r.start, LogTruncatedError(topic_partition, staged=r.start, end=end)
            ), 0
        if r.end > self._cluster.stable(topic_partition):
            error = RangeUnfinishedError(
                topic_partition, at=r.start, end=r.end, reason="nothing came"
            )
            return ReadResult(r, r.start, error), 0
        used = 0
        shown = self._cluster.visible(topic_partition, r.start, r.end)
        for i in range(0, len(shown), self._rows_at_once):
            if used >= max_bytes:
                return ReadResult(r, shown[i][0]), used
            batch = rows(r.partition, shown[i : i + self._rows_at_once])
            used += batch.nbytes
            take(r, batch)
        return ReadResult(r, r.end), used


class FakeTarget:
    """A slot's writer on a fake cluster: a `pipeline.replay.slot_replay.Target`."""

    def __init__(self, cluster, flow, slot, faults=None):
        self._cluster, self._group = cluster, flow.progress_group
        self._id = flow.transactional_id(slot)
        self._faults = faults or Faults()
        self._epoch = None
        self._given = {}
        self._bad = {}

    def fence(self):
        self._faults.around(self._fence)

    def progress(self, partitions):
        def answer():
            held = self._cluster.groups.get(self._group, {})
            return {p: held[p] for p in partitions if p in held}

        return self._faults.around(answer)

    def abort_leftovers(self, partitions):
        self._faults.around(lambda: None)  # nothing stays open here: fencing ends all transactions

    def commit_progress(self, progress):
        held = self._cluster.groups.setdefault(self._group, {})
        self._faults.around(lambda: held.update(progress))

    def begin(self):
        self._given, self._bad = {}, {}
        self._faults.around(self._writer)

    def send(self, partition, batch):
        self._faults.around(lambda: self._send(partition, batch))

    def flush(self):
        def answer():
            if self._bad:
                named = self._bad if self._cluster.tells_what_it_refused else {}
                raise BatchRejectedError("too large", partitions=named)
            return {p: np.array(offsets, np.int64) for p, offsets in self._given.items()}

        return self._faults.around(answer)

    def commit(self, progress):
        self._faults.around(lambda: self._commit(progress))

    def abort(self):
        writer = self._cluster.writers.get(self._id)
        if writer and self._epoch == writer.epoch:
            self._end(writer, "aborted")
        self._epoch = None

    def read_back(self, partition, start, take):
        self._cluster.probe()
        shown = self._cluster.visible(partition, start)
        source = SourcePartition(partition.topic, "", partition.partition)
        self._faults.around(lambda: take(rows(source, shown)) if shown else None)

    def log_start_offset(self, partition):
        return self._cluster.low[partition]

    def is_compacted(self, partition):
        return partition.topic in self._cluster.compacted

    def end_offsets(self, partitions):
        self._cluster.probe()
        return {p: len(self._cluster.logs[p]) for p in partitions}

    def topic_ids(self, topics):
        self._cluster.probe()
        return {t: self._cluster.ids[t] for t in topics if t in self._cluster.ids}

    def close(self):
        self._epoch = None

    def _fence(self):
        self._cluster.probe()
        if self._epoch is not None:
            return
        writer = self._cluster.writers.setdefault(self._id, TransactionState())
        self._end(writer, "aborted")
        writer.epoch += 1
        self._epoch = writer.epoch

    def _writer(self):
        writer = self._cluster.writers[self._id]
        if self._epoch != writer.epoch:
            raise FencedError(self._id)
        return writer

    def _send(self, partition, batch):
        writer = self._writer()
        log, given = self._cluster.logs[partition], self._given.setdefault(partition, [])
        writer.touched.add(partition)
        for content in contents_of(batch):
            if content.value == self._cluster.refused.get(partition, b"\0nothing"):
                self._bad[partition] = "too large"
            entry = LogEntry(content, "open")
            given.append(len(log))
            log.append(entry)
            writer.entries.append(entry)

    def _commit(self, progress):
        writer = self._writer()
        writer.pending.setdefault(self._group, {}).update(progress)
        self._end(writer, "committed")

    def _end(self, writer, state):
        for entry in writer.entries:
            entry.state = state
        for partition in writer.touched:
            self._cluster.mark(partition)
        if state == "committed":
            for group, progress in writer.pending.items():
                self._cluster.groups.setdefault(group, {}).update(progress)
        epoch = writer.epoch
        writer.__init__(epoch)


class FakeStageReader:
    """Staged files in memory, like `resources.delta.stage_reader.StageReader`."""

    def __init__(self):
        self.files = {}  # path -> [(SourcePartition, [(offset, RecordContent)])]

    def keep(self, path, partition, shown):
        self.files.setdefault(path, []).append((partition, list(shown)))

    def rows(self, files, wanted):
        for file in files:
            for partition, shown in self.files[file]:
                kept = [s for s in shown if partition in wanted and s[0] >= wanted[partition]]
                if kept:
                    yield partition, rows(partition, kept)

    def count(self, files, source, edges, total):
        offsets = [
            o for _, batch in self.rows(files, {source: 0}) for o in batch["offset"].to_pylist()
        ]
        return [sum(a <= o < b for o in offsets) for a, b in pairwise(edges)]


def rows(partition, shown):
    """Return (offset, RecordContent) pairs of *partition* as a batch of `records`."""
    return pa.RecordBatch.from_pylist(
        [
            {
                "topic": partition.topic,
                "topic_id": partition.topic_id,
                "partition": partition.partition,
                "offset": offset,
                "timestamp_ms": content.timestamp_ms,
                "timestamp_type": 1,
                "leader_epoch": 0,
                "key": content.key,
                "value": content.value,
                "headers": [{"key": _text(k), "value": v} for k, v in content.headers] or None,
                "raw_header_keys": _raw([k for k, _ in content.headers]),
            }
            for offset, content in shown
        ],
        ROW_SCHEMA,
    )


def _text(key):
    return key.decode(errors="replace") if isinstance(key, bytes) else key


def _raw(keys):
    if not any(isinstance(key, bytes) for key in keys):
        return None
    return [key if isinstance(key, bytes) else key.encode() for key in keys]


def contents_of(batch):
    """Return the RecordContent of each record of *batch*."""
    return [
        RecordContent(
            row["value"],
            row["key"],
            tuple(
                (key, h["value"])
                for key, h in zip(
                    row["raw_header_keys"] or [h["key"] for h in row["headers"] or ()],
                    row["headers"] or (),
                    strict=True,
                )
            ),
            row["timestamp_ms"],
        )
        for row in batch.to_pylist()
    ]


def neighbours(topic, count):
    """Return *count* topic names that share partition 0's slot with *topic*."""
    names, i = [], 0
    while len(names) < count:
        name = f"{topic}{i}"
        if slot_of(name, 0) == slot_of(topic, 0):
            names.append(name)
        i += 1
    return names
