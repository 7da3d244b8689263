"""The chores beside the loops of a run, by the thread that does them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from assets.checkpoints import write_checkpoints
from assets.group_offsets import snapshot_groups
from assets.heartbeats import Heart
from assets.lag import write_lag
from assets.site import Site
from assets.topic_settings import TopicSettings
from assets.upkeep import Chore
from schemas.config import FlowConfig, HeartbeatConfig

EVERY_S = 60.0
"""How often where a flow sets no interval of its own (emit.checkpoints.interval.seconds)."""


def chores_of(
    site: Site, flows: Sequence[FlowConfig], heartbeats: Sequence[HeartbeatConfig]
) -> dict[str, list[Chore]]:
    """Return what is to be done beside the loops of *flows*, by the name of its thread.

    Each of *heartbeats*, and the topics of each flow, have a thread of their own: a cluster that is
    down stops its own alone.
    """
    chores = {"groups": _groups(site, flows)}
    chores |= {f"topics of {flow.flow}": _topics(site, flow) for flow in flows}
    for each in heartbeats:
        name = f"heartbeat {each.flow}"
        chores[name] = [Chore(name, each.interval_s, Heart(site, each).beat)]
    return {thread: own for thread, own in chores.items() if own}


def _topics(site: Site, flow: FlowConfig) -> list[Chore]:
    """Return the chores that keep the remote topics of *flow* as their source topics are.

    A run that ends when it is caught up has done each of them once at least.
    """
    settings_s = flow.sync_topic_configs_interval_s
    if settings_s is None:
        return []
    step = TopicSettings(site, flow).sync
    return [Chore(f"topic settings of {flow.flow}", settings_s, step, is_last_word=True)]


def _groups(site: Site, flows: Sequence[FlowConfig]) -> list[Chore]:
    """Return the chores that see the sources' groups, then translate and measure each flow."""
    every_s = min(flow.emit_checkpoints_interval_s or EVERY_S for flow in flows)
    steps: dict[str, Callable[[], object]] = {
        f"groups of {alias}": partial(snapshot_groups, site, alias)
        for alias in dict.fromkeys(flow.flow.source for flow in flows)
    }
    for flow in flows:
        steps[f"checkpoints of {flow.flow}"] = partial(write_checkpoints, site, flow)
        steps[f"lag of {flow.flow}"] = partial(write_lag, site, flow)
    return [
        Chore(name, every_s, step, first_s=every_s, is_last_word=True)
        for name, step in steps.items()
    ]
