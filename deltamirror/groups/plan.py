"""Plan the committed offsets that a sync of a flow's groups would set on the target."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any

from deltamirror.context import MirrorContext
from deltamirror.groups.checkpoints import translate_groups
from pipeline.offset_map.index import MapIndex
from schemas.config.config import FlowConfig
from schemas.errors.base import DeltamirrorError
from schemas.kafka.partition import TopicPartition, Watermarks
from schemas.offset_map import GroupTranslation, Translation

IDLE_STATES = frozenset({"EMPTY", "DEAD", "ABSENT"})
"""Kafka's group states in which offsets can be set; ABSENT means that there is no such group."""

READ_COMMITTED_NOTE = (
    "Exact for consumers with isolation.level=read_committed. With Java's default, "
    "read_uncommitted, they may also read records of aborted transactions."
)


@dataclass(frozen=True, slots=True)
class PlannedOffset:
    """The offset at which a group would resume in a target partition, and its *current* offset.

    *action* is set, keep (*current* is right already) or wait (nothing of the partition has
    arrived, or its watermarks cannot be read). *resumes_at* is not below the target's log start
    offset. *records_gone* is how many records from the downstream offset on expired there.
    *metadata* is that of the commit on the source.
    """

    at: Translation
    action: str
    current: int | None
    resumes_at: int | None
    records_gone: int
    metadata: str = ""

    def to_json(self, flow: str) -> dict[str, Any]:
        """Return the JSON that `translate` prints, with the fields of the plan."""
        plan = asdict(self)
        del plan["at"]
        return {**self.at.to_json(flow), **plan}


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """A group's planned offsets, and its Kafka group *state* on the target."""

    group: str
    state: str
    partitions: tuple[PlannedOffset, ...]

    @property
    def is_idle(self) -> bool:
        """Return whether the group has no members on the target, so its offsets can be set."""
        return self.state in IDLE_STATES

    @property
    def is_active(self) -> bool:
        """Return whether the group is known to have members, so its offsets cannot be set."""
        return self.state not in IDLE_STATES | {"UNKNOWN"}

    def to_json(self, flow: str) -> dict[str, Any]:
        """Return the group's entry in what `groups plan --format json` prints."""
        rows = [each.to_json(flow) for each in self.partitions]
        return {"group": self.group, "state": self.state, "partitions": rows}


def plan_groups(
    context: MirrorContext,
    flow_config: FlowConfig,
    as_of_ms: int | None = None,
    group: str | None = None,
) -> list[GroupPlan]:
    """Return the plan of each group of the flow, or of one *group*, from its snapshots.

    *as_of_ms* is as in `flow_commits`. Nothing is changed. Raises DeltamirrorError if the target or
    the lake is down.
    """
    found, offset_map = translate_groups(context, flow_config, as_of_ms, group)
    cluster = context.cluster(flow_config.flow.target)
    watermarks = cluster.watermarks({each.at.target for each in found})
    states = cluster.groups()
    plans = []
    for name, offsets in groupby(found, key=attrgetter("group")):
        committed = cluster.group_offsets(name) if name in states else {}
        planned = tuple(_plan_offset(each, committed, watermarks, offset_map) for each in offsets)
        plans.append(GroupPlan(name, states.get(name, "ABSENT"), planned))
    return plans


def _plan_offset(
    translated: GroupTranslation,
    committed: dict[TopicPartition, int],
    watermarks: dict[TopicPartition, Watermarks | DeltamirrorError],
    offset_map: MapIndex,
) -> PlannedOffset:
    at, metadata = translated.at, translated.metadata
    current = committed.get(at.target)
    available = watermarks[at.target]
    if at.downstream_offset is None or isinstance(available, DeltamirrorError):
        return PlannedOffset(at, "wait", current, None, 0, metadata)
    resumes_at = max(at.downstream_offset, available.low)
    mapped = offset_map.mapped_incarnation(TopicPartition(at.topic, at.partition), at.topic_id)
    gone = mapped.runs.count_between(at.downstream_offset, available.low) if mapped else 0
    action = "keep" if current == resumes_at else "set"
    return PlannedOffset(at, action, current, resumes_at, gone, metadata)
