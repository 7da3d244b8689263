"""Describe every Delta table: columns, key and layout.

The table, its schema check and its section in docs/tables.md are made from this description.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """A column: its name, its Delta type and its meaning."""

    name: str
    type: str
    meaning: str
    nullable: bool


@dataclass(frozen=True)
class Table:
    """A table of the lake: the meaning of a row, its columns, its key and its layout of files.

    *ordered_by* is a column whose values do not fall from one append to the next, or "".
    """

    name: str
    row: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    properties: Mapping[str, str]
    ordered_by: str = ""


CHECKPOINT_EVERY = 1_000
"""Maximum number of commits between two checkpoints. A reader reads each commit after the last."""

# Checkpoints list replaced files for 15 minutes. Loops add a small file four times a second, so a
# checkpoint that listed them for longer would be large. deltamirror deletes them itself, after
# `deltamirror.stage.vacuum.retention.ms`.
APPEND_ONLY = {
    "delta.appendOnly": "true",
    "delta.checkpointInterval": str(CHECKPOINT_EVERY),
    "delta.logRetentionDuration": "interval 14 days",
    "delta.deletedFileRetentionDuration": "interval 15 minutes",
}

FORMAT_PROPERTY, FORMAT = "deltamirror.format", "2"
"""Property of `records`: the version of its layout of files. Version 1 had a file for each slot."""

# Retention deletes records, and an append-only table rejects that.
STAGED_LOG = {**APPEND_ONLY, "delta.appendOnly": "false", FORMAT_PROPERTY: FORMAT}


def read_columns(lines: Iterable[str]) -> tuple[Column, ...]:
    """Return the columns of *lines*: name, type, `!` if never null, meaning."""
    parts = (line.split(None, 3) for line in lines)
    return tuple(Column(name, type_, meaning, mark != "!") for name, type_, mark, meaning in parts)


def _table(text: str, properties: Mapping[str, str] = APPEND_ONLY, ordered_by: str = "") -> Table:
    """Return the table of *text*: a line with name and row, one with the key, and the columns."""
    first, second, *columns = text.strip().splitlines()
    name, row = first.split(": ")
    key = tuple(second.split(": ")[1].split(", "))
    return Table(name, row, read_columns(columns), key, properties, ordered_by)


RECORDS = _table(
    """
    records: a source record
    key: topic_id, partition, offset
    slot            int     !  (crc32(topic) + partition) mod 16
    topic           string  !  the topic's name on the source
    topic_id        string  !  its incarnation: Kafka's topic id, with +1 after a truncated log
    partition       int     !  the partition on the source, and on every target
    offset          long    !  the offset on the source
    timestamp_ms    long    ?  the record's timestamp, unchanged: -1 is Kafka's "none"
    timestamp_type  int     ?  0 not available, 1 CreateTime, 2 LogAppendTime
    leader_epoch    int     ?  epoch of the leader that the record was read from
    key             binary  ?  the key; null and empty are different
    value           binary  ?  the value; null is a tombstone
    headers         headers ?  keys and values in order, duplicates kept
    raw_header_keys binaries ? all keys of `headers` as bytes, if one of them is not UTF-8
    """,
    properties=STAGED_LOG,
)

SEGMENTS = _table(
    """
    segments: a staged range, with the number and digest of its records
    key: topic, topic_id, partition, start
    topic             string ! the topic's name
    topic_id          string ! its incarnation
    partition         int    ! the partition
    start             long   ! first offset of the range
    end               long   ! offset after the range
    count             long   ! number of records in it
    size_bytes        long   ! bytes of keys, values and headers
    first             long   ? offset of the first record
    last              long   ? offset of the last record
    min_timestamp_ms  long   ? smallest timestamp
    max_timestamp_ms  long   ? largest timestamp
    leader_epoch      int    ? the leader's epoch when the range was planned
    low               long   ! log start when the range was planned
    stable            long   ! last stable offset when it was planned
    high              long   ! high watermark when it was planned
    gap_cause         string ! why offsets have no record; empty: every offset has one
    digest            string ! over timestamp, key, value and headers of its records, in order
    staged_at_ms      long   ! when it was committed
    sequence          long   ! lowest sequence of the files that hold its records
    version           long   ! version of `records` whose commit added it
    """,
    ordered_by="version",
)

GROUP_OFFSETS = _table("""
    group_offsets: a group's committed offset at one time
    key: group, topic, partition, seen_at_ms
    group            string ! the consumer group
    topic            string ! the topic's name
    topic_id         string ! its incarnation at that time
    partition        int    ! the partition
    committed        long   ! next offset that the group will read
    metadata         string ! the metadata of the commit; Kafka Streams stores its stream time
    seen_at_ms       long   ! time of the snapshot
