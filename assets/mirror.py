"""The loops: one stages each source cluster, one replays each flow, in one process (DESIGN 2).

A plain function with a reporter: `deltamirror run`, the demo and Dagster's `mirror` job call it.
Nothing here makes a record exact; it only says when the steps run and how long they wait.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from assets.chores import chores_of
from assets.goal import Goal
from assets.housekeeping import Housekeeping
from assets.offset_syncs import OffsetSyncs
from assets.patience import Patience
from assets.replaying import Replaying
from assets.site import Site
from assets.staging import Staging
from assets.upkeep import Upkeep
from resources.spark import Workers
from schemas.config import Config, FlowConfig, HeartbeatConfig
from schemas.errors import (
    ConfigError,
    DeltamirrorError,
    LeaseHeldError,
    NotCaughtUpError,
    PermissionMissingError,
    StalePlanError,
)
from schemas.flow import Flow
from schemas.replay_work import Move
from schemas.segment import Segment
from schemas.topic_partition import TopicPartition
from schemas.watermarks import Watermarks

log = logging.getLogger(__name__)

IDLE_S = 0.2
"""How long a loop with nothing to do waits before it looks again."""

STOP_S = 8.0
"""How long a loop may take to end once it is told to; then the process ends without it."""


class DefectError(DeltamirrorError):
    """Something failed in a way that was not thought of."""

    hint = "This is a defect of deltamirror: the log holds the whole report. The loop tries again."

    def __init__(self, error: BaseException) -> None:
        super().__init__("".join(f"{type(error).__name__}: {error}".splitlines()[:1]))


class Reporter(Protocol):
    """Hears what moved; called from the loops' threads, and never lets an error out."""

    def staged(self, alias: str, segments: Sequence[Segment]) -> None:
        """Hear that *segments* of source cluster *alias* were committed."""

    def replayed(self, flow: Flow, moves: Sequence[Move]) -> None:
        """Hear that *moves* of *flow* were committed on its target."""

    def troubled(self, duty: str, error: DeltamirrorError) -> None:
        """Hear that *duty*'s tick failed; it tries again."""


class Silent:
    """A reporter that says nothing."""

    def staged(self, alias: str, segments: Sequence[Segment]) -> None:
        """Say nothing."""

    def replayed(self, flow: Flow, moves: Sequence[Move]) -> None:
        """Say nothing."""

    def troubled(self, duty: str, error: DeltamirrorError) -> None:
        """Say nothing."""


