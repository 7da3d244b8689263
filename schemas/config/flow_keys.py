"""The keys that say what is replicated, where to and how: MirrorMaker 2's and our own few."""

from __future__ import annotations

from schemas.config.keys import Key, KeyStatus, Kind

_H, _T, _N, _R = KeyStatus.HONOURED, KeyStatus.TRANSLATED, KeyStatus.NO_EFFECT, KeyStatus.REFUSED
_S, _L, _P, _B = Kind.STRING, Kind.LIST, Kind.PATTERNS, Kind.BOOLEAN
_SHORT, _I, _LONG = Kind.SHORT, Kind.INTEGER, Kind.LONG

TOPICS_EXCLUDE = r"mm2.*\.internal, .*\.replica, __.*"
GROUPS_EXCLUDE = "console-consumer-.*, connect-.*, __.*"
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
_NO_JMX = "`deltamirror run` serves /metrics, with MirrorMaker 2's names; there is no JMX here."
_AS_BYTES = "records travel as bytes, untouched: leave it out"
_GONE = "MirrorMaker 2 4.x does not know it any more: use {}"
_CHUNK = "A replay transaction ends with its chunk."
_RETRIES = "The loop retries by itself and `status` shows the error."
_NO_SMT = "records are replicated unchanged; transform them with a consumer of the target"

CLUSTERS = (
    Key("clusters", _L, None, "T", _H, "The aliases of the clusters; all other keys use them.",
        allows_duplicates=True),
    Key("bootstrap.servers", _L, None, "C", _H, "The brokers of the cluster: required."),
    Key("config.providers", _L, "", "T", _H,
        "Names of config providers; env, file and dir need no declaration."),
)  # fmt: skip

NAMES = (
    Key("enabled", _B, "false", "TF", _H, "Replicate this flow."),
    Key("topics", _P, ".*", "TF", _H, "Topics to replicate, by name or regular expression."),
    Key("topics.exclude", _P, TOPICS_EXCLUDE, "TF", _H, "Topics to leave out; beats `topics`."),
    Key("topics.blacklist", _P, None, "TF", _R, _GONE.format("topics.exclude")),
    Key("groups", _P, ".*", "TF", _H, "Consumer groups whose offsets are translated."),
    Key("groups.exclude", _P, GROUPS_EXCLUDE, "TF", _H,
        "Groups to leave out; our own `deltamirror.*` groups always are."),
    Key("groups.blacklist", _P, None, "TF", _R, _GONE.format("groups.exclude")),
    Key("replication.policy.class", _S, "DefaultReplicationPolicy", "TF", _H,
        "What a remote topic is called; `package.module:Class` is a Python class of your own.",
        allowed=_MIRROR + r"(Default|Identity)ReplicationPolicy|[A-Za-z_][\w.]*:[A-Za-z_]\w*",
        refusal="a Java class cannot be used: DefaultReplicationPolicy, "
        "IdentityReplicationPolicy or a Python class, written package.module:Class"),
    Key("replication.policy.separator", _S, ".", "TF", _H, "Between the alias and the topic."),
    Key("replication.policy.internal.topic.separator.enabled", _B, "true", "TF", _H,
        "Use the separator in internal topics' names too; read beside a separator only."),
    Key("topic.filter.class", _S, "DefaultTopicFilter", "TF", _H, "How topics are chosen.",
        allowed=_MIRROR + "DefaultTopicFilter", refusal="use topics and topics.exclude"),
    Key("group.filter.class", _S, "DefaultGroupFilter", "TF", _H, "How groups are chosen.",
        allowed=_MIRROR + "DefaultGroupFilter", refusal="use groups and groups.exclude"),
    Key("heartbeats.replication.enabled", _B, "true", "TF", _H,
        "Replicate heartbeats topics whatever the filter says."),
)  # fmt: skip