""")

OFFSET_MAP = _table(
    """
    offset_map: a run of consecutive upstream offsets that became consecutive downstream ones
    key: target_topic_id, target_partition, downstream_start
    topic             string ! the source topic
    incarnation       string ! its topic id
    partition         int    ! the partition
    upstream_start    long   ! first offset on the source
    target_topic      string ! the remote topic
    target_topic_id   string ! its topic id
    target_partition  int    ! the partition on the target
    downstream_start  long   ! offset of the same record on the target
    length            long   ! number of records
    run_id            string ! id of the process that wrote the row
    committed_at      long   ! time of the commit
    """,
    ordered_by="committed_at",
)

CHECKPOINTS = _table("""
    checkpoints: a group's committed offset, translated
    key: group, topic, partition, translated_at_ms
    group             string ! the consumer group
    topic             string ! the source topic
    partition         int    ! the partition
    upstream_offset   long   ! committed on the source
    target_topic      string ! the remote topic
    downstream_offset long   ! where the group resumes on the target
    metadata          string ! the metadata of the group's commit
    translated_at_ms  long   ! time of the translation
""")

LAG = _table("""
    lag: a partition's replication lag at one time
    key: topic, partition, measured_at_ms
    topic           string ! the source topic
    partition       int    ! the partition
    source_end      long   ! end of the source's log
    staged          long   ! next offset to stage
    replayed        long   ! next offset to replay
    lag             long   ! offsets of the source not yet on the target
    age_ms          long   ? age of the oldest staged record not yet on the target
    measured_at_ms  long   ! time of the measurement
""")

VERIFICATION = _table("""
    verification: a partition's result of a comparison
    key: topic, partition, verified_at_ms
    topic           string ! the source topic
    partition       int    ! the partition
    records         long   ! records compared
    lost            long   ! missing downstream
    duplicated      long   ! more than once downstream
    reordered       long   ! in a different order downstream
    altered         long   ! with different content downstream
    verified_at_ms  long   ! time of the comparison
""")

CONTROL = _table("""
    control: an operator's request
    key: scope, topic, partition, ordered_at_ms
    order        string ! pause, resume, accept-gap or restart
    scope        string ! cluster alias or flow of the request
    topic        string ? the topic; null: all of the scope
    partition    int    ? the partition; null: all of the topic
    detail       string ! numbers of the request as JSON
    ordered_at_ms long  ! time of the request
""")

REPLAYS = _table("""
    replays: a point-in-time replay
    key: replay_id, at_ms
    replay_id      string ! its id
    flow           string ! source and target
    topic          string ! the source topic
    target_topic   string ! the topic that it writes
    plan           string ! offset ranges by partition, as JSON
    state          string ! planned, done or failed
    records        long   ! records written
    at_ms          long   ! time of the state
""")

CLUSTER_TABLES = (RECORDS, SEGMENTS, GROUP_OFFSETS)
FLOW_TABLES = (OFFSET_MAP, CHECKPOINTS, LAG, VERIFICATION)
LAKE_TABLES = (CONTROL, REPLAYS)
