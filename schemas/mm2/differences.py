"""Intended differences from MirrorMaker 2: keys and defaults with another meaning here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mm2Difference:
    """MirrorMaker 2's behaviour (*theirs*), deltamirror's (*ours*), the reason, and the *keys*.

    tests/stories/mm2/test_mm2_keys.py compares both and fails for a difference that is not listed.
    """

    theirs: str
    ours: str
    why: str = ""
    keys: tuple[str, ...] = ()


_FACTORS = (
    "checkpoints.topic.replication.factor",
    "offset-syncs.topic.replication.factor",
    "heartbeats.topic.replication.factor",
)
DIFFERENCES = (
    Mm2Difference("reads a source once per flow",
        "reads it once; `A->B.*` keys apply only to the reader and the producer of records",
        "flows share clients"),
    Mm2Difference("`isolation.level=read_uncommitted`", "always `read_committed`",
        "aborted records must not be copied", ("exactly.once.support",)),
    Mm2Difference("`tasks.max=1`", "the number of cores", "", ("tasks.max",)),
    Mm2Difference("replication factor 3 for its own topics", "the value of `replication.factor`",
        "a cluster may have fewer brokers", _FACTORS),
    Mm2Difference("a replication factor below -1 fails when a topic is created",
        "rejected at start", "it always fails", ("replication.factor", *_FACTORS)),
    Mm2Difference("an interval of 0 is an error, or means no pause",
        "0 and negative intervals turn the action off"),
    Mm2Difference("not idempotent, 1 request in flight", "idempotent, 5 in flight", "transactions"),
    Mm2Difference("exactly once if it is configured", "always exactly once"),
    Mm2Difference("other client defaults are those of the Java client",
        "those of librdkafka, with `check.crcs=true`", "only keys in the file are translated"),
    Mm2Difference("client numbers have the Java client's bounds",
        "the same bounds, then clamped to librdkafka's bounds",
        "`config check` shows the number in use"),
    Mm2Difference("ignores unknown keys and unlisted aliases", "rejects them",
        "a misspelt key must not be ignored silently"),
    Mm2Difference("`emit.checkpoints.enabled=false` is an error of one connector", "honoured", "",
        ("emit.checkpoints.enabled",)),
    Mm2Difference("`emit.offset-syncs.enabled=false` turns off checkpoints and group sync",
        "turns off offset syncs only", "translation does not use offset syncs",
        ("emit.offset-syncs.enabled",)),
    Mm2Difference("any `use.defaults.from` except `source` means `target`",
        "other values are rejected", "a misspelt value must not be ignored silently",
        ("use.defaults.from",)),
    Mm2Difference("Java classes for filters, policies and transforms, and plugin versions",
        "rejected", "records do not pass through a JVM",
        ("transforms", "predicates", "connector.plugin.version")),
    Mm2Difference("`errors.tolerance=all` skips records", "rejected",
        "no record is skipped silently", ("errors.tolerance",)),
    Mm2Difference("`A.consumer.auto.offset.reset` `none` and `by_duration:...`", "rejected",
        "a topic begins at its first record or at its end"),
    Mm2Difference("Kerberos, Java classes for logins, OAuth assertions", "rejected with a hint",
        "librdkafka does not support them"),
    Mm2Difference("syncs `message.timestamp.*.max.ms`", "does not; new topics accept any timestamp",
        "records keep their timestamps"),
    Mm2Difference("sends all of a topic's configs at each sync", "sends only changed configs"),
    Mm2Difference("syncs all groups of the filter", "all except `deltamirror.*`",
        "these groups hold deltamirror's progress"),
)  # fmt: skip
