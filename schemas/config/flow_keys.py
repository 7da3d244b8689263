"""Keys that configure replication: MirrorMaker 2's and deltamirror's own."""

from __future__ import annotations

from schemas.config.keys import Key, KeyStatus, Kind

_H, _T, _N, _R = KeyStatus.HONOURED, KeyStatus.TRANSLATED, KeyStatus.NO_EFFECT, KeyStatus.REFUSED
_S, _L, _P, _B = Kind.STRING, Kind.LIST, Kind.PATTERNS, Kind.BOOLEAN
_SHORT, _I, _LONG = Kind.SHORT, Kind.INTEGER, Kind.LONG

CONFIG_PROPERTIES_EXCLUDE = (
    "follower.replication.throttled.replicas, leader.replication.throttled.replicas, "
    "message.timestamp.difference.max.ms, log.message.timestamp.before.max.ms, "
    "log.message.timestamp.after.max.ms, message.timestamp.type, "
    "unclean.leader.election.enable, min.insync.replicas"
)

METRICS_LISTEN = "127.0.0.1:9877"
_PORT = r"(\d{1,4}|[1-5]\d{4}|6[0-4]\d{3}|65[0-4]\d\d|655[0-2]\d|6553[0-5])"
_LISTEN = rf"|(\[[0-9a-fA-F:.]+\]|[^\s:\[\]]+):{_PORT}"
_MIRROR = r"(org\.apache\.kafka\.connect\.mirror\.)?"
_BYTES = r"(org\.apache\.kafka\.connect\.converters\.)?ByteArrayConverter"
_NO_JMX = "There is no JMX here; `deltamirror run` serves /metrics with MirrorMaker 2's names."
_AS_BYTES = "records are copied as bytes, unchanged: remove the key"
_GONE = "MirrorMaker 2 4.0 removed it: use {}"
_CHUNK = "deltamirror.replay.chunk.records and .bytes limit a transaction."
_RETRIES = "The loop retries automatically, and `status` shows the error."
_NO_SMT = "records are replicated unchanged; transform them with a consumer of the target"

CLUSTERS = (
    Key("clusters", _L, None, "T", _H, "The aliases of the clusters, which other keys use.",
        allows_duplicates=True),
    Key("bootstrap.servers", _L, None, "C", _H, "The brokers of the cluster. Required."),
    Key("config.providers", _L, "", "T", _H,
        "Names of config providers. env, file and dir need no declaration."),
)  # fmt: skip

NAMES = (
    Key("enabled", _B, "false", "TF", _H, "Replicate this flow."),
    Key("topics", _P, ".*", "TF", _H, "Topics to replicate, by name or regular expression."),
    Key("topics.exclude", _P, r"mm2.*\.internal, .*\.replica, __.*", "TF", _H,
        "Topics to exclude, even if `topics` matches."),
    Key("topics.blacklist", _P, None, "TF", _R, _GONE.format("topics.exclude")),
    Key("groups", _P, ".*", "TF", _H, "Consumer groups whose offsets are translated."),
    Key("groups.exclude", _P, "console-consumer-.*, connect-.*, __.*", "TF", _H,
        "Groups to exclude. The groups `deltamirror.*` are always excluded."),
    Key("groups.blacklist", _P, None, "TF", _R, _GONE.format("groups.exclude")),
    Key("replication.policy.class", _S, "DefaultReplicationPolicy", "TF", _H,
        "The naming rule of remote topics. `package.module:Class` is a Python class of your own.",
        allowed=_MIRROR + r"(Default|Identity)ReplicationPolicy|[A-Za-z_][\w.]*:[A-Za-z_]\w*",
        refusal="a Java class cannot be used: DefaultReplicationPolicy, "
        "IdentityReplicationPolicy or a Python class, written package.module:Class"),
    Key("replication.policy.separator", _S, ".", "TF", _H,
        "The text between the alias and the topic's name."),
    Key("replication.policy.internal.topic.separator.enabled", _B, "true", "TF", _H,
        "Use replication.policy.separator in internal topics' names too, if it is set."),
    Key("topic.filter.class", _S, "DefaultTopicFilter", "TF", _H, "The filter of topics.",
        allowed=_MIRROR + "DefaultTopicFilter", refusal="use topics and topics.exclude"),
    Key("group.filter.class", _S, "DefaultGroupFilter", "TF", _H, "The filter of groups.",
        allowed=_MIRROR + "DefaultGroupFilter", refusal="use groups and groups.exclude"),
    Key("heartbeats.replication.enabled", _B, "true", "TF", _H,
        "Replicate heartbeats topics even if the filter excludes them."),
)  # fmt: skip

