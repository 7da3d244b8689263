"""Stage one source cluster until the run ends."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from contextlib import suppress

from deltamirror.backoff import wrap_unexpected_errors
from deltamirror.context import MirrorContext
from deltamirror.listener import Listener
from deltamirror.run.catch_up import CatchUpTarget
from deltamirror.run.loop import Loop, RunSignals
from deltamirror.staging.stager import SourceStager
from resources.spark.session import SparkWorkers
from schemas.config.config import FlowConfig
from schemas.errors.base import DeltamirrorError
from schemas.errors.lake import LeaseHeldError, StalePlanError
from schemas.monitoring.stats import ValueStats
from schemas.staging.segment import Segment

log = logging.getLogger(__name__)


class StagingLoop(Loop):
    """The loop of source cluster *alias*."""

    def __init__(
        self,
        context: MirrorContext,
        alias: str,
        workers: SparkWorkers,
        signals: RunSignals,
        listeners: Sequence[Listener],
    ) -> None:
        self.stager = SourceStager(context, alias, workers)
        super().__init__(self.stager.role, signals, listeners, context.timings)
        self.alias = alias
        self._cluster = context.cluster
        self._catch_up_target = CatchUpTarget()

    def run(self) -> None:
        """Stage until the run ends. While another process holds the lease, wait for it."""
        while not self._signals.is_over():
            self._start_tick()
            self.stager.committed = (), ()
            try:
                with wrap_unexpected_errors():
                    if not self.stager.lease.is_held:
                        self.stager.open()
                        self.had_lease = True
                    tick = self.stager.tick()
            except LeaseHeldError:
                self._wait_for_lease()  # replay follows what the other process commits
                continue
            except StalePlanError as error:
                log.info("%s %s", self.role, error)
                continue
            except DeltamirrorError as error:
                wait_s = self._fail(error)
                self._report(*self.stager.committed)
                self._signals.sleep(wait_s)
                continue
            self.backoff.succeeded()
            self.failure = None
            errors = self.stager.partition_errors
            for listener in self._listeners:
                listener.tick_succeeded(self.role, errors)
                listener.watermarks_read(self.alias, tick.watermarks, errors)
            self._report(tick.segments, tick.timestamps)
            self._signals.sleep(self._seconds_to_next_tick(is_idle=not tick.segments))

    def _report(self, segments: Sequence[Segment], timestamps: Sequence[ValueStats]) -> None:
        if not segments:
            return
        for listener in self._listeners:
            listener.staged(self.alias, segments, timestamps)
        with self._signals.staged:
            self._signals.staged.notify_all()

    def set_catch_up_target(self, flows: Collection[FlowConfig]) -> None:
        """Set the catch-up target to the source's current ends. Raises UnreachableError."""
        self._cluster(self.alias).probe()
        self._catch_up_target = CatchUpTarget.at_start(self._cluster(self.alias), flows)

    def catch_up_target(self) -> CatchUpTarget:
        """Return the catch-up target; read the offsets that no leader has returned before."""
        with suppress(DeltamirrorError):  # the cluster is unreachable: the next call tries again
            self._catch_up_target = self._catch_up_target.resolve_ends(self._cluster(self.alias))
        return self._catch_up_target
