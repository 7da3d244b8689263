"""Periodic tasks of a run: threads besides the loops, each task with its own interval."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from deltamirror.backoff import wrap_unexpected_errors
from deltamirror.context import MirrorContext
from deltamirror.groups.offset_syncs import OffsetSyncs
from deltamirror.groups.snapshots import snapshot_groups
from deltamirror.groups.sync import sync_groups
from deltamirror.monitoring.heartbeats import HeartbeatEmitter
from deltamirror.monitoring.lag import write_lag
from deltamirror.monitoring.metrics_state import MetricsState, write_timed_checkpoints
from deltamirror.run.loop import RunSignals
from deltamirror.topics.acls import TopicAclSync
from deltamirror.topics.configs import TopicConfigSync
from schemas.config.config import FlowConfig, HeartbeatConfig
from schemas.config.flow import Flow
from schemas.errors.base import DeltamirrorError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PeriodicTask:
    """*step*, run about every *interval_s* seconds, for the first time after *initial_delay_s*.

    With *is_run_at_end* it is also run once after the loops have ended, with their final state.
    """

    name: str
    interval_s: float
    step: Callable[[], object]
    initial_delay_s: float = 0.0
    is_run_at_end: bool = False


class PeriodicRunner:
    """Run the *tasks* of one thread, one at a time, until *stop* is set or the loops are *done*.

    A task that waits for a cluster delays the others of its runner.
    """

    def __init__(
        self, tasks: Sequence[PeriodicTask], stop: threading.Event, done: threading.Event
    ) -> None:
        self._tasks, self._stop, self._done = tasks, stop, done
        self._logged: dict[PeriodicTask, str] = {}

    def run(self) -> None:
        """Run the tasks until the end. A failed task is retried at its next turn."""
        start = time.monotonic()
        due = {task: start + task.initial_delay_s for task in self._tasks}
        while due and not self._stop.is_set():
            task = min(due, key=lambda each: due[each])
            if self._done.wait(max(0.0, due[task] - time.monotonic())):
                break
            self._run_task(task)
            # The interval starts now: turns that were missed are not repeated.
            due[task] = time.monotonic() + task.interval_s
        for task in self._tasks:
            if task.is_run_at_end and not self._stop.is_set():
                self._run_task(task)

    def _run_task(self, task: PeriodicTask) -> None:
        logged = self._logged.pop(task, None)
        try:
            with wrap_unexpected_errors():
                task.step()
        except DeltamirrorError as error:
            if logged != str(error):
                log.warning("%s: %s", task.name, error)
            self._logged[task] = str(error)


def periodic_tasks(
    context: MirrorContext,
    flows: Sequence[FlowConfig],
    heartbeats: Sequence[HeartbeatConfig] = (),
    offset_syncs: Mapping[Flow, OffsetSyncs] | None = None,
    metrics_state: MetricsState | None = None,
) -> dict[str, list[PeriodicTask]]:
    """Return the periodic tasks of *flows* by the name of their thread.

    A cluster that is down stops only the tasks of its own threads.
    """
    metrics_state = metrics_state or MetricsState(flows)
    tasks = {f"topics of {flow.flow}": _topic_tasks(context, flow) for flow in flows}
    for alias in dict.fromkeys(flow.flow.source for flow in flows):
        of_alias = [flow for flow in flows if flow.flow.source == alias]
        tasks[f"groups of {alias}"] = _group_tasks(context, alias, of_alias, metrics_state)
    for each in heartbeats:
        name = f"heartbeat {each.flow}"
        tasks[name] = [PeriodicTask(name, each.interval_s, HeartbeatEmitter(context, each).emit)]
    for flow_name, syncs in (offset_syncs or {}).items():
        name, interval_s = f"offset syncs of {flow_name}", context.timings.offset_syncs_interval_s
        tasks[name] = [PeriodicTask(name, interval_s, syncs.write, is_run_at_end=True)]
    return {thread: own for thread, own in tasks.items() if own}


def _topic_tasks(context: MirrorContext, flow: FlowConfig) -> list[PeriodicTask]:
    """Return the tasks that sync settings and ACLs of the remote topics of *flow*."""
    syncs: dict[str, tuple[float | None, Callable[[], object]]] = {
        "topic settings": (flow.sync_topic_configs_interval_s, TopicConfigSync(context, flow).sync),
        "topic ACLs": (flow.sync_topic_acls_interval_s, TopicAclSync(context, flow).sync),
    }
    return [
        PeriodicTask(f"{subject} of {flow.flow}", interval_s, step, is_run_at_end=True)
        for subject, (interval_s, step) in syncs.items()
        if interval_s is not None
    ]


def _group_tasks(
    context: MirrorContext, alias: str, flows: Sequence[FlowConfig], metrics_state: MetricsState
) -> list[PeriodicTask]:
    """Return the tasks of *alias* in order: each reads the tables that earlier ones wrote."""
    intervals = [
        each.emit_checkpoints_interval_s or context.timings.groups_interval_s for each in flows
    ]
    syncs = {each.flow: each.sync_group_offsets_interval_s for each in flows}
    interval_s = min(each for each in (*intervals, *syncs.values()) if each is not None)
    tasks: list[PeriodicTask] = []

    def add(name: str, interval_s: float, step: Callable[..., object], *args: object) -> None:
        run = partial(step, context, *args)
        tasks.append(PeriodicTask(name, interval_s, run, interval_s, is_run_at_end=True))

    add(f"groups of {alias}", interval_s, snapshot_groups, alias)
    for flow in flows:
        add(f"checkpoints of {flow.flow}", interval_s, write_timed_checkpoints, flow, metrics_state)
        lag_interval_s = max(interval_s, context.timings.lag_table_interval_s)
        add(f"lag of {flow.flow}", lag_interval_s, write_lag, flow)
        sync_s = syncs[flow.flow]
        if sync_s is not None:
            add(f"group offsets of {flow.flow}", sync_s, sync_groups, flow)
    return tasks


class BackgroundTasks:
    """Run the periodic tasks of each started flow until *stop* is set or the loops are *done*."""

    def __init__(
        self,
        context: MirrorContext,
        heartbeats: Sequence[HeartbeatConfig],
        offset_syncs: Mapping[Flow, OffsetSyncs],
        metrics_state: MetricsState,
        signals: RunSignals,
    ) -> None:
        self._context, self._metrics_state, self._signals = context, metrics_state, signals
        self._heartbeats, self._offset_syncs = list(heartbeats), offset_syncs
        self._lock = threading.Lock()
        self.threads: list[threading.Thread] = []

    def start(self, flows: Sequence[FlowConfig]) -> None:
        """Start the tasks of *flows*, with their heartbeats.

        Heartbeats of pairs that are no flow of this run have no lease. They start with the first
        call.
        """
        started = {config.flow for config in flows}
        others = {config.flow for config in self._metrics_state.flows} - started
        syncs = {flow: each for flow, each in self._offset_syncs.items() if flow in started}
        with self._lock:
            heartbeat_configs = [each for each in self._heartbeats if each.flow not in others]
            self._heartbeats = [each for each in self._heartbeats if each.flow in others]
            tasks_by_thread = periodic_tasks(
                self._context, flows, heartbeat_configs, syncs, self._metrics_state
            )
            for name, tasks in tasks_by_thread.items():
                runner = PeriodicRunner(tasks, self._signals.stop, self._signals.done)
                thread = threading.Thread(target=runner.run, name=name, daemon=True)
                self.threads.append(thread)
                thread.start()