TOPICS = (
    Key("replication.factor", _I, "2", "TF", _H,
        "Replication factor of new remote topics; -1 is the target's default.", minimum=-1),
    Key("refresh.topics.enabled", _B, "true", "TF", _H, "Find new topics and partitions."),
    Key("refresh.topics.interval.seconds", _LONG, "600", "TF", _H,
        "Seconds between refreshes. 0 or less: refresh only at the start."),
    Key("config.properties.exclude", _P, CONFIG_PROPERTIES_EXCLUDE, "TF", _H,
        "Topic settings that are never copied."),
    Key("config.properties.blacklist", _P, None, "TF", _R,
        _GONE.format("config.properties.exclude")),
    Key("config.property.filter.class", _S, "DefaultConfigPropertyFilter", "TF", _H,
        "The filter of topic settings.", allowed=_MIRROR + "DefaultConfigPropertyFilter",
        refusal="use config.properties.exclude"),
    Key("use.defaults.from", _S, "target", "F", _H,
        "The cluster whose defaults apply to settings that the source topic does not override.",
        allowed="target|source", refusal="it must be target or source"),
    Key("sync.topic.configs.enabled", _B, "true", "TF", _H,
        "Copy the settings of source topics to their remote topics."),
    Key("sync.topic.configs.interval.seconds", _LONG, "600", "TF", _H,
        "Seconds between syncs. 0 or less: only when the topic is created."),
    Key("use.incremental.alter.configs", _S, None, "TF", _N, "MirrorMaker 2 4.0 removed it."),
    Key("sync.topic.acls.enabled", _B, "true", "TF", _H,
        "Create source topics' ACLs for remote topics, except prefixed ones and those that allow "
        "writing. ACLs are never deleted."),
    Key("sync.topic.acls.interval.seconds", _LONG, "600", "TF", _H,
        "Seconds between syncs. 0 or less: never."),
    Key("forwarding.admin.class", _S, "ForwardingAdmin", "TF", _N, "Topics are created directly.",
        allowed=r"(org\.apache\.kafka\.clients\.admin\.)?ForwardingAdmin",
        refusal="a Java admin class cannot be used; create the remote topics beforehand"),
)  # fmt: skip

GROUPS = (
    Key("emit.checkpoints.enabled", _B, "true", "TF", _H, "Snapshot and translate group offsets."),
    Key("emit.checkpoints.interval.seconds", _LONG, "60", "TF", _H,
        "Seconds between snapshots. 0 or less: never."),
    Key("checkpoints.topic.replication.factor", _SHORT, None, "TF", _H,
        "Replication factor of the checkpoints topic. Default: `replication.factor` (MirrorMaker "
        "2: 3).", minimum=-1),
    Key("refresh.groups.enabled", _B, "true", "TF", _N, "Groups are listed at every snapshot."),
    Key("refresh.groups.interval.seconds", _LONG, "600", "TF", _N,
        "Groups are listed at every snapshot."),
    Key("sync.group.offsets.enabled", _B, "false", "TF", _H,
        "Sync committed offsets to groups that have no members on the target. Offsets are never "
        "set back."),
    Key("sync.group.offsets.interval.seconds", _LONG, "60", "TF", _H,
        "Seconds between syncs. 0 or less: never. Source groups are read at least as often."),
    Key("emit.offset-syncs.enabled", _B, "true", "TF", _H,
        "Write a sample of the offset map for MirrorMaker 2's tools. deltamirror reads none of it. "
        "`false` together with `offset-syncs.topic.*` is refused."),
    Key("offset-syncs.topic.replication.factor", _SHORT, None, "TF", _H,
        "Replication factor of the offset-syncs topic. Default: `replication.factor` (MirrorMaker "
        "2: 3).", minimum=-1),
    Key("offset-syncs.topic.location", _S, "source", "TF", _H,
        "The cluster that has the offset-syncs topic.",
        allowed="source|target", refusal="it must be source or target"),
    Key("offset.lag.max", _LONG, "100", "TF", _H,
        "Largest number of records between two offset syncs. Less than 0 is 0. deltamirror's own "
        "translation is exact and does not use it."),
    Key("emit.heartbeats.enabled", _B, "true", "TF", _H,
        "Write heartbeats of A->B to `heartbeats` on B, even if the flow A->B is not enabled."),
    Key("emit.heartbeats.interval.seconds", _LONG, "1", "TF", _H,
        "Seconds between heartbeats. 0 or less: never."),
    Key("heartbeats.topic.replication.factor", _SHORT, None, "TF", _H,
        "Replication factor of `heartbeats`. Default: `replication.factor` (MirrorMaker 2: 3).",
        minimum=-1),
)  # fmt: skip

