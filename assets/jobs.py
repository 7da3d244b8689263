"""Dagster jobs: run the loops, replay a topic from the launchpad, maintain the stage."""

# Without `from __future__ import annotations`: Dagster reads annotations to find resources.

import contextlib
import threading
import time

import dagster as dg

from assets.event_reporter import PUBLISH_INTERVAL_S, EventBuffer, EventPublisher
from assets.keys import open_context, replays_key
from assets.metadata import row_counts
from deltamirror.context import MirrorContext
from deltamirror.maintenance.maintain import MaintenanceResult, maintain
from deltamirror.replay.point_in_time import replay_point_in_time
from deltamirror.run.supervisor import Mirror
from deltamirror.times import parse_time_ms
from deltamirror.timings import Timings
from resources.dagster_resources import MirrorFile, Spark
from schemas.config.config import Config
from schemas.errors.lake import LeaseHeldError
from schemas.replay.point_in_time import Selection

DEFAULT_RUN_MINUTES = 30.0
"""Duration of a run: short runs have readable logs, and each run loads the newest definitions."""


class MirrorConfig(dg.Config):
    """Duration of a run of `mirror`, in minutes."""

    minutes: float = DEFAULT_RUN_MINUTES


class MirrorThread:
    """Run the loops of *config* in a separate thread; leaving the context ends them.

    The step's main thread must stay free, because Dagster interrupts it to terminate a run.
    """

    def __init__(self, config: Config, events: EventBuffer) -> None:
        self._config, self._events = config, events
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="mirror", daemon=True)

    def __enter__(self) -> "MirrorThread":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(2 * Timings().stop_timeout_s)

    def has_ended(self, wait_s: float) -> bool:
        """Wait up to *wait_s* seconds; return whether the loops have ended. Raises their error."""
        self._thread.join(wait_s)
        if self._error is not None:
            raise self._error
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            Mirror(self._config, listeners=[self._events], stop=self._stop).run()
        except BaseException as error:
            self._error = error


@dg.op(
    name="mirror_flows",
    out=dg.Out(dg.Nothing),
    description="Stage every source and replay every flow until the time is over.",
)
def _mirror_flows(
    context: dg.OpExecutionContext, config: MirrorConfig, file: MirrorFile, spark: Spark
) -> None:
    with open_context(file) as mirror_context:
        spark.workers(mirror_context.config.tasks_max)
        events = EventBuffer(row_counts(mirror_context))
        publisher = EventPublisher(events, context.instance, context.log_event)
        ends_at = time.monotonic() + config.minutes * 60
        with contextlib.ExitStack() as last:
            # Callbacks run in reverse: the loops end first, then the last events are published.
            last.callback(context.log.info, "the run ended cleanly; the next run continues")
            last.callback(lambda: publisher.publish_rest(time.monotonic()))
            loops = last.enter_context(MirrorThread(mirror_context.config, events))
            flows = ", ".join(str(each.flow) for each in mirror_context.config.flows)
            context.log.info(f"mirroring {flows}")
            while not loops.has_ended(PUBLISH_INTERVAL_S) and time.monotonic() < ends_at:
                publisher.publish_due(time.monotonic())


@dg.job(
    name="mirror",
    description="Mirror all flows for half an hour. Then the next run continues.",
    tags={"flow": "all"},  # deploy/dagster.yaml allows one run with this tag at a time
)
def mirror_job() -> None:
    """Mirror all flows."""
    _mirror_flows()


class ReplayConfig(dg.Config):
    """What to replay. *as_of* is a time in ISO 8601 or ms since 1970; ends are exclusive.

    *flow* is optional if the configuration has only one flow. If *target_topic* is not set, the
    replay creates a topic. With *dry_run* the plan is logged and nothing is written.
    """

    topic: str
    flow: str | None = None
    as_of: str | None = None
    from_offset: int | None = None
    to_offset: int | None = None
    target_topic: str | None = None
    dry_run: bool = True


@dg.op(
    name="replay_topic",
    out=dg.Out(dg.Nothing),
    description="Write the staged records of a topic again, to a separate topic.",
)
def _replay_topic(
    context: dg.OpExecutionContext, config: ReplayConfig, file: MirrorFile, spark: Spark
) -> None:
    with open_context(file) as mirror_context:
        plan, records = replay_point_in_time(
            mirror_context,
            _flow_name(mirror_context, config),
            config.topic,
            _selection(config),
            config.target_topic,
            dry_run=config.dry_run,
            workers=spark.workers(mirror_context.config.tasks_max) if not config.dry_run else None,
        )
    context.log.info("the plan: %s", plan.to_json())
    if config.dry_run:
        return
    offsets = sum(each.end - each.start for each in plan.ranges)
    context.log_event(
        dg.AssetMaterialization(
            replays_key(plan.flow.flow),
            metadata={"records": records, "offsets": offsets, "target_topic": plan.target_topic},
        )
    )


def _flow_name(mirror_context: MirrorContext, config: ReplayConfig) -> str:
    flows = [each.flow.name for each in mirror_context.config.flows]
    if config.flow is None and len(flows) != 1:
        raise dg.Failure(f"set flow to one of {', '.join(flows)}", allow_retries=False)
    return config.flow or flows[0]


def _selection(config: ReplayConfig) -> Selection:
    try:
        as_of_ms = None if config.as_of is None else parse_time_ms(config.as_of)
    except ValueError as error:
        raise dg.Failure(f"as_of: {error}", allow_retries=False) from None
    if as_of_ms is not None and (config.from_offset, config.to_offset) != (None, None):
        raise dg.Failure("set as_of or offsets, not both", allow_retries=False)
    return Selection(as_of_ms=as_of_ms, from_offset=config.from_offset, to_offset=config.to_offset)


@dg.job(name="replay", description="A point-in-time replay for an audit; a dry run by default.")
def replay_job() -> None:
    """Replay the topic that the run's configuration names."""
    _replay_topic()


LEASE_TIMEOUT_S = (DEFAULT_RUN_MINUTES + 5) * 60
"""Seconds that `maintain` waits for a staging lease. A run of `mirror` ends within this time."""


@dg.op(
    name="maintain_stages",
    out=dg.Out(dg.Nothing),
    description="Merge small files, remove expired records, delete unreferenced files.",
)
def _maintain_stages(context: dg.OpExecutionContext, file: MirrorFile) -> None:
    with open_context(file) as mirror_context:
        for alias in mirror_context.config.sources():
            for done in _maintain_when_free(mirror_context, alias):
                context.log.info("%s", done)


def _maintain_when_free(mirror_context: MirrorContext, alias: str) -> list[MaintenanceResult]:
    """Maintain *alias* when no process stages it. Raises LeaseHeldError after LEASE_TIMEOUT_S."""
    give_up_at = time.monotonic() + LEASE_TIMEOUT_S
    while True:
        try:
            return maintain(mirror_context, alias)
        except LeaseHeldError:
            if time.monotonic() > give_up_at:
                raise
            time.sleep(1)


@dg.job(name="maintain", description="Maintain the stage: retention, compaction and vacuum.")
def maintain_job() -> None:
    """Maintain every source's stage."""
    _maintain_stages()