class Mirror:
    """A run of the loops for *flows* of *config*, and of *heartbeats*; `run` blocks until it ends.

    *topics*: only these, and only once (a materialization from the UI). *stop* ends it cleanly.
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
    ) -> None:
        if not flows:
            raise ConfigError("no flow is enabled: set <source>-><target>.enabled = true")
        self.site = Site(config)
        self._workers = Workers(config.tasks_max)
        self._flows, self._heartbeats = flows, heartbeats
        self._until_caught_up = until_caught_up
        self._topics = topics
        self._reporter = reporter or Silent()
        self._stop = stop or threading.Event()
        self._done = threading.Event()
        self._news = threading.Condition()
        self._goals = {flow.flow.source: Goal() for flow in flows}
        self._failures: dict[str, DeltamirrorError] = {}
        self.stagings = {s: Staging(self.site, s, self._workers) for s in self._goals}
        self.replayings = [Replaying(self.site, flow, self._workers) for flow in flows]
        self._offset_syncs = {
            flow.flow: OffsetSyncs(self.site, flow.offset_syncs)
            for flow in flows
            if flow.offset_syncs is not None
        }
        duties = [s.duty for s in self.stagings.values()] + [r.duty for r in self.replayings]
        self._patience = {duty: Patience() for duty in duties}
        self._passing = {replaying.duty: Patience() for replaying in self.replayings}

    def run(self) -> None:
        """Run until stopped, or until caught up.

        Raises ClientSettingsError: the file's settings make no client. LeaseHeldError: another
        process replays one of the flows. NotCaughtUpError: the run was to end when caught up, and
        a flow or a partition is failed or paused.
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
        for replaying in self.replayings:
            replaying.open()
        for alias in {*self._goals, *(flow.flow.target for flow in self._flows)}:
            self.site.cluster(alias).open()
        if self._until_caught_up:
            for alias in self._goals:
                self.site.cluster(alias).probe()
                self._goals[alias] = Goal(self._ends(alias))
            for flow in self._flows:
                self.site.cluster(flow.flow.target).probe()

    def _ends(self, alias: str) -> dict[TopicPartition, tuple[str, int]]:
        """Return topic id and last stable offset of what is mirrored from *alias*."""
        flows = [flow for flow in self._flows if flow.flow.source == alias]
        cluster = self.site.cluster(alias)
        ids = {
            TopicPartition(name, i): topic.topic_id
            for name, topic in cluster.topics().items()
            if any(flow.replicates(name) for flow in flows)
            and (self._topics is None or name in self._topics)
            for i in range(topic.partitions)
        }
        found = cluster.watermarks(list(ids)) if ids else {}
        return {p: (ids[p], a.stable) for p, a in found.items() if isinstance(a, Watermarks)}

    def _start(self) -> list[threading.Thread]:
        self._workers.warm()
        loops = [(s.duty, self._stage_loop, s) for s in self.stagings.values()]
        loops += [(r.duty, self._replay_loop, r) for r in self.replayings]  # type: ignore[misc]
        threads = [
            threading.Thread(target=loop, args=(duty,), name=name, daemon=True)
            for name, loop, duty in loops
        ]
        for name, chores in chores_of(
            self.site, self._flows, self._heartbeats, self._offset_syncs
        ).items():
            upkeep = Upkeep(chores, self._stop, self._done)
            threads.append(threading.Thread(target=upkeep.run, name=name, daemon=True))
        leases = {alias: staging.lease for alias, staging in self.stagings.items()}
        keeping = Housekeeping(self.site, leases, self._done)
        threads.append(threading.Thread(target=keeping.run, name="housekeeping", daemon=True))
        for thread in threads:
            thread.start()
        return threads

    def _wait(self, threads: Sequence[threading.Thread]) -> None:
        """Return when all replay loops ended, or some time after `stop`."""
        replays = [t for t in threads if t.name.startswith("replay")]
        while any(t.is_alive() for t in replays) and not self._stop.is_set():
            for thread in replays:
                thread.join(0.2)
        self._done.set()
        deadline = time.monotonic() + STOP_S
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _end(self) -> None:
        for staging in self.stagings.values():
            staging.close()
            self.site.bulletin.post(staging.duty, "stopped", None, _told(staging.troubles))
        for replaying in self.replayings:
            replaying.close()
            error = self._failures.get(replaying.duty)
            state = "failed" if error else "stopped"
            self.site.bulletin.post(
                replaying.duty, state, str(error) if error else None, _told(replaying.troubles)
            )
        self.site.close()

    def _judge(self) -> None:
        """Raise where a run that was to end when caught up did not get there."""
        if not self._until_caught_up:
            return
        told = [str(error) for error in self._failures.values()]
        for staging in self.stagings.values():
            told += [str(error) for error in staging.troubles.values()]
        for replaying in self.replayings:
            told += [str(error) for error in replaying.troubles.values()]
        for replaying in self.replayings:
            told += [f"{p} is paused" for p in sorted(replaying.paused)]
        if told:
            raise NotCaughtUpError(told)

    def _is_over(self) -> bool:
        return self._stop.is_set() or self._done.is_set()

    def _stage_loop(self, staging: Staging) -> None:
        """Stage until told to stop; where another process does it, wait for its lease."""
        patience = self._patience[staging.duty]
        while not self._is_over():
            try:
                with _defects_told():
                    if not staging.lease.is_held:
                        staging.open()
                    staged = staging.tick(self._topics)
            except LeaseHeldError:
                self._rest(1.0)  # another process stages: replay follows what it commits
                continue
            except StalePlanError as error:
                log.info("%s %s", staging.duty, error)
                continue
            except DeltamirrorError as error:
                self._trouble(staging.duty, error)
                self._rest(patience.failed(is_hopeless=_is_hopeless(error)))
                continue
            patience.worked()
            self._failures.pop(staging.duty, None)
            self.site.bulletin.post(staging.duty, "running", None, _told(staging.troubles))
            if staged.segments:
                self._reporter.staged(staging.alias, staged.segments)
                with self._news:
                    self._news.notify_all()
            else:
                self._rest(IDLE_S)

    def _replay_loop(self, replaying: Replaying) -> None:
        """Replay until told to stop, or until everything up to the goal has arrived."""
        patience = self._patience[replaying.duty]
        is_stale = False
        while not self._is_over():
            try:
                with _defects_told():
                    if is_stale:
                        replaying.learn()
                    replayed = replaying.tick(self._topics)
            except DeltamirrorError as error:
                is_stale = isinstance(error, StalePlanError | DefectError)
                self._trouble(replaying.duty, error)
                wait = patience.failed(is_hopeless=_is_hopeless(error))
                if self._until_caught_up and patience.is_over():
                    return
                self._rest(wait)
                continue
            is_stale = False
            patience.worked()
            self._failures.pop(replaying.duty, None)
            self._post(replaying)
            if replayed.moves:
                self._passing[replaying.duty].worked()
                self._reporter.replayed(replaying.flow, replayed.moves)
                if replaying.flow in self._offset_syncs:
                    self._offset_syncs[replaying.flow].note(replayed.moves)
                if self._until_caught_up and self._is_past_goal(replaying):
                    return
                continue
            if replayed.is_idle and self._until_caught_up and self._has_arrived(replaying):
                return
            with self._news:
                self._news.wait(IDLE_S)

    def _has_arrived(self, replaying: Replaying) -> bool:
        """Return whether an idle flow has everything, as far as it can be had."""
        source = replaying.flow.source
        staging = self.stagings[source]
        but = set(staging.troubles) | replaying.paused
        but |= {p for p in self._goals[source].ends if not replaying.config.replicates(p.topic)}
        if staging.duty in self._failures:
            return self._patience[staging.duty].is_over()
        if any(e.passes for e in (*staging.troubles.values(), *replaying.troubles.values())):
            passing = self._passing[replaying.duty]
            passing.failed()
            return passing.is_over()
        return self._goals[source].is_staged(replaying.ledger, but)

    def _is_past_goal(self, replaying: Replaying) -> bool:
        """Return whether a flow without troubles has replayed all up to the goal, idle or not."""
        goal = self._goals[replaying.flow.source]
        return not replaying.troubles and goal.is_replayed(
            replaying.progress, replaying.config.replicates
        )

    def _post(self, replaying: Replaying) -> None:
        self.site.bulletin.post(replaying.duty, "running", None, _told(replaying.troubles))

    def _trouble(self, duty: str, error: DeltamirrorError) -> None:
        """Tell that a tick of *duty* failed; it is tried again."""
        self._failures[duty] = error
        log.warning("%s: %s", duty, error)
        self.site.bulletin.post(duty, "failed", str(error), [])
        self._reporter.troubled(duty, error)

    def _rest(self, seconds: float) -> None:
        """Wait *seconds*, or until the run is over."""
        if not self._done.is_set():
            self._stop.wait(seconds)


