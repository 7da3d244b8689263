"""What goes on beside the loops, each thing at its own pace: a chore that fails is tried again."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from deltamirror.backoff import defects_told
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
from schemas.errors import DeltamirrorError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Chore:
    """*step*, done about every *every_s* seconds, for the first time *first_s* after the start.

    *is_last_word*: it is done once more when the loops are done, with what they came to.
    """

    name: str
    every_s: float
    step: Callable[[], object]
    first_s: float = 0.0
    is_last_word: bool = False


class Upkeep:
    """A thread's *chores*, one at a time, until *stop* is set or the loops are *done*.

    A chore that waits for a cluster holds up those beside it: what must not wait for it belongs
    to an upkeep of its own.
    """

    def __init__(
        self, chores: Sequence[Chore], stop: threading.Event, done: threading.Event
    ) -> None:
        self._chores, self._stop, self._done = chores, stop, done
        self._told: dict[Chore, str] = {}

    def run(self) -> None:
        """Work until told to stop; what fails is tried again at the chore's next turn.

        A failure is logged once for as long as it stays the same: a chore may come every second.
        """
        start = time.monotonic()
        due = {chore: start + chore.first_s for chore in self._chores}
        while due and not self._stop.is_set():
            chore = min(due, key=lambda each: due[each])
            if self._done.wait(max(0.0, due[chore] - time.monotonic())):
                break
            self._do(chore)
            # From now on, not from when it was due: what was late is not made up for.
            due[chore] = time.monotonic() + chore.every_s
        for chore in self._chores:
            if chore.is_last_word and not self._stop.is_set():
                self._do(chore)

    def _do(self, chore: Chore) -> None:
        try:
            with defects_told():
                chore.step()
        except DeltamirrorError as error:
            if self._told.get(chore) != str(error):
                log.warning("%s: %s", chore.name, error)
            self._told[chore] = str(error)
        else:
            self._told.pop(chore, None)


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


class Beside:
    """Does the chores of flows from when they are begun, until *stop* is set or all is *done*."""

    def __init__(
        self,
        site: Site,
        heartbeats: Sequence[HeartbeatConfig],
        offset_syncs: Mapping[Flow, OffsetSyncs],
        board: Board,
        stop: threading.Event,
        done: threading.Event,
    ) -> None:
        self._site, self._board, self._stop, self._done = site, board, stop, done
        self._heartbeats, self._offset_syncs = list(heartbeats), offset_syncs
        self._lock = threading.Lock()
        self.threads: list[threading.Thread] = []

    def begin(self, flows: Sequence[FlowConfig]) -> None:
        """Begin the chores of *flows*, with their heartbeats.

        Heartbeats of pairs that are no flow of this run have no lease: they begin with the first.
        """
        begun = {config.flow for config in flows}
        others = {config.flow for config in self._board.flows} - begun
        syncs = {flow: each for flow, each in self._offset_syncs.items() if flow in begun}
        with self._lock:
            hearts = [each for each in self._heartbeats if each.flow not in others]
            self._heartbeats = [each for each in self._heartbeats if each.flow in others]
            chores_by_thread = chores_of(self._site, flows, hearts, syncs, self._board)
            for name, chores in chores_by_thread.items():
                upkeep = Upkeep(chores, self._stop, self._done)
                thread = threading.Thread(target=upkeep.run, name=name, daemon=True)
                self.threads.append(thread)
                thread.start()