TOPICS = (
    Key("replication.factor", _I, "2", "TF", _H,
        "Replicas of a remote topic when it is created; -1 is the target's default.", minimum=-1),
    Key("refresh.topics.enabled", _B, "true", "TF", _H, "Look for new topics and partitions."),
    Key("refresh.topics.interval.seconds", _LONG, "600", "TF", _H,
        "How often to look; 0 or less: only at the start."),
    Key("config.properties.exclude", _P, CONFIG_PROPERTIES_EXCLUDE, "TF", _H,
        "Topic configurations that are never copied."),
    Key("config.properties.blacklist", _P, None, "TF", _R,
        _GONE.format("config.properties.exclude")),
    Key("config.property.filter.class", _S, "DefaultConfigPropertyFilter", "TF", _H,
        "How topic configurations are chosen.", allowed=_MIRROR + "DefaultConfigPropertyFilter",
        refusal="use config.properties.exclude"),
    Key("use.defaults.from", _S, "target", "F", _H,
        "Whose default a remote topic has where the source topic has its own cluster's.",
        allowed="target|source", refusal="it must be target or source"),
    Key("sync.topic.configs.enabled", _B, "true", "TF", _H,
        "Keep the settings of remote topics as their source topics' are."),
    Key("sync.topic.configs.interval.seconds", _LONG, "600", "TF", _H,
        "How often; 0 or less: never after the topic was created."),
    Key("use.incremental.alter.configs", _S, None, "TF", _N, "Gone since MirrorMaker 2 4.0."),
    Key("sync.topic.acls.enabled", _B, "true", "TF", _H,
        "Make source topics' ACLs for remote topics: whole names, never to write, never deleted."),
    Key("sync.topic.acls.interval.seconds", _LONG, "600", "TF", _H, "How often; 0 or less: never."),
    Key("forwarding.admin.class", _S, "ForwardingAdmin", "TF", _N, "Topics are made directly.",
        allowed=r"(org\.apache\.kafka\.clients\.admin\.)?ForwardingAdmin",
        refusal="a Java admin class cannot be used; create the remote topics beforehand"),
)  # fmt: skip

GROUPS = (
    Key("emit.checkpoints.enabled", _B, "true", "TF", _H, "Snapshot and translate group offsets."),
    Key("emit.checkpoints.interval.seconds", _LONG, "60", "TF", _H, "How often; 0 or less: never."),
    Key("checkpoints.topic.replication.factor", _SHORT, None, "TF", _H,
        "Copies of the checkpoints topic; not set: as replication.factor (MirrorMaker 2: 3).",
        minimum=-1),
    Key("refresh.groups.enabled", _B, "true", "TF", _N, "Groups are listed at every snapshot."),
    Key("refresh.groups.interval.seconds", _LONG, "600", "TF", _N,
        "Groups are listed at every snapshot."),
    Key("sync.group.offsets.enabled", _B, "false", "TF", _H,
        "Set where groups resume on the target, where they have no members there; never back."),
    Key("sync.group.offsets.interval.seconds", _LONG, "60", "TF", _H,
        "How often; 0 or less: never. The source's groups are looked at as often, at least."),
    Key("emit.offset-syncs.enabled", _B, "true", "TF", _H,
        "Write a sample of the offset map for MirrorMaker 2's tools; ours need none of it. `false` "
        "beside `offset-syncs.topic.*` is refused."),
    Key("offset-syncs.topic.replication.factor", _SHORT, None, "TF", _H,
        "Copies of the offset-syncs topic; not set: as replication.factor (MirrorMaker 2: 3).",
        minimum=-1),
    Key("offset-syncs.topic.location", _S, "source", "TF", _H,
        "The cluster that has the offset-syncs topic.",
        allowed="source|target", refusal="it must be source or target"),
    Key("offset.lag.max", _LONG, "100", "TF", _H,
        "Records between two offset syncs, at most; less than 0 is 0. Our own translation is exact "
        "without."),
    Key("emit.heartbeats.enabled", _B, "true", "TF", _H,
        "Write A->B's sign of life to `heartbeats` on B, also where A->B replicates nothing."),
    Key("emit.heartbeats.interval.seconds", _LONG, "1", "TF", _H, "How often; 0 or less: never."),
    Key("heartbeats.topic.replication.factor", _SHORT, None, "TF", _H,
        "Copies of `heartbeats`; not set: as replication.factor (MirrorMaker 2: 3).", minimum=-1),
)  # fmt: skip