@contextmanager
def _defects_told() -> Iterator[None]:
    """Raise DefectError for any error that is none of ours: a loop goes on and says so."""
    try:
        yield
    except DeltamirrorError:
        raise
    except Exception as error:
        log.exception("a defect")
        raise DefectError(error) from error


def _is_hopeless(error: DeltamirrorError) -> bool:
    """Return whether only a person can mend what *error* tells."""
    return isinstance(error, ConfigError | PermissionMissingError)


def _told(troubles: Mapping[TopicPartition, DeltamirrorError]) -> list[dict[str, object]]:
    """Return *troubles* as a bulletin holds them."""
    return [
        {
            "topic": p.topic,
            "partition": p.partition,
            "type": error.kind,
            "message": str(error),
            "hint": error.hint,
        }
        for p, error in sorted(troubles.items())
    ]


def mirror(
    config: Config,
    *,
    flows: Collection[str] | None = None,
    targets: Collection[str] | None = None,
    until_caught_up: bool = False,
    topics: Collection[str] | None = None,
    reporter: Reporter | None = None,
    stop: threading.Event | None = None,
) -> None:
    """Mirror the flows of *config*: all, those named, or those into *targets* (MM2's --clusters).

    Heartbeats are emitted for the pairs that are so chosen, be they enabled flows or not.

    Blocks until *stop* is set or, with *until_caught_up*, until progress has reached the last
    stable offsets seen at the start. Raises ConfigError, LeaseHeldError, NotCaughtUpError.
    """
    chosen = [config.flow(name) for name in flows] if flows else list(config.flows)
    if targets:
        chosen = [flow for flow in chosen if flow.flow.target in targets]
    heartbeats = [
        each
        for each in config.heartbeats
        if (not flows or each.flow.name in flows) and (not targets or each.flow.target in targets)
    ]
    Mirror(
        config,
        flows=chosen,
        heartbeats=heartbeats,
        until_caught_up=until_caught_up,
        topics=topics,
        reporter=reporter,
        stop=stop,
    ).run()
