"""Run the loops of one process: one stages each source cluster, one replays each flow.

`deltamirror run`, the demo and Dagster's `mirror` job call it. Exactness does not depend on this
module: it decides when the steps run and how long they wait.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any

from deltamirror.context import MirrorContext
from deltamirror.groups.offset_syncs import OffsetSyncs
from deltamirror.listener import Listener
from deltamirror.maintenance.maintain import MaintenanceLoop
from deltamirror.monitoring.metrics_state import MetricsState
from deltamirror.monitoring.status_files import StatusFiles
from deltamirror.run.background import BackgroundTasks
from deltamirror.run.loop import RunSignals
from deltamirror.run.replay_loop import ReplayLoop
from deltamirror.run.staging_loop import StagingLoop
from resources.librdkafka.bindings import log_limits
from resources.spark.session import SparkWorkers
from resources.spark.worker_pool import WorkerPool
from schemas.config.config import Config
from schemas.errors.base import ConfigError, NotCaughtUpError
from schemas.errors.environment import SparkFailedError

PRESTARTED_POOLS = 2
"""Number of loops whose workers start with the run. Other workers start with their first task."""


class Mirror:
    """A run of the loops for the flows of *config*: all, those named, or those into *targets*.

    *targets* are the aliases of MirrorMaker 2's `--clusters`. Heartbeats are emitted for the chosen
    pairs, also if a pair is not an enabled flow. *stop* ends the run cleanly. *is_standby*: the run
    waits for flows that other processes replay, and takes over a flow after its process has ended.
    *listeners* are called in their order. Raises ConfigError.
    """

    def __init__(
        self,
        config: Config,
        *,
        flows: Collection[str] | None = None,
        targets: Collection[str] | None = None,
        until_caught_up: bool = False,
        listeners: Sequence[Listener] = (),
        stop: threading.Event | None = None,
        is_standby: bool = False,
    ) -> None:
        chosen = [config.flow(name) for name in flows] if flows else config.flows
        self._flows = [each for each in chosen if not targets or each.flow.target in targets]
        heartbeats = [
            h
            for h in config.heartbeats
            if (not flows or h.flow.name in flows) and (not targets or h.flow.target in targets)
        ]
        if not self._flows:
            raise ConfigError("no flow is enabled: set <source>-><target>.enabled = true")
        self.context = MirrorContext(config)
        self._until_caught_up, self._is_standby = until_caught_up, is_standby
        self._signals = RunSignals(stop or threading.Event())
        self.metrics_state = MetricsState(self._flows, self.context.timings)
        offset_syncs = {
            f.flow: OffsetSyncs(self.context, f.flow, f.offset_syncs)
            for f in self._flows
            if f.offset_syncs
        }
        self._listeners: list[Listener] = [
            self.metrics_state,
            StatusFiles(self.context.status_file, self.metrics_state),
            *listeners,
            *offset_syncs.values(),
        ]
        self._background = BackgroundTasks(
            self.context, heartbeats, offset_syncs, self.metrics_state, self._signals
        )
        workers = SparkWorkers(config.tasks_max)
        shared = workers, self._signals, self._listeners
        self.staging_loops = {
            alias: StagingLoop(self.context, alias, *shared)
            for alias in dict.fromkeys(flow.flow.source for flow in self._flows)
        }
        self.replay_loops = [
            ReplayLoop(
                self.context,
                flow,
                *shared,
                self.staging_loops[flow.flow.source],
                until_caught_up=until_caught_up,
                on_takeover=lambda flow: self._background.start([flow]),
            )
            for flow in self._flows
        ]

    def run(self) -> None:
        """Run until stopped, or until caught up.

        Raises ClientSettingsError, LeaseHeldError if another process replays a flow, and
        NotCaughtUpError if a flow or partition has failed or is paused at the end.
        """
        self.context.lake.ensure_exists()
        log_limits()
        try:
            self._acquire_leases()
            threads = self._start_threads()
            self._wait(threads)
        finally:
            self._shut_down()
        self._check_caught_up()

    def worker_pools(self) -> list[WorkerPool[Any, Any]]:
        """Return the worker pool of each loop."""
        return [
            *(loop.stager.worker_pool for loop in self.staging_loops.values()),
            *(loop.replayer.worker_pool for loop in self.replay_loops),
        ]

    def _loops(self) -> list[StagingLoop | ReplayLoop]:
        return [*self.staging_loops.values(), *self.replay_loops]

    def _acquire_leases(self) -> None:
        """Take the flows' leases; for a run until caught up, read where the sources end."""
        for loop in () if self._is_standby else self.replay_loops:
            loop.open()
        for alias in {*self.staging_loops, *(flow.flow.target for flow in self._flows)}:
            self.context.cluster(alias).open()
        if self._until_caught_up:
            for alias, staging in self.staging_loops.items():
                staging.set_catch_up_target([f for f in self._flows if f.flow.source == alias])
            for flow in self._flows:
                self.context.cluster(flow.flow.target).probe()

    def _start_threads(self) -> list[threading.Thread]:
        with suppress(SparkFailedError):  # the loops start their workers again and report the error
            for worker_pool in self.worker_pools()[:PRESTARTED_POOLS]:
                worker_pool.start(self.context.config.tasks_max)
            for worker_pool in self.worker_pools() if self._is_standby else ():
                worker_pool.wait_started()  # a standby reports "waiting" only with ready workers
        stagers = {alias: loop.stager for alias, loop in self.staging_loops.items()}
        maintenance = MaintenanceLoop(self.context, stagers, self._signals.done)
        runs = [(each.role, each.run) for each in self._loops()]
        runs.append(("housekeeping", maintenance.run))
        threads = [threading.Thread(target=run, name=name, daemon=True) for name, run in runs]
        for thread in threads:
            thread.start()
        if not self._is_standby:
            self._background.start(self._flows)
        return threads

    def _wait(self, threads: Sequence[threading.Thread]) -> None:
        """Wait until replay has ended or `stop` is set; then `stop_timeout_s` for all threads."""
        replays = [t for t in threads if t.name.startswith("replay")]
        while any(t.is_alive() for t in replays) and not self._signals.stop.is_set():
            for thread in replays:
                thread.join(0.2)
        self._signals.done.set()
        deadline = time.monotonic() + self.context.timings.stop_timeout_s
        for thread in (*threads, *self._background.threads):
            thread.join(max(0.0, deadline - time.monotonic()))

    def _shut_down(self) -> None:
        for staging in self.staging_loops.values():
            staging.stager.close()
            for listener in self._listeners if staging.had_lease else ():
                listener.loop_stopped(staging.role, None, staging.stager.partition_errors)
        for loop in self.replay_loops:
            loop.replayer.close()
            for listener in self._listeners if loop.had_lease else ():
                listener.loop_stopped(loop.role, loop.failure, loop.replayer.partition_errors)
        self.context.close()

    def _check_caught_up(self) -> None:
        """Raise NotCaughtUpError if a run until caught up did not get there."""
        if not self._until_caught_up:
            return
        reasons = [str(loop.failure) for loop in self._loops() if loop.failure is not None]
        for staging in self.staging_loops.values():
            reasons += map(str, staging.stager.partition_errors.values())
        for loop in self.replay_loops:
            reasons += map(str, loop.replayer.partition_errors.values())
            reasons += [f"{p} is paused" for p in sorted(loop.replayer.paused)]
        if reasons:
            raise NotCaughtUpError(reasons)