CONNECTOR = (
    Key("tasks.max", _I, "the cores", "TF", _T,
        "Tasks that run at the same time in this process: the maximum of all flows.", minimum=1),
    Key("tasks.max.enforce", _B, "true", "TF", _N, "tasks.max is always enforced."),
    Key("source.cluster.alias", _S, None, "TF", _N, "The flow's name has both aliases."),
    Key("target.cluster.alias", _S, None, "TF", _N, "The flow's name has both aliases."),
    Key("consumer.poll.timeout.ms", _LONG, "1000", "TF", _N, "A read has a fixed timeout here."),
    Key("admin.timeout.ms", _LONG, "60000", "TF", _N, "Requests have fixed timeouts here."),
    Key("add.source.alias.to.metrics", _B, None, "TF", _N, "MirrorMaker 2 4.0 removed it."),
    Key("metric.names.formats", _L, "legacy", "TF", _N, _NO_JMX,
        allowed=r"(legacy|new)(\s*,\s*(legacy|new))?", refusal="it must be legacy, new or both"),
    Key("metric.reporters", _L, "JmxReporter", "TF", _N, _NO_JMX),
    *(
        Key(name, _S, "ByteArrayConverter", "TCF", _N, "Records are copied as bytes.",
            allowed=_BYTES, refusal=_AS_BYTES)
        for name in ("key.converter", "value.converter", "header.converter")
    ),
    *(
        Key(name, _L, "", "TF", _N, "There are none.", allowed="", refusal=_NO_SMT)
        for name in ("transforms", "predicates")
    ),
    Key("errors.tolerance", _S, "none", "TF", _N, "No record is ever skipped.",
        allowed="none", refusal="no record is ever skipped: remove the key"),
    *(
        Key(name, kind, None, "TF", _N, _RETRIES)
        for name, kind in (
            ("errors.retry.timeout", _LONG), ("errors.retry.delay.max.ms", _LONG),
            ("errors.log.enable", _B), ("errors.log.include.messages", _B),
        )
    ),
    Key("config.action.reload", _S, "restart", "TF", _N, _RETRIES,
        allowed="none|restart", refusal="it must be none or restart"),
    Key("name", _S, None, "TF", _N, "There are no connectors here.",
        allowed=".+", refusal="it must not be empty"),
    Key("connector.class", _S, None, "TF", _N, "There are no connectors here."),
    Key("connector.plugin.version", _S, None, "TF", _N, "There are no connectors here."),
    Key("transaction.boundary", _S, "poll", "F", _N, _CHUNK,
        allowed="(?i:poll|interval|connector)", refusal="it must be poll, interval or connector"),
    Key("transaction.boundary.interval.ms", _LONG, None, "F", _N, _CHUNK, minimum=0),
    Key("exactly.once.support", _S, "requested", "F", _N, "Exactly once is always on.",
        allowed="(?i:requested|required)", refusal="it must be requested or required"),
    Key("offsets.storage.topic", _S, None, "F", _N,
        "Progress is kept in the group `deltamirror.A->B` on the target.",
        allowed=".+", refusal="it must not be empty"),
)  # fmt: skip

DELTAMIRROR_KEYS = (
    Key("deltamirror.lake", _S, "./lake", "T", _H,
        "The folder where records are staged. A relative path starts at the file's folder.",
        allowed="(?!.*://).*", refusal="object stores are not supported yet, only folders"),
    Key("deltamirror.stage.max.records", _LONG, "2000000", "T", _H,
        "Largest number of records in a staging commit.", minimum=1),
    Key("deltamirror.stage.max.bytes", _LONG, "536870912", "T", _H,
        "Largest size of a staging commit in bytes, up to the next record boundary. A backlog "
        "starts with commits of 64 MiB, which double each time up to this size.", minimum=1),
    Key("deltamirror.replay.chunk.records", _LONG, "50000", "T", _H,
        "Largest number of records in a transaction on the target.", minimum=1),
    Key("deltamirror.replay.chunk.bytes", _LONG, "16777216", "T", _H,
        "Largest size of a transaction on the target in bytes, up to the next record boundary.",
        minimum=1),
    Key("deltamirror.stage.retention.ms", _LONG, "-1", "T", _H,
        "Milliseconds that staged records are kept. Records that a flow has not replayed stay. -1: "
        "no limit.", minimum=-1),
    Key("deltamirror.stage.retention.bytes", _LONG, "-1", "T", _H,
        "Bytes of staged records that are kept for each cluster. Records that a flow has not "
        "replayed stay. -1: no limit.", minimum=-1),
    Key("deltamirror.stage.vacuum.retention.ms", _LONG, "900000", "T", _H,
        "Milliseconds after which a file that compaction replaced is deleted. Set it longer if "
        "programs of yours read a version of a table for longer. deltamirror's own readers need no "
        "time: they continue with the file that replaced it.", minimum=0),
    Key("deltamirror.metrics.listen", _S, METRICS_LISTEN, "T", _H,
        "Address of /metrics and /healthz of `deltamirror run`, as host:port. Empty: they are not "
        "served. Port 0 is any free port (see the log or `status --format json`). If the port is "
        "taken, the run logs a warning and serves nothing until it is restarted.",
        allowed=_LISTEN, refusal="it must be host:port, [IPv6 address]:port, or empty"),
)  # fmt: skip

SECTIONS = {
    "Clusters": CLUSTERS,
    "Topics, groups and names": NAMES,
    "Topics on the target": TOPICS,
    "Groups, checkpoints, heartbeats": GROUPS,
    "Connector settings": CONNECTOR,
    "deltamirror's own keys": DELTAMIRROR_KEYS,
}
KEYS = {key.name: key for section in SECTIONS.values() for key in section}


def default_of(name: str) -> str:
    """Return the default of the key *name*, as text."""
    return KEYS[name].default or ""
