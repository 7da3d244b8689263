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

from deltamirror.backoff import LEASE_S, Patience, defects_told, is_hopeless, pause_s
from deltamirror.context import Site
from deltamirror.groups.offset_syncs import OffsetSyncs
from deltamirror.listener import Reporter, Silent
from deltamirror.maintenance.maintain import Housekeeping
from deltamirror.monitoring.metrics_state import Board, LoopWatch
from deltamirror.monitoring.status_files import Bulletins
from deltamirror.replay.replayer import Replaying
from deltamirror.run.background import Beside
from deltamirror.run.catch_up import Goal
from deltamirror.staging.stager import Staging
from resources.spark.session import Workers
from resources.spark.worker_pool import Crew
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

CALLED = 2
"""Loops whose workers begin with the run; other loops' begin with their first work."""

STOP_S = 8.0
"""How long a loop may take to end once it is told to; then the process ends without it."""


class Mirror:
    """A run of the loops for *flows* of *config*, and of *heartbeats*; `run` blocks until it ends.

    *topics*: only these, and only once (a materialization from the UI). *stop* ends it cleanly.
    *is_standby*: it waits for flows that other processes replay, and takes over each that is left
    alone. *board* is told everything that can be watched.
    """

    def __init__(
        self,
        config: Config,
        *,
        flows: Sequence[FlowConfig],
        heartbeats: Sequence[HeartbeatConfig] = (),
        until_caught_up: bool,
        topics: Collection[str] | None = None,
        reporter: Reporter | None = None,
        stop: threading.Event | None = None,
        is_standby: bool = False,
    ) -> None:
        if not flows:
            raise ConfigError("no flow is enabled: set <source>-><target>.enabled = true")
        self.site = Site(config)
        workers = Workers(config.tasks_max)
        self._flows = flows
        self._until_caught_up, self._is_standby = until_caught_up, is_standby
        self._topics = topics
        self._reporter = reporter or Silent()
        self._stop = stop or threading.Event()
        self._done = threading.Event()
        self.board = Board(flows)
        self._bulletins = Bulletins(self.site.bulletin, self.board)
        self._mine: set[str] = set()  # duties that this process has done: others' are not its word
        self._news = threading.Condition()
        self._goals = {flow.flow.source: Goal() for flow in flows}
        self._failures: dict[str, DeltamirrorError] = {}
        self.stagings = {s: Staging(self.site, s, workers) for s in self._goals}
        self.replayings = [Replaying(self.site, flow, workers) for flow in flows]
        self._offset_syncs = {
            f.flow: OffsetSyncs(self.site, f.offset_syncs) for f in flows if f.offset_syncs
        }
        self._beside = Beside(
            self.site, heartbeats, self._offset_syncs, self.board, self._stop, self._done
        )
        duties = [s.duty for s in self.stagings.values()] + [r.duty for r in self.replayings]
        self._patience = {duty: Patience() for duty in duties}
        self._passing = {replaying.duty: Patience() for replaying in self.replayings}

    def run(self) -> None:
        """Run until stopped, or until caught up.

        Raises ClientSettingsError: the file's settings make no client. LeaseHeldError: another
        process replays a flow. NotCaughtUpError: it was to end when caught up, and a flow or a
        partition is failed or paused.
        """
        self.site.lake.make()
        try:
            self._begin()
            threads = self._start()
            self._wait(threads)
        finally:
            self._end()
        self._judge()

    def _begin(self) -> None:
        """Take the flows' leases and, for a run with an end, see where that is."""
        for replaying in () if self._is_standby else self.replayings:
            replaying.open()
            self._mine.add(replaying.duty)
        for alias in {*self._goals, *(flow.flow.target for flow in self._flows)}:
            self.site.cluster(alias).open()
        if self._until_caught_up:
            for alias in self._goals:
                self.site.cluster(alias).probe()
                flows = [flow for flow in self._flows if flow.flow.source == alias]
                self._goals[alias] = Goal.now(self.site.cluster(alias), flows, self._topics)
            for flow in self._flows:
                self.site.cluster(flow.flow.target).probe()

    def _goal(self, alias: str) -> Goal:
        """Return how far *alias* reached at the start, or when it was first told."""
        with suppress(DeltamirrorError):  # it is away: it is asked again
            self._goals[alias] = self._goals[alias].asked(self.site.cluster(alias))
        return self._goals[alias]

    def _start(self) -> list[threading.Thread]:
        with suppress(SparkFailedError):  # the loops start it, too, and say so
            for crew in self.crews()[:CALLED]:
                crew.call(self.site.config.tasks_max)
            for crew in self.crews() if self._is_standby else ():
                crew.gather()  # it says that it waits once it can begin
        loops = [(s.duty, self._stage_loop, s) for s in self.stagings.values()]
        loops += [(r.duty, self._replay_loop, r) for r in self.replayings]  # type: ignore[misc]
        threads = [
            threading.Thread(target=loop, args=(duty,), name=name, daemon=True)
            for name, loop, duty in loops
        ]
        leases = {alias: staging.lease for alias, staging in self.stagings.items()}
        keeping = Housekeeping(self.site, leases, self._done)
        threads.append(threading.Thread(target=keeping.run, name="housekeeping", daemon=True))
        for thread in threads:
            thread.start()
        if not self._is_standby:
            self._beside.begin(self._flows)
        return threads

    def _wait(self, threads: Sequence[threading.Thread]) -> None:
        """Return when all replay loops ended, or some time after `stop`."""
        replays = [t for t in threads if t.name.startswith("replay")]
        while any(t.is_alive() for t in replays) and not self._stop.is_set():
            for thread in replays:
                thread.join(0.2)
        self._done.set()
        deadline = time.monotonic() + STOP_S
        for thread in (*threads, *self._beside.threads):
            thread.join(max(0.0, deadline - time.monotonic()))

    def _end(self) -> None:
        for staging in self.stagings.values():
            staging.close()
            if staging.duty in self._mine:
                self._bulletins.post(staging.duty, "stopped", None, staging.troubles)
        for replaying in self.replayings:
            replaying.close()
            error = self._failures.get(replaying.duty)
            if replaying.duty in self._mine:
                state = "failed" if error else "stopped"
                self._bulletins.post(replaying.duty, state, error, replaying.troubles)
        self.site.close()

    def _judge(self) -> None:
        """Raise where a run that was to end when caught up did not get there."""
        if not self._until_caught_up:
            return
        told = [str(error) for error in self._failures.values()]
        loops: list[Staging | Replaying] = [*self.stagings.values(), *self.replayings]
        told += [str(error) for loop in loops for error in loop.troubles.values()]
        for replaying in self.replayings:
            told += [f"{p} is paused" for p in sorted(replaying.paused)]
        if told:
            raise NotCaughtUpError(told)

    def crews(self) -> list[Crew[Any, Any]]:
        """Return the workers of each loop."""
        return [s.crew for s in self.stagings.values()] + [r.crew for r in self.replayings]

    def _is_over(self) -> bool:
        return self._stop.is_set() or self._done.is_set()

    def _stage_loop(self, staging: Staging) -> None:
        """Stage until told to stop; where another process does it, wait for its lease."""
        patience, watch = self._patience[staging.duty], self.board.stagings[staging.alias]
        while not self._is_over():
            watch.begins()
            try:
                with defects_told():
                    if not staging.lease.is_held:
                        staging.open()
                        self._mine.add(staging.duty)
                    staged = staging.tick(self._topics)
            except LeaseHeldError:
                watch.waits()
                self._rest(LEASE_S)  # another process stages: replay follows what it commits
                continue
            except StalePlanError as error:
                log.info("%s %s", staging.duty, error)
                continue
            except DeltamirrorError as error:
                self._trouble(watch, error)
                self._rest(patience.failed(is_hopeless=is_hopeless(error)))
                continue
            patience.worked()
            watch.worked(staging.troubles.values())
            self._failures.pop(staging.duty, None)
            self._bulletins.post(staging.duty, "running", None, staging.troubles)
            self.board.saw(staging.alias, staged.seen, staging.troubles)
            if staged.segments:
                self._reporter.staged(staging.alias, staged.segments)
                self.board.staged(staging.alias, staged.segments, staged.stamps)
                with self._news:
                    self._news.notify_all()
            self._rest(pause_s(watch.state.began_at_s, is_idle=not staged.segments))

    def _replay_loop(self, replaying: Replaying) -> None:
        """Replay until told to stop, or until everything up to the goal has arrived."""
        patience, watch = self._patience[replaying.duty], self.board.replays[replaying.flow]
        is_stale = False
        while not self._is_over():
            watch.begins()
            try:
                with defects_told():
                    if not replaying.lease.is_held:
                        self._take_over(replaying)
                    elif is_stale:
                        replaying.learn()
                    replayed = replaying.tick(self._topics)
            except LeaseHeldError as error:
                if watch.state.state != "waiting":
                    log.info("standby: %s", error)
                watch.waits()
                self._rest(LEASE_S)
                continue
            except DeltamirrorError as error:
                is_stale = isinstance(error, StalePlanError | DefectError)
                self._trouble(watch, error)
                self._measure(replaying)
                wait = patience.failed(is_hopeless=is_hopeless(error))
                if self._until_caught_up and patience.is_over():
                    return
                self._rest(wait)
                continue
            is_stale = False
            patience.worked()
            self._failures.pop(replaying.duty, None)
            troubles = replaying.troubles
            watch.worked(troubles.values(), is_paused=replaying.is_paused)
            self._bulletins.post(replaying.duty, "running", None, troubles)
            self._measure(replaying)
            if replayed.moves:
                if self._goals[replaying.flow.source].is_nearer(replayed.moves):
                    self._passing[replaying.duty].worked()
                self._reporter.replayed(replaying.flow, replayed.moves)
                self.board.replayed(replaying.flow, replayed.moves)
                if replaying.flow in self._offset_syncs:
                    self._offset_syncs[replaying.flow].note(replayed.moves)
                if self._until_caught_up and self._is_past_goal(replaying):
                    return
                continue
            if replayed.is_idle and self._until_caught_up and self._has_arrived(replaying):
                return
            with self._news:
                self._news.wait(pause_s(watch.state.began_at_s, is_idle=True))

    def _take_over(self, replaying: Replaying) -> None:
        """Begin to replay a flow that no other process replays any more. Raises LeaseHeldError."""
        replaying.open()
        self._mine.add(replaying.duty)
        log.info("%s: taken over", replaying.duty)
        self._beside.begin([replaying.config])

    def _measure(self, replaying: Replaying) -> None:
        """Tell the board how far the flow is, now and then; also while its target is away."""
        if self.board.is_due(replaying.flow):
            with suppress(DeltamirrorError):
                self.board.stands(replaying.flow, replaying.standings())

    def _has_arrived(self, replaying: Replaying) -> bool:
        """Return whether an idle flow has everything, as far as it can be had."""
        staging = self.stagings[replaying.flow.source]
        goal = self._goal(staging.alias)
        others = {p for p in goal.ends if not replaying.config.replicates(p.topic)}
        but = {*staging.troubles, *replaying.paused, *others}
        if staging.duty in self._failures:
            return self._patience[staging.duty].is_over()
        waited = self._has_waited(replaying)
        return goal.is_staged(replaying.ledger, but) if waited is None else waited

    def _is_past_goal(self, replaying: Replaying) -> bool:
        """Return whether a flow has replayed all up to the goal that it can, idle or not."""
        staging, config = self.stagings[replaying.flow.source], replaying.config
        but = {*staging.troubles, *replaying.troubles, *replaying.paused}
        waited = self._has_waited(replaying)
        return waited or (
            waited is None
            and self._goal(staging.alias).is_replayed(
                replaying.progress, lambda p: config.replicates(p.topic) and p not in but
            )
        )

    def _has_waited(self, replaying: Replaying) -> bool | None:
        """Return whether what may pass had its time, and nothing moved; None: there is none."""
        troubles = (self.stagings[replaying.flow.source].troubles, replaying.troubles)
        passing = self._passing[replaying.duty]
        if not any(error.passes for found in troubles for error in found.values()):
            passing.worked()
            return None
        passing.failed()
        return passing.is_over()

    def _trouble(self, watch: LoopWatch, error: DeltamirrorError) -> None:
        """Tell that a tick of the loop that *watch* is on failed; it is tried again."""
        duty = watch.state.name
        watch.failed(error)
        self._mine.add(duty)
        self._failures[duty] = error
        log.warning("%s: %s", duty, error)
        self._bulletins.post(duty, "failed", error, {})
        self._reporter.troubled(duty, error)

    def _rest(self, seconds: float) -> None:
        """Wait *seconds*, or until the run is over."""
        if not self._done.is_set():
            self._stop.wait(seconds)


def mirror_of(
    config: Config,
    *,
    flows: Collection[str] | None = None,
    targets: Collection[str] | None = None,
    until_caught_up: bool = False,
    topics: Collection[str] | None = None,
    reporter: Reporter | None = None,
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
        reporter=reporter,
        stop=stop,
        is_standby=is_standby,
    )


def mirror(
    config: Config,
    *,
    flows: Collection[str] | None = None,
    until_caught_up: bool = False,
    topics: Collection[str] | None = None,
    reporter: Reporter | None = None,
    stop: threading.Event | None = None,
) -> None:
    """Mirror the flows of *config*: all, or those named.

    Blocks until *stop* is set or, with *until_caught_up*, until progress has reached the last
    stable offsets seen at the start. Raises ConfigError, LeaseHeldError, NotCaughtUpError.
    """
    mirror_of(
        config,
        flows=flows,
        until_caught_up=until_caught_up,
        topics=topics,
        reporter=reporter,
        stop=stop,
    ).run()
