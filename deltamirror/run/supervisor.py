"""The loops: one stages each source cluster, one replays each flow, in one process (DESIGN 2).

A plain function with a reporter: `deltamirror run`, the demo and Dagster's `mirror` job call it.
Nothing here makes a record exact; it only says when the steps run and how long they wait.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any

from deltamirror.backoff import (
    LEASE_POLL_INTERVAL_S,
    Backoff,
    needs_operator,
    seconds_to_next_tick,
    wrap_unexpected_errors,
)
from deltamirror.context import MirrorContext
from deltamirror.groups.offset_syncs import OffsetSyncs
from deltamirror.listener import Listener, NullListener
from deltamirror.maintenance.maintain import MaintenanceLoop
from deltamirror.monitoring.metrics_state import LoopStatus, MetricsState
from deltamirror.monitoring.status_files import StatusFiles
from deltamirror.replay.replayer import FlowReplayer
from deltamirror.run.background import BackgroundTasks
from deltamirror.run.catch_up import CatchUpTarget
from deltamirror.staging.stager import SourceStager
from resources.librdkafka.bindings import log_limits
from resources.spark.session import SparkWorkers
from resources.spark.worker_pool import WorkerPool
from schemas.config.config import Config, FlowConfig, HeartbeatConfig
from schemas.errors import (
    ConfigError,
    DefectError,
    DeltamirrorError,
    LeaseHeldError,
    NotCaughtUpError,
    SparkFailedError,
    StalePlanError,
)

log = logging.getLogger(__name__)

PRESTARTED_POOLS = 2
"""Loops whose workers begin with the run; other loops' begin with their first work."""

STOP_TIMEOUT_S = 8.0
"""How long a loop may take to end once it is told to; then the process ends without it."""


