"""Every Delta table once: columns, key, layout.

The table itself, its check and its page in docs/tables.md are made from this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Column:
    """A column by its name, its Delta type and a sentence."""

    name: str
    type: str
    meaning: str
    nullable: bool = True


@dataclass(frozen=True)
class Table:
    """A table of the lake: what one row is, its columns, its key, how its files are laid out."""

    name: str
    row: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    partitioned_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)


def _columns(text: str) -> tuple[Column, ...]:
    """Return the columns that *text* lists, one a line: name, type, `!` if never null, meaning."""
    columns = []
    for line in text.strip().splitlines():
        name, type_, mark, meaning = line.split(None, 3)
        columns.append(Column(name, type_, meaning, nullable=mark != "!"))
    return tuple(columns)


CHECKPOINT_EVERY = 1_000
"""Commits from one checkpoint to the next at most: who opens a table reads each since the last."""

# A file that a commit replaced stays a day, for whoever reads an older version (a long `verify`);
# vacuum is bound by the same day. Loops add a small file four times a second, which merging
# replaces: for longer, the disk would fill with them.
APPEND_ONLY = {
    "delta.appendOnly": "true",
    "delta.checkpointInterval": str(CHECKPOINT_EVERY),
    "delta.logRetentionDuration": "interval 14 days",
    "delta.deletedFileRetentionDuration": "interval 1 day",
}

# Retention takes records out, which an append-only table refuses.
DELETABLE = {**APPEND_ONLY, "delta.appendOnly": "false"}

RECORDS = Table(
    name="records",
    row="a source record",
    columns=_columns(
        """
        slot            int     !  (crc32(topic) + partition) mod 16
        topic           string  !  the topic's name on the source
        topic_id        string  !  its incarnation: Kafka's topic id, with +1 after a cut log
        partition       int     !  the partition on the source, and on every target
        offset          long    !  the offset on the source
        timestamp_ms    long    ?  the record's timestamp, raw: -1 is Kafka's "none"
        timestamp_type  int     ?  0 not available, 1 CreateTime, 2 LogAppendTime
        leader_epoch    int     ?  epoch of the leader that the record was read from
        key             binary  ?  the key; null and empty are two things
        value           binary  ?  the value; null is a tombstone
        headers         headers ?  keys and values in order, duplicates kept
        raw_header_keys binaries ? all keys of `headers` as bytes, where one of them is not UTF-8
        """
    ),
    key=("topic_id", "partition", "offset"),
    partitioned_by=("slot",),
    properties=DELETABLE,
)

SEGMENTS = Table(
    name="segments",
    row="a staged range and what was found in it",
    columns=_columns(
        """
        topic             string ! the topic's name
        topic_id          string ! its incarnation
        partition         int    ! the partition
        start             long   ! first offset of the range
        end               long   ! offset behind the range
        count             long   ! records found in it
        size_bytes        long   ! bytes of keys, values and headers
        first             long   ? offset of the first record
        last              long   ? offset of the last record
        min_timestamp_ms  long   ? smallest timestamp
        max_timestamp_ms  long   ? largest timestamp
        leader_epoch      int    ? epoch of the leader then: none of its records is newer
        low               long   ! log start when the range was planned
        stable            long   ! last stable offset when it was planned
        high              long   ! high watermark when it was planned
        gap_cause         string ! what is known of why offsets hold no record; empty: all do
        digest            string ! over timestamp, key, value and headers of its records, in order
        staged_at_ms      long   ! when it was committed
        sequence          long   ! lowest sequence of the files that hold its records
        version           long   ! version of `records` whose commit holds it
        """
    ),
    key=("topic", "topic_id", "partition", "start"),
    properties=APPEND_ONLY,
)

GROUP_OFFSETS = Table(
    name="group_offsets",
    row="a group's committed offset at a time",
    columns=_columns(
        """
        group            string ! the consumer group
        topic            string ! the topic's name
        topic_id         string ! its incarnation when it was seen
        partition        int    ! the partition
        committed        long   ! next offset that the group will read
        metadata         string ! what the group keeps beside the offset; Kafka Streams does
        seen_at_ms       long   ! when the snapshot was taken
        """
    ),
    key=("group", "topic", "partition", "seen_at_ms"),
    properties=APPEND_ONLY,
)

OFFSET_MAP = Table(
    name="offset_map",
    row="a run of consecutive upstream offsets that became consecutive downstream ones",
    columns=_columns(
        """
        topic             string ! the source topic
        incarnation       string ! its topic id
        partition         int    ! the partition
        upstream_start    long   ! first offset on the source
        target_topic      string ! the remote topic
        target_topic_id   string ! its topic id
        target_partition  int    ! the partition on the target
        downstream_start  long   ! offset of the same record on the target
        length            long   ! how many
        run_id            string ! which process wrote it
        committed_at      long   ! when, ms since 1970
        """
    ),
    key=("target_topic_id", "target_partition", "downstream_start"),
    properties=APPEND_ONLY,
)

CHECKPOINTS = Table(
    name="checkpoints",
    row="a group's committed offset, translated",
    columns=_columns(
        """
        group             string ! the consumer group
        topic             string ! the source topic
        partition         int    ! the partition
        upstream_offset   long   ! committed on the source
        target_topic      string ! the remote topic
        downstream_offset long   ! where the group resumes on the target
        metadata          string ! what the group keeps beside its offset
        translated_at_ms  long   ! when
        """
    ),
    key=("group", "topic", "partition", "translated_at_ms"),
    properties=APPEND_ONLY,
)

LAG = Table(
    name="lag",
    row="how far a partition is at a time",
    columns=_columns(
        """
        topic           string ! the source topic
        partition       int    ! the partition
        source_end      long   ! end of the source's log
        staged          long   ! next offset to stage
        replayed        long   ! next offset to replay
        lag             long   ! offsets of the source not yet on the target
        age_ms          long   ? age of the oldest staged record not yet on the target
        measured_at_ms  long   ! when
        """
    ),
    key=("topic", "partition", "measured_at_ms"),
    properties=APPEND_ONLY,
)

VERIFICATION = Table(
    name="verification",
    row="what a comparison found in a partition",
    columns=_columns(
        """
        topic           string ! the source topic
        partition       int    ! the partition
        records         long   ! records compared
        lost            long   ! missing downstream
        duplicated      long   ! more than once downstream
        reordered       long   ! out of their order downstream
        altered         long   ! with another content downstream
        verified_at_ms  long   ! when
        """
    ),
    key=("topic", "partition", "verified_at_ms"),
    properties=APPEND_ONLY,
)

CONTROL = Table(
    name="control",
    row="an operator's order",
    columns=_columns(
        """
        order        string ! pause, resume, accept-gap or restart
        scope        string ! cluster alias or flow that it is for
        topic        string ? the topic; null: all of the scope
        partition    int    ? the partition; null: all of the topic
        detail       string ! numbers of the order as JSON
        ordered_at_ms long  ! when
        """
    ),
    key=("scope", "topic", "partition", "ordered_at_ms"),
    properties=APPEND_ONLY,
)

REPLAYS = Table(
    name="replays",
    row="a point-in-time replay",
    columns=_columns(
        """
        replay_id      string ! its id
        flow           string ! source and target
        topic          string ! the source topic
        target_topic   string ! where it was written
        plan           string ! offset ranges by partition, as JSON
        state          string ! planned, done or failed
        records        long   ! records written
        at_ms          long   ! when
        """
    ),
    key=("replay_id", "at_ms"),
    properties=APPEND_ONLY,
)

CLUSTER_TABLES = (RECORDS, SEGMENTS, GROUP_OFFSETS)
FLOW_TABLES = (OFFSET_MAP, CHECKPOINTS, LAG, VERIFICATION)
LAKE_TABLES = (CONTROL, REPLAYS)
