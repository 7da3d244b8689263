"""The threads beside the loops of a run: the chores of the flows that this process replays."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from assets.chores import chores_of
from assets.upkeep import Upkeep
from deltamirror.context import Site
from deltamirror.groups.offset_syncs import OffsetSyncs
from deltamirror.monitoring.metrics_state import Board
from schemas.config.config import FlowConfig, HeartbeatConfig
from schemas.config.flow import Flow


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