CONNECTOR = (
    Key("tasks.max", _I, "the cores", "TF", _T,
        "Tasks that run at a time in this process: the maximum over all flows.", minimum=1),
    Key("tasks.max.enforce", _B, "true", "TF", _N, "tasks.max always holds."),
    Key("source.cluster.alias", _S, None, "TF", _N, "The flow's name says it."),
    Key("target.cluster.alias", _S, None, "TF", _N, "The flow's name says it."),
    Key("consumer.poll.timeout.ms", _LONG, "1000", "TF", _N, "Reads wait as long as they need."),
    Key("admin.timeout.ms", _LONG, "60000", "TF", _N,
        "A cluster is probed for 3 s, then tried again later."),
    Key("add.source.alias.to.metrics", _B, None, "TF", _N, "Gone since MirrorMaker 2 4.0."),
    Key("metric.names.formats", _L, "legacy", "TF", _N, _NO_JMX,
        allowed=r"(legacy|new)(\s*,\s*(legacy|new))?", refusal="it must be legacy, new or both"),
    Key("metric.reporters", _L, "JmxReporter", "TF", _N, _NO_JMX),
    *(
        Key(name, _S, "ByteArrayConverter", "TCF", _N, "Records travel as bytes, untouched.",
            allowed=_BYTES, refusal=_AS_BYTES)
        for name in ("key.converter", "value.converter", "header.converter")
    ),
    *(
        Key(name, _L, "", "TF", _N, "None.", allowed="", refusal=_NO_SMT)
        for name in ("transforms", "predicates")
    ),
    Key("errors.tolerance", _S, "none", "TF", _N, "No record is ever skipped in silence.",
        allowed="none", refusal="no record is ever skipped in silence: leave it out"),
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
        "Records that one staging commit holds at most.", minimum=1),
    Key("deltamirror.stage.max.bytes", _LONG, "536870912", "T", _H,
        "Bytes that one staging commit holds at most, to the next record boundary. A backlog "
        "begins with 64 MiB, and goes on with twice as much each time.", minimum=1),
    Key("deltamirror.replay.chunk.records", _LONG, "50000", "T", _H,
        "Records that one transaction on the target holds at most.", minimum=1),
    Key("deltamirror.replay.chunk.bytes", _LONG, "16777216", "T", _H,
        "Bytes that one transaction on the target holds, to the next record boundary.", minimum=1),
    Key("deltamirror.stage.retention.ms", _LONG, "-1", "T", _H,
        "How long staged records stay, if every flow has replayed them; -1: for ever.",
        minimum=-1),
    Key("deltamirror.stage.retention.bytes", _LONG, "-1", "T", _H,
        "Bytes that a cluster has staged beyond which the oldest that all flows have replayed go; "
        "-1: no bound.",
        minimum=-1),
    Key("deltamirror.metrics.listen", _S, METRICS_LISTEN, "T", _H,
        "Where `deltamirror run` serves /metrics and /healthz, as host:port; empty: nowhere. Port "
        "0 is any free one (the log and `status --format json` say which). If the port is "
        "taken, the run logs a warning and serves nothing until it is restarted.",
        allowed=_LISTEN, refusal="it must be host:port, [IPv6 address]:port, or empty"),
)  # fmt: skip

SECTIONS = {
    "Clusters": CLUSTERS,
    "What is replicated, under which name": NAMES,
    "Topics on the target": TOPICS,
    "Groups, checkpoints, heartbeats": GROUPS,
    "What is left of the connectors": CONNECTOR,
    "Our own": DELTAMIRROR_KEYS,
}
KEYS = {key.name: key for section in SECTIONS.values() for key in section}


def default_of(name: str) -> str:
    """Return the default of the key *name*, as the file would say it."""
    return KEYS[name].default or ""
