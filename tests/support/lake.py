"""A real lake and two scripted clusters, for tests of status and translation without brokers.

A scripted cluster has no transactions, no retention and no group members: it returns the state
that a test has set. tests/stories tests these things on real brokers.
"""

from deltamirror.context import MirrorContext
from schemas.config.config import ClusterConfig, Config, FlowConfig
from schemas.config.flow import Flow
from schemas.errors.base import GroupActiveError, RequestRefusedError
from schemas.errors.environment import UnreachableError
from schemas.errors.source import TopicMissingError
from schemas.kafka.partition import TopicPartition, Watermarks
from schemas.kafka.topic import Topic
from schemas.mm2.name_filter import NameFilter
from schemas.mm2.replication_policy import DefaultPolicy
from schemas.tables import GROUP_OFFSETS

FLOW = Flow("us-east", "eu-west")
ORDERS = TopicPartition("orders", 0)
REMOTE = TopicPartition("us-east.orders", 0)


class ScriptedCluster:
    """A cluster whose state a test sets."""

    def __init__(self, alias):
        self.alias = alias
        self.is_down = False
        self.ids = {}  # topic -> id
        self.marks = {}  # TopicPartition -> Watermarks
        self.offsets = {}  # group -> {TopicPartition: offset}
        self.metadata = {}  # TopicPartition -> progress metadata
        self.states = {}  # group -> state
        self.texts = {}  # (group, TopicPartition) -> metadata of a group's commit
        self.unreadable = set()

    def hold(self, partition, end, *, low=0, topic_id="life1", open_transaction=0):
        self.ids[partition.topic] = topic_id
        self.marks[partition] = Watermarks(low, end, end + open_transaction)

    def progress(self, partition, offset, incarnation="life1"):
        self.offsets.setdefault(FLOW.progress_group, {})[partition] = offset
        self.metadata[partition] = f"{incarnation} target1"

    def open(self):
        pass

    def unauthorized_topics(self, names):
        return {}

    def probe(self, timeout_s=3.0):
        if self.is_down:
            raise UnreachableError(self.alias, servers="localhost:1", reason="refused")

    def topics(self, names=None):
        self.probe()
        return {
            name: Topic(name, id_, sum(p.topic == name for p in self.marks), is_internal=False)
            for name, id_ in self.ids.items()
            if names is None or name in names
        }

    def watermarks(self, partitions, known=None):
        self.probe()
        return {
            p: self.marks.get(p, TopicMissingError(str(p), location="here")) for p in partitions
        }

    def groups(self):
        self.probe()
        return {group: self.states.get(group, "EMPTY") for group in self.offsets}

    def group_offsets(self, group):
        self.probe()
        if group in self.unreadable:
            raise RequestRefusedError(
                self.alias, action=f"list the offsets of group {group}", code="X", reason="no"
            )
        return dict(self.offsets.get(group, {}))

    def group_commits(self, group):
        found = self.group_offsets(group)
        texts = self.metadata if group == FLOW.progress_group else {}
        return {
            p: (offset, self.texts.get((group, p), texts.get(p, ""))) for p, offset in found.items()
        }

    def commit_offsets(self, group, offsets):
        self.probe()
        if self.states.get(group, "EMPTY") != "EMPTY":
            raise GroupActiveError(group, alias=self.alias)
        held = self.offsets.setdefault(group, {})
        for partition, (offset, text) in offsets.items():
            held[partition], self.texts[group, partition] = offset, text

    def committed_offsets(self, group, partitions, require_stable=True):
        self.probe()
        held = self.offsets.get(group, {})
        return {p: (held[p], self.metadata[p]) if p in held else None for p in partitions}


class ScriptedContext(MirrorContext):
    """A context with scripted clusters and a real lake."""

    def __init__(self, root, **flow):
        super().__init__(config(root, **flow))
        self.source = self._clusters["us-east"] = ScriptedCluster("us-east")
        self.target = self._clusters["eu-west"] = ScriptedCluster("eu-west")

    @property
    def flow(self):
        return self.config.flows[0]


def config(root, **flow):
    clusters = {
        alias: ClusterConfig(alias, "localhost:1", {}, {}, {}) for alias in ("us-east", "eu-west")
    }
    settings = {
        "flow": FLOW,
        "topics": NameFilter(),
        "groups": NameFilter(exclude=("ignored-.*",)),
        "policy": DefaultPolicy(),
        "replication_factor": 1,
        "producer": {},
        "refresh_topics_interval_s": None,
        "emit_checkpoints_interval_s": None,
        "config_properties_exclude": NameFilter(()),
    }
    return Config(clusters, (FlowConfig(**(settings | flow)),), str(root), tasks_max=2)


def stage(context, partition, start, end, *, topic_id="life1", oldest_ms=1, version=1):
    """Write a segment `[start, end)` to the lake."""
    row = {
        "topic": partition.topic, "topic_id": topic_id, "partition": partition.partition,
        "start": start, "end": end, "count": end - start, "size_bytes": 0, "low": 0,
        "stable": end, "high": end, "gap_cause": "", "digest": "", "staged_at_ms": 1,
        "min_timestamp_ms": oldest_ms, "version": version, "sequence": 1,
    }  # fmt: skip
    context.lake.segments("us-east").append([row])


def replay(context, *runs, partition=ORDERS, incarnation="life1", target_life="target1", at=1):
    """Write offset *runs* (upstream, downstream, length) to the lake's offset map."""
    rows = [
        {
            "topic": partition.topic, "incarnation": incarnation,
            "partition": partition.partition, "upstream_start": upstream,
            "target_topic": f"us-east.{partition.topic}", "target_topic_id": target_life,
            "target_partition": partition.partition, "downstream_start": downstream,
            "length": length, "run_id": "r", "committed_at": at,
        }
        for upstream, downstream, length in runs
    ]  # fmt: skip
    app_id = f"us-east.{partition.topic}/{target_life}/{partition.partition}/{incarnation}"
    end = max((upstream + length for upstream, _, length in runs), default=0)
    context.lake.offset_map(FLOW).append(rows, txn_versions={app_id: end})


def commit(
    context, group, committed_offsets, *, partition=ORDERS, topic_id="life1", at=1, metadata=""
):
    """Write a committed offset of *group* to the lake."""
    row = {
        "group": group, "topic": partition.topic, "topic_id": topic_id,
        "partition": partition.partition, "committed": committed_offsets, "metadata": metadata,
        "seen_at_ms": at,
    }  # fmt: skip
    context.lake.cluster_table("us-east", GROUP_OFFSETS).append([row])
