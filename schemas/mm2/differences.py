"""Where a key, or its absence, means something else here than in MirrorMaker 2, on purpose."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mm2Difference:
    """What MirrorMaker 2 does (*theirs*), what is done here and why; *keys* are those it is about.

    tests/stories/mm2/test_mm2_keys.py compares both and takes no difference that is not here.
    """

    theirs: str
    ours: str
    why: str = ""
    keys: tuple[str, ...] = ()


DIFFERENCES = (
    Mm2Difference(
        "reads a source once per flow",
        "reads it once: `A->B.*` of clients but the reader and the records' producer does nothing",
        "flows share clients",
    ),
    Mm2Difference(
        "`isolation.level=read_uncommitted`",
        "always `read_committed`",
        "aborted records are not data",
        ("exactly.once.support",),
    ),
    Mm2Difference("`tasks.max=1`", "the cores", "", ("tasks.max",)),
    Mm2Difference(
        "3 copies of its own topics",
        "as `replication.factor`",
        "brokers may be fewer",
        (
            "checkpoints.topic.replication.factor",
            "offset-syncs.topic.replication.factor",
            "heartbeats.topic.replication.factor",
        ),
    ),
    Mm2Difference(
        "a replication factor below -1 fails when a topic is made",
        "refused",
        "it can only fail",
        (
            "replication.factor",
            "checkpoints.topic.replication.factor",
            "offset-syncs.topic.replication.factor",
            "heartbeats.topic.replication.factor",
        ),
    ),
    Mm2Difference(
        "an interval of 0: an error, or no pause",
        "never, as one below 0",
    ),
    Mm2Difference("not idempotent, 1 request in flight", "idempotent, 5 in flight", "transactions"),
    Mm2Difference("exactly once on demand", "always"),
    Mm2Difference(
        "a client's other defaults: Java's",
        "librdkafka's, but `check.crcs=true`",
        "only what the file says is translated",
    ),
    Mm2Difference(
        "a client's numbers: Java's bounds",
        "refused as there, then brought to librdkafka's bounds",
        "`config check` shows the number that is taken",
    ),
    Mm2Difference(
        "ignores unknown keys and unlisted aliases", "errors", "a misspelt key does harm in silence"
    ),
    Mm2Difference(
        "`emit.checkpoints.enabled=false` is an error of one connector",
        "it is honoured",
        "",
        ("emit.checkpoints.enabled",),
    ),
    Mm2Difference(
        "`emit.offset-syncs.enabled=false` ends checkpoints and group sync",
        "it ends offset syncs only",
        "translation needs none",
        ("emit.offset-syncs.enabled",),
    ),
    Mm2Difference(
        "any `use.defaults.from` but `source` is `target`",
        "another word is refused",
        "a misspelt value does harm too",
        ("use.defaults.from",),
    ),
    Mm2Difference(
        "Java classes for filters, policies, transforms, by plugin version",
        "refused",
        "there is no JVM on a record's way",
        ("transforms", "predicates", "connector.plugin.version"),
    ),
    Mm2Difference(
        "`errors.tolerance=all` leaves records out",
        "refused",
        "no record is ever left out in silence",
        ("errors.tolerance",),
    ),
    Mm2Difference(
        "`A.consumer.auto.offset.reset` `none` and `by_duration:...`",
        "refused",
        "a topic begins at its first record or at its end",
    ),
    Mm2Difference(
        "Kerberos, Java classes for logins, OAuth assertions",
        "refused, with what to do",
        "librdkafka",
    ),
    Mm2Difference(
        "syncs `message.timestamp.*.max.ms`",
        "never; topics it makes take any",
        "records keep their time",
    ),
    Mm2Difference("sends all of a topic's settings at each sync", "sends what differs"),
    Mm2Difference("groups as filtered", "also never `deltamirror.*`", "they hold our own progress"),
)
