"""Replay one flow until the run ends, or until it is caught up."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from deltamirror.backoff import Backoff, wrap_unexpected_errors
from deltamirror.context import MirrorContext
from deltamirror.listener import Listener
from deltamirror.replay.replayer import FlowReplayer
from deltamirror.run.loop import Loop, RunSignals
from deltamirror.run.staging_loop import StagingLoop
from resources.spark.session import SparkWorkers
from schemas.config.config import FlowConfig
from schemas.errors.base import DefectError, DeltamirrorError
from schemas.errors.lake import LeaseHeldError, StalePlanError
from schemas.replay.slot_work import CommittedBatch

log = logging.getLogger(__name__)


class ReplayLoop(Loop):
    """The loop of the flow *config*; *staging* is the loop of its source.

    *until_caught_up*: the loop ends when all records that the source had at the start are replayed.
    *on_takeover* is called after the loop took the lease of a process that has ended.
    """

    def __init__(
        self,
        context: MirrorContext,
        config: FlowConfig,
        workers: SparkWorkers,
        signals: RunSignals,
        listeners: Sequence[Listener],
        staging: StagingLoop,
        *,
        until_caught_up: bool,
        on_takeover: Callable[[FlowConfig], None],
    ) -> None:
        self.replayer = FlowReplayer(context, config, workers)
        super().__init__(self.replayer.role, signals, listeners, context.timings)
        self._config, self._staging = config, staging
        self._until_caught_up, self._on_takeover = until_caught_up, on_takeover
        self._transient_backoff = Backoff(context.timings)
        self._lag_measured_at_s = float("-inf")

    def open(self) -> None:
        """Take the lease. Raises LeaseHeldError, LakeError."""
        self.replayer.open()
        self.had_lease = True

    def run(self) -> None:
        """Replay until the run ends, or until caught up. Wait for the lease if it is held."""
        try:
            self._run_ticks()
        finally:
            self.replayer.flush_map()

    def _run_ticks(self) -> None:
        is_stale = is_waiting = False
        while not self._signals.is_over():
            self._start_tick()
            self.replayer.committed = ()
            try:
                with wrap_unexpected_errors():
                    if not self.replayer.lease.is_held:
                        self.open()
                        log.info("%s: taken over", self.role)
                        self._on_takeover(self._config)
                    elif is_stale:
                        self.replayer.load_ends()
                    tick = self.replayer.tick()
            except LeaseHeldError as error:
                if not is_waiting:
                    log.info("standby: %s", error)
                is_waiting = True
                self._wait_for_lease()
                continue
            except DeltamirrorError as error:
                is_stale = isinstance(error, StalePlanError | DefectError)
                is_waiting = False
                wait_s = self._fail(error)
                self._report(self.replayer.committed)
                self._measure_lag()
                if self._until_caught_up and self.backoff.is_exhausted():
                    return
                self._signals.sleep(wait_s)
                continue
            is_stale = is_waiting = False
            self.backoff.succeeded()
            self.failure = None
            errors = self.replayer.partition_errors
            for listener in self._listeners:
                listener.tick_succeeded(self.role, errors, is_paused=self.replayer.is_paused)
            self._measure_lag()
            if tick.moves:
                if self._staging.catch_up_target().is_advanced_by(tick.moves):
                    self._transient_backoff.succeeded()
                self._report(tick.moves)
                if self._until_caught_up and self._is_caught_up():
                    return
                continue
            if tick.is_idle and self._until_caught_up and self._is_idle_and_caught_up():
                return
            with self._signals.staged:
                self._signals.staged.wait(self._seconds_to_next_tick(is_idle=True))

    def _report(self, moves: Sequence[CommittedBatch]) -> None:
        for listener in self._listeners if moves else ():
            listener.replayed(self._config.flow, moves)

    def _measure_lag(self) -> None:
        """Report the lag every few seconds, also while the target is unreachable."""
        if time.monotonic() - self._lag_measured_at_s < self._timings.lag_interval_s:
            return
        with suppress(DeltamirrorError):
            lags = self.replayer.partition_lags()
            self._lag_measured_at_s = time.monotonic()
            for listener in self._listeners:
                listener.lag_measured(self._config.flow, lags)

    def _is_idle_and_caught_up(self) -> bool:
        """Return whether an idle flow has replayed everything that can be staged and replayed."""
        if self._staging.failure is not None:
            return self._staging.backoff.is_exhausted()
        is_over = self._is_transient_wait_over()
        if is_over is not None:
            return is_over
        target = self._staging.catch_up_target()
        others = {p for p in target.ends if not self._config.replicates(p.topic)}
        excluded = {*self._staging.stager.partition_errors, *self.replayer.paused, *others}
        return target.is_staged(self.replayer.segment_index, excluded)

    def _is_caught_up(self) -> bool:
        """Return whether the flow has replayed up to the target, except failed and paused parts."""
        is_over = self._is_transient_wait_over()
        if is_over is not None:
            return is_over
        failed = {*self._staging.stager.partition_errors, *self.replayer.partition_errors}
        excluded = failed | self.replayer.paused
        return self._staging.catch_up_target().is_replayed(
            self.replayer.progress, lambda p: self._config.replicates(p.topic) and p not in excluded
        )

    def _is_transient_wait_over(self) -> bool | None:
        """Return whether transient errors have lasted too long, or None if there are none."""
        found = (self._staging.stager.partition_errors, self.replayer.partition_errors)
        if not any(error.is_transient for errors in found for error in errors.values()):
            self._transient_backoff.succeeded()
            return None
        self._transient_backoff.failed()
        return self._transient_backoff.is_exhausted()