class Mirror:
    """A run of the loops for *flows* of *config*, and of *heartbeats*; `run` blocks until it ends.

    *topics*: only these, and only once (a materialization from the UI). *stop* ends it cleanly.
    *is_standby*: it waits for flows that other processes replay, and takes over each that is left
    alone. *metrics_state* is told everything that can be watched.
    """

    def __init__(
        self,
        config: Config,
        *,
        flows: Sequence[FlowConfig],
        heartbeats: Sequence[HeartbeatConfig] = (),
        until_caught_up: bool,
        topics: Collection[str] | None = None,
        listener: Listener | None = None,
        stop: threading.Event | None = None,
        is_standby: bool = False,
    ) -> None:
        if not flows:
            raise ConfigError("no flow is enabled: set <source>-><target>.enabled = true")
        self.context = MirrorContext(config)
        workers = SparkWorkers(config.tasks_max)
        self._flows = flows
        self._until_caught_up, self._is_standby = until_caught_up, is_standby
        self._topics = topics
        self._listener = listener or NullListener()
        self._stop = stop or threading.Event()
        self._done = threading.Event()
        self.metrics_state = MetricsState(flows)
        self._status_files = StatusFiles(self.context.status_file, self.metrics_state)
        self._held_roles: set[str] = (
            set()
        )  # duties that this process has done: others' are not its word
        self._staged_condition = threading.Condition()
        self._catch_up_targets = {flow.flow.source: CatchUpTarget() for flow in flows}
        self._failures: dict[str, DeltamirrorError] = {}
        self.stagers = {s: SourceStager(self.context, s, workers) for s in self._catch_up_targets}
        self.replayers = [FlowReplayer(self.context, flow, workers) for flow in flows]
        self._offset_syncs = {
            f.flow: OffsetSyncs(self.context, f.offset_syncs) for f in flows if f.offset_syncs
        }
        self._background = BackgroundTasks(
            self.context, heartbeats, self._offset_syncs, self.metrics_state, self._stop, self._done
        )
        roles = [s.role for s in self.stagers.values()] + [r.role for r in self.replayers]
        self._backoffs = {role: Backoff() for role in roles}
        self._transient_backoffs = {replayer.role: Backoff() for replayer in self.replayers}

    def run(self) -> None:
        """Run until stopped, or until caught up.

        Raises ClientSettingsError: the file's settings make no client. LeaseHeldError: another
        process replays a flow. NotCaughtUpError: it was to end when caught up, and a flow or a
        partition is failed or paused.
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

    def _acquire_leases(self) -> None:
        """Take the flows' leases and, for a run with an end, see where that is."""
        for replayer in () if self._is_standby else self.replayers:
            replayer.open()
            self._held_roles.add(replayer.role)
        for alias in {*self._catch_up_targets, *(flow.flow.target for flow in self._flows)}:
            self.context.cluster(alias).open()
        if self._until_caught_up:
            for alias in self._catch_up_targets:
                self.context.cluster(alias).probe()
                flows = [flow for flow in self._flows if flow.flow.source == alias]
                self._catch_up_targets[alias] = CatchUpTarget.at_start(
                    self.context.cluster(alias), flows, self._topics
                )
            for flow in self._flows:
                self.context.cluster(flow.flow.target).probe()

    def _catch_up_target(self, alias: str) -> CatchUpTarget:
        """Return how far *alias* reached at the start, or when it was first told."""
        with suppress(DeltamirrorError):  # it is away: it is asked again
            self._catch_up_targets[alias] = self._catch_up_targets[alias].resolve_ends(
                self.context.cluster(alias)
            )
        return self._catch_up_targets[alias]

    def _start_threads(self) -> list[threading.Thread]:
        with suppress(SparkFailedError):  # the loops start it, too, and say so
            for worker_pool in self.worker_pools()[:PRESTARTED_POOLS]:
                worker_pool.start(self.context.config.tasks_max)
            for worker_pool in self.worker_pools() if self._is_standby else ():
                worker_pool.wait_started()  # it says that it waits once it can begin
        loops = [(s.role, self._stage_loop, s) for s in self.stagers.values()]
        loops += [(r.role, self._replay_loop, r) for r in self.replayers]  # type: ignore[misc]
        threads = [
            threading.Thread(target=loop, args=(role,), name=name, daemon=True)
            for name, loop, role in loops
        ]
        leases = {alias: staging.lease for alias, staging in self.stagers.items()}
        maintenance = MaintenanceLoop(self.context, leases, self._done)
        threads.append(threading.Thread(target=maintenance.run, name="housekeeping", daemon=True))
        for thread in threads:
            thread.start()
        if not self._is_standby:
            self._background.start(self._flows)
        return threads

    def _wait(self, threads: Sequence[threading.Thread]) -> None:
        """Return when all replay loops ended, or some time after `stop`."""
        replay_loops = [t for t in threads if t.name.startswith("replay")]
        while any(t.is_alive() for t in replay_loops) and not self._stop.is_set():
            for thread in replay_loops:
                thread.join(0.2)
        self._done.set()
        deadline = time.monotonic() + STOP_TIMEOUT_S
        for thread in (*threads, *self._background.threads):
            thread.join(max(0.0, deadline - time.monotonic()))

    def _shut_down(self) -> None:
        for staging in self.stagers.values():
            staging.close()
            if staging.role in self._held_roles:
                self._status_files.post(staging.role, "stopped", None, staging.partition_errors)
        for replayer in self.replayers:
            replayer.close()
            error = self._failures.get(replayer.role)
            if replayer.role in self._held_roles:
                state = "failed" if error else "stopped"
                self._status_files.post(replayer.role, state, error, replayer.partition_errors)
        self.context.close()

    def _check_caught_up(self) -> None:
        """Raise where a run that was to end when caught up did not get there."""
        if not self._until_caught_up:
            return
        told = [str(error) for error in self._failures.values()]
        loops: list[SourceStager | FlowReplayer] = [*self.stagers.values(), *self.replayers]
        told += [str(error) for loop in loops for error in loop.partition_errors.values()]
        for replayer in self.replayers:
            told += [f"{p} is paused" for p in sorted(replayer.paused)]
        if told:
            raise NotCaughtUpError(told)

    def worker_pools(self) -> list[WorkerPool[Any, Any]]:
        """Return the workers of each loop."""
        return [s.worker_pool for s in self.stagers.values()] + [
            r.worker_pool for r in self.replayers
        ]

    def _is_over(self) -> bool:
        return self._stop.is_set() or self._done.is_set()

    def _stage_loop(self, staging: SourceStager) -> None:
        """Stage until told to stop; where another process does it, wait for its lease."""
        backoff, loop_status = (
            self._backoffs[staging.role],
            self.metrics_state.stage_loops[staging.alias],
        )
        while not self._is_over():
            loop_status.started()
            try:
                with wrap_unexpected_errors():
                    if not staging.lease.is_held:
                        staging.open()
                        self._held_roles.add(staging.role)
                    staged = staging.tick(self._topics)
            except LeaseHeldError:
                loop_status.waiting()
                self._sleep(
                    LEASE_POLL_INTERVAL_S
                )  # another process stages: replay follows what it commits
                continue
            except StalePlanError as error:
                log.info("%s %s", staging.role, error)
                continue
            except DeltamirrorError as error:
                self._report_failure(loop_status, error)
                self._sleep(backoff.failed(needs_operator=needs_operator(error)))
                continue
            backoff.succeeded()
            loop_status.succeeded(staging.partition_errors.values())
            self._failures.pop(staging.role, None)
            self._status_files.post(staging.role, "running", None, staging.partition_errors)
            self.metrics_state.record_watermarks(
                staging.alias, staged.watermarks, staging.partition_errors
            )
            if staged.segments:
                self._listener.staged(staging.alias, staged.segments)
                self.metrics_state.staged(staging.alias, staged.segments, staged.stamps)
                with self._staged_condition:
                    self._staged_condition.notify_all()
            self._sleep(
                seconds_to_next_tick(loop_status.state.began_at_s, is_idle=not staged.segments)
            )

    def _replay_loop(self, replayer: FlowReplayer) -> None:
        """Replay until told to stop, or until everything up to the goal has arrived."""
        backoff, loop_status = (
            self._backoffs[replayer.role],
            self.metrics_state.replay_loops[replayer.flow],
        )
        is_stale = False
        while not self._is_over():
            loop_status.started()
            try:
                with wrap_unexpected_errors():
                    if not replayer.lease.is_held:
                        self._take_over(replayer)
                    elif is_stale:
                        replayer.load_ends()
                    replayed = replayer.tick(self._topics)
            except LeaseHeldError as error:
                if loop_status.state.state != "waiting":
                    log.info("standby: %s", error)
                loop_status.waiting()
                self._sleep(LEASE_POLL_INTERVAL_S)
                continue
            except DeltamirrorError as error:
                is_stale = isinstance(error, StalePlanError | DefectError)
                self._report_failure(loop_status, error)
                self._update_lag(replayer)
                wait = backoff.failed(needs_operator=needs_operator(error))
                if self._until_caught_up and backoff.is_exhausted():
                    return
                self._sleep(wait)
                continue
            is_stale = False
            backoff.succeeded()
            self._failures.pop(replayer.role, None)
            partition_errors = replayer.partition_errors
            loop_status.succeeded(partition_errors.values(), is_paused=replayer.is_paused)
            self._status_files.post(replayer.role, "running", None, partition_errors)
            self._update_lag(replayer)
            if replayed.moves:
                if self._catch_up_targets[replayer.flow.source].is_advanced_by(replayed.moves):
                    self._transient_backoffs[replayer.role].succeeded()
                self._listener.replayed(replayer.flow, replayed.moves)
                self.metrics_state.replayed(replayer.flow, replayed.moves)
                if replayer.flow in self._offset_syncs:
                    self._offset_syncs[replayer.flow].record(replayed.moves)
                if self._until_caught_up and self._is_caught_up(replayer):
                    return
                continue
            if replayed.is_idle and self._until_caught_up and self._is_idle_and_caught_up(replayer):
                return
            with self._staged_condition:
                self._staged_condition.wait(
                    seconds_to_next_tick(loop_status.state.began_at_s, is_idle=True)
                )

    def _take_over(self, replayer: FlowReplayer) -> None:
        """Begin to replay a flow that no other process replays any more. Raises LeaseHeldError."""
        replayer.open()
        self._held_roles.add(replayer.role)
        log.info("%s: taken over", replayer.role)
        self._background.start([replayer.config])

    def _update_lag(self, replayer: FlowReplayer) -> None:
        """Tell the board how far the flow is, now and then; also while its target is away."""
        if self.metrics_state.is_lag_due(replayer.flow):
            with suppress(DeltamirrorError):
                self.metrics_state.record_partition_lags(replayer.flow, replayer.partition_lags())

    def _is_idle_and_caught_up(self, replayer: FlowReplayer) -> bool:
        """Return whether an idle flow has everything, as far as it can be had."""
        staging = self.stagers[replayer.flow.source]
        catch_up_target = self._catch_up_target(staging.alias)
        others = {p for p in catch_up_target.ends if not replayer.config.replicates(p.topic)}
        excluded = {*staging.partition_errors, *replayer.paused, *others}
        if staging.role in self._failures:
            return self._backoffs[staging.role].is_exhausted()
        waited = self._is_transient_wait_over(replayer)
        return (
            catch_up_target.is_staged(replayer.segment_index, excluded)
            if waited is None
            else waited
        )

    def _is_caught_up(self, replayer: FlowReplayer) -> bool:
        """Return whether a flow has replayed all up to the goal that it can, idle or not."""
        staging, config = self.stagers[replayer.flow.source], replayer.config
        excluded = {*staging.partition_errors, *replayer.partition_errors, *replayer.paused}
        waited = self._is_transient_wait_over(replayer)
        return waited or (
            waited is None
            and self._catch_up_target(staging.alias).is_replayed(
                replayer.progress, lambda p: config.replicates(p.topic) and p not in excluded
            )
        )

    def _is_transient_wait_over(self, replayer: FlowReplayer) -> bool | None:
        """Return whether what may pass had its time, and nothing moved; None: there is none."""
        partition_errors = (
            self.stagers[replayer.flow.source].partition_errors,
            replayer.partition_errors,
        )
        passing = self._transient_backoffs[replayer.role]
        if not any(error.is_transient for found in partition_errors for error in found.values()):
            passing.succeeded()
            return None
        passing.failed()
        return passing.is_exhausted()

    def _report_failure(self, loop_status: LoopStatus, error: DeltamirrorError) -> None:
        """Tell that a tick of the loop that *loop_status* is on failed; it is tried again."""
        role = loop_status.state.name
        loop_status.failed(error)
        self._held_roles.add(role)
        self._failures[role] = error
        log.warning("%s: %s", role, error)
        self._status_files.post(role, "failed", error, {})
        self._listener.tick_failed(role, error)

    def _sleep(self, seconds: float) -> None:
        """Wait *seconds*, or until the run is over."""
        if not self._done.is_set():
            self._stop.wait(seconds)


