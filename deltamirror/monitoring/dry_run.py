"""What the next run would do, found out without doing it."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from deltamirror.context import Site
from deltamirror.monitoring.flow_status import survey
from deltamirror.staging.segment_index import Ledger
from deltamirror.topics.acls import acls_to_create
from deltamirror.topics.configs import settings_to_alter
from pipeline.staging.plan import plan
from pipeline.topics.remote_topics import (
    AddPartitions,
    CreateTopic,
    RefusedTopic,
    missing_topics,
    plan_remote_topics,
)
from schemas.config.config import FlowConfig
from schemas.errors import DeltamirrorError
from schemas.kafka.partition import TopicPartition, Watermarks
from schemas.kafka.topic import Topic
from schemas.mm2.replication_policy import is_cycle
from schemas.staging.frontier import Sight

Row = dict[str, Any]


def forecast(site: Site, flows: Sequence[FlowConfig]) -> dict[str, Any]:
    """Return what a run of *flows* would create, change, stage and replay, as `plan` prints it.

    Makes nothing. Raises UnreachableError where a cluster does not answer.
    """
    topics = {}
    for alias in dict.fromkeys(flow.flow.source for flow in flows):
        site.cluster(alias).probe()
        topics[alias] = site.cluster(alias).topics()
    return {
        "clusters": [_staging(site, alias, topics[alias], flows) for alias in topics],
        "flows": [_flow(site, flow, topics[flow.flow.source]) for flow in flows],
    }


def _staging(
    site: Site, alias: str, topics: Mapping[str, Topic], flows: Sequence[FlowConfig]
) -> Row:
    """Return what would be staged of cluster *alias*, and what waits for an operator."""
    chosen = [
        topic
        for name, topic in sorted(topics.items())
        if any(flow.flow.source == alias and flow.replicates(name) for flow in flows)
    ]
    partitions = [TopicPartition(t.name, i) for t in chosen for i in range(t.partitions)]
    answers = site.cluster(alias).watermarks(partitions) if partitions else {}
    seen = {
        p: Sight(topics[p.topic].topic_id, answer)
        for p, answer in answers.items()
        if isinstance(answer, Watermarks)
    }
    ledger = Ledger(site.lake.segments(alias))
    ledger.refresh()
    from_latest = site.config.clusters[alias].auto_offset_reset == "latest"
    planned = plan(seen, ledger.chains.frontiers, sys.maxsize, from_latest=from_latest)
    lost = {p: a for p, a in answers.items() if isinstance(a, DeltamirrorError)}
    stage = [
        {
            "topic": r.partition.topic,
            "partition": r.partition.partition,
            "start": r.start,
            "end": r.end,
        }
        for r in planned.ranges
    ]
    troubles = {**lost, **planned.troubles}
    return {
        "cluster": alias,
        "stage": stage,
        "troubles": [_trouble(p, error) for p, error in sorted(troubles.items())],
    }


def _trouble(partition: TopicPartition, error: DeltamirrorError) -> Row:
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "type": error.kind,
        "message": str(error),
        "hint": error.hint,
    }


def _flow(site: Site, flow: FlowConfig, topics: Mapping[str, Topic]) -> Row:
    """Return what *flow* would make on its target and replay, and what it leaves out."""
    site.cluster(flow.flow.target).probe()
    mirrored = {name: topic for name, topic in topics.items() if flow.replicates(name)}
    state = survey(site, flow)
    return {
        "flow": flow.flow.name,
        "error": state.error,
        **_remote_topics(site, flow, mirrored),
        "alter": _alterations(site, flow, mirrored),
        "acls": _acls(site, flow),
        "replay": [
            {
                "topic": p.topic,
                "partition": p.partition,
                "target_topic": p.target_topic,
                "start": p.replayed,
                "end": p.source_end,
                "is_paused": p.is_paused,
            }
            for p in state.partitions
            if p.source_end > p.replayed
        ],
        "not_mirrored": [
            {"topic": name, "reason": _reason(flow, name)}
            for name in sorted(topics.keys() - mirrored)
        ],
    }


def _remote_topics(site: Site, flow: FlowConfig, topics: Mapping[str, Topic]) -> Row:
    """Return which remote topics would be made and widened, and which cannot be."""
    wanted = {flow.remote_topic(name) for name in topics}
    there = site.cluster(flow.flow.target).topics(wanted) if wanted else {}
    missing = missing_topics(flow, topics, there)
    configs = site.cluster(flow.flow.source).topic_configs(missing) if missing else {}
    steps = plan_remote_topics(flow, topics, configs, there)
    return {
        "create": [
            {"topic": new.name, "partitions": new.partitions, "configs": dict(new.configs)}
            for new in (step.topic for step in steps if isinstance(step, CreateTopic))
        ],
        "widen": [
            {"topic": s.name, "partitions": s.total} for s in steps if isinstance(s, AddPartitions)
        ],
        "refused": [
            {"topic": s.name, "error": str(s.error)} for s in steps if isinstance(s, RefusedTopic)
        ],
    }


def _alterations(site: Site, flow: FlowConfig, topics: Collection[str]) -> list[Row]:
    """Return which settings would change; a value of None is the target's default."""
    if flow.sync_topic_configs_interval_s is None:
        return []
    return [
        {"topic": step.name, "configs": dict(step.configs), "before": dict(step.before)}
        for step in settings_to_alter(site, flow, topics)
    ]


def _acls(site: Site, flow: FlowConfig) -> list[Row]:
    """Return which access rules would be made on the target, if it has an authorizer."""
    if flow.sync_topic_acls_interval_s is None:
        return []
    return [asdict(acl) for acl in acls_to_create(site, flow)]


def _reason(flow: FlowConfig, topic: str) -> str:
    """Return why *flow* does not replicate *topic*."""
    if flow.policy.is_internal(topic):
        return "internal to Kafka or MirrorMaker"
    if is_cycle(flow.policy, topic, flow.flow.target):
        return f"came from {flow.flow.target}"
    return "not chosen by topics and topics.exclude"
