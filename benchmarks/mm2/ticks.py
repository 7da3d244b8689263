"""Measure single ticks of deltamirror's two loops over one lake, with and without new records."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from benchmarks.mm2.rivals import Flow
from benchmarks.warmed import Warmed
from deltamirror.context import MirrorContext
from deltamirror.replay.replayer import FlowReplayer
from deltamirror.staging.stager import SourceStager
from resources.config.load import read_config

T = TypeVar("T")

TIMES = 20


@dataclass
class Ticks:
    """Seconds of opening, which reads the state of the lake, and of each tick.

    An idle tick finds no records: its time is that of reading watermarks and planning.
    """

    open_s: float = 0.0
    stage_s: list[float] = field(default_factory=list)
    replay_s: list[float] = field(default_factory=list)
    idle_stage_s: list[float] = field(default_factory=list)
    idle_replay_s: list[float] = field(default_factory=list)


def measure(flow: Flow, write: Callable[[], int]) -> Ticks:
    """Call *write*, which returns its number of records, then each loop twice; `TIMES` times.

    The loops of `deltamirror run` are called one after the other, with workers that have started
    before. No other process may use the lake. Raises RuntimeError if records are missing.
    """
    config = read_config(flow.file)
    context, workers, ticks = MirrorContext(config), Warmed(config.tasks_max), Ticks()
    staging = SourceStager(context, flow.alias, workers)
    replaying = FlowReplayer(context, config.flows[0], workers)
    begun = time.perf_counter()
    staging.open()
    replaying.open()
    ticks.open_s = time.perf_counter() - begun
    try:
        for number in range(TIMES + 1):
            written = write()
            staged, stage_s = _timed(staging.tick)
            replayed, replay_s = _timed(replaying.tick)
            if sum(segment.count for segment in staged.segments) != written:
                raise RuntimeError(
                    f"{written} written, {staged.segments}, {staging.partition_errors}"
                )
            if sum(move.records for move in replayed.moves) != written:
                raise RuntimeError(
                    f"{written} written, {replayed.moves}, {replaying.partition_errors}"
                )
            _, idle_stage_s = _timed(staging.tick)
            _, idle_replay_s = _timed(replaying.tick)
            if number:  # the first round connects
                ticks.stage_s.append(stage_s)
                ticks.replay_s.append(replay_s)
                ticks.idle_stage_s.append(idle_stage_s)
                ticks.idle_replay_s.append(idle_replay_s)
    finally:
        replaying.close()
        staging.close()
        context.close()
    return ticks


def _timed(tick: Callable[[], T]) -> tuple[T, float]:
    begun = time.perf_counter()
    found = tick()
    return found, time.perf_counter() - begun