def build_mirror(
    config: Config,
    *,
    flows: Collection[str] | None = None,
    targets: Collection[str] | None = None,
    until_caught_up: bool = False,
    topics: Collection[str] | None = None,
    listener: Listener | None = None,
    stop: threading.Event | None = None,
    is_standby: bool = False,
) -> Mirror:
    """Return a run of the flows of *config*: all, those named, or those into *targets*.

    The last is MM2's --clusters. Heartbeats are emitted for the pairs that are so chosen, be they
    enabled flows or not. Raises ConfigError.
    """
    chosen = [config.flow(name) for name in flows] if flows else list(config.flows)
    if targets:
        chosen = [flow for flow in chosen if flow.flow.target in targets]
    heartbeats = [
        each
        for each in config.heartbeats
        if (not flows or each.flow.name in flows) and (not targets or each.flow.target in targets)
    ]
    return Mirror(
        config,
        flows=chosen,
        heartbeats=heartbeats,
        until_caught_up=until_caught_up,
        topics=topics,
        listener=listener,
        stop=stop,
        is_standby=is_standby,
    )


def mirror(
    config: Config,
    *,
    flows: Collection[str] | None = None,
    until_caught_up: bool = False,
    topics: Collection[str] | None = None,
    listener: Listener | None = None,
    stop: threading.Event | None = None,
) -> None:
    """Mirror the flows of *config*: all, or those named.

    Blocks until *stop* is set or, with *until_caught_up*, until progress has reached the last
    stable offsets seen at the start. Raises ConfigError, LeaseHeldError, NotCaughtUpError.
    """
    build_mirror(
        config,
        flows=flows,
        until_caught_up=until_caught_up,
        topics=topics,
        listener=listener,
        stop=stop,
    ).run()
