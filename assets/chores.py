"""The chores beside the loops of a run, by the thread that does them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from assets.upkeep import Chore
from deltamirror.context import Site
from deltamirror.groups.offset_syncs import OffsetSyncs
from deltamirror.groups.snapshots import snapshot_groups
from deltamirror.groups.sync import sync_groups
from deltamirror.monitoring.heartbeats import Heart
from deltamirror.monitoring.lag import write_lag
from deltamirror.monitoring.metrics_state import Board, checkpoint
from deltamirror.topics.acls import TopicAcls
from deltamirror.topics.configs import TopicSettings
from schemas.config.config import FlowConfig, HeartbeatConfig
from schemas.config.flow import Flow

EVERY_S = 60.0
"""How often where a flow sets no interval of its own (emit.checkpoints.interval.seconds)."""

SYNC_EVERY_S = 1.0
"""How often offset syncs that wait are written."""


def chores_of(
    site: Site,
    flows: Sequence[FlowConfig],
    heartbeats: Sequence[HeartbeatConfig] = (),
    offset_syncs: Mapping[Flow, OffsetSyncs] | None = None,
    board: Board | None = None,
) -> dict[str, list[Chore]]:
    """Return what is to be done beside the loops of *flows*, by the name of its thread.

    Each source's groups, each of *heartbeats* and the topics and the *offset_syncs* of each flow
    have a thread of their own: a cluster that is down stops only what concerns it. *board* is told
    what they find (None: nobody is).
    """
    board = board or Board(flows)
    chores = {f"topics of {flow.flow}": _topics(site, flow) for flow in flows}
    for alias in dict.fromkeys(flow.flow.source for flow in flows):
        of_alias = [flow for flow in flows if flow.flow.source == alias]
        chores[f"groups of {alias}"] = _groups(site, alias, of_alias, board)
    for each in heartbeats:
        name = f"heartbeat {each.flow}"
        chores[name] = [Chore(name, each.interval_s, Heart(site, each).beat)]
    for flow_name, syncs in (offset_syncs or {}).items():
        name = f"offset syncs of {flow_name}"
        chores[name] = [Chore(name, SYNC_EVERY_S, syncs.write, is_last_word=True)]
    return {thread: own for thread, own in chores.items() if own}


def _topics(site: Site, flow: FlowConfig) -> list[Chore]:
    """Return the chores that keep the remote topics of *flow* as their source topics are.

    A run that ends when it is caught up has done each of them once at least.
    """
    syncs: dict[str, tuple[float | None, Callable[[], object]]] = {
        "topic settings": (flow.sync_topic_configs_interval_s, TopicSettings(site, flow).sync),
        "topic ACLs": (flow.sync_topic_acls_interval_s, TopicAcls(site, flow).sync),
    }
    return [
        Chore(f"{what} of {flow.flow}", every_s, step, is_last_word=True)
        for what, (every_s, step) in syncs.items()
        if every_s is not None
    ]


def _groups(site: Site, alias: str, flows: Sequence[FlowConfig], board: Board) -> list[Chore]:
    """Return the chores that see the groups of source *alias*, then translate them by flow.

    In this order also when they are done for the last time: each works with what the one before
    has written down.
    """
    paces = [each.emit_checkpoints_interval_s or EVERY_S for each in flows]
    syncs = {each.flow: each.sync_group_offsets_interval_s for each in flows}
    every_s = min(pace for pace in (*paces, *syncs.values()) if pace is not None)
    chores = [_chore(f"groups of {alias}", every_s, partial(snapshot_groups, site, alias))]
    for flow in flows:
        chores += [
            _chore(f"checkpoints of {flow.flow}", every_s, partial(checkpoint, site, flow, board)),
            _chore(f"lag of {flow.flow}", every_s, partial(write_lag, site, flow)),
        ]
        sync_s = syncs[flow.flow]
        if sync_s is not None:
            step = partial(sync_groups, site, flow)
            chores.append(_chore(f"group offsets of {flow.flow}", sync_s, step))
    return chores


def _chore(name: str, every_s: float, step: Callable[[], object]) -> Chore:
    return Chore(name, every_s, step, first_s=every_s, is_last_word=True)
