"""The jobs: the loops as a run of Dagster, a replay by launchpad, the stage's upkeep."""

# No postponed annotations: Dagster reads them to find resources and configuration.

import contextlib
import threading
import time

import dagster as dg

from assets.dagster_news import TELL_EVERY_S, News, Teller
from assets.dagster_numbers import row_counts
from assets.dagster_site import site_of
from assets.mirror import STOP_S, mirror
from resources.configured import MirrorFile, Spark
from schemas.config import Config

ONE_AT_A_TIME = {"flow": "all"}
"""The tag that deploy/dagster.yaml lets one run have at a time."""

MINUTES = 30.0
"""How long a run mirrors: its log stays readable, and the next one has the newest definitions."""


class MirrorConfig(dg.Config):
    """How long a run of `mirror` lasts, in minutes."""

    minutes: float = MINUTES


class Loops:
    """The loops of *config* in a thread of their own; leaving the context ends them.

    The step's own thread must stay free: Dagster interrupts that one when a run is terminated.
    """

    def __init__(self, config: Config, news: News) -> None:
        self._config, self._news = config, news
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="mirror", daemon=True)

    def __enter__(self) -> "Loops":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(2 * STOP_S)

    def has_ended(self, wait_s: float) -> bool:
        """Wait up to *wait_s* seconds for the loops to end by themselves; raise what ended them."""
        self._thread.join(wait_s)
        if self._error is not None:
            raise self._error
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            mirror(self._config, reporter=self._news, stop=self._stop)
        except BaseException as error:
            self._error = error


@dg.op(
    name="mirror_flows",
    out=dg.Out(dg.Nothing),
    description="Stage every source and replay every flow until the time is over or terminated.",
)
def _mirror_flows(
    context: dg.OpExecutionContext, config: MirrorConfig, file: MirrorFile, spark: Spark
) -> None:
    with site_of(file) as site:
        spark.workers(site.config.tasks_max)
        news = News(row_counts(site))
        teller = Teller(news, context.instance, context.log_event)
        ends_at = time.monotonic() + config.minutes * 60
        with contextlib.ExitStack() as last:
            # Left in reverse: the loops end first, then what they did to the end is told.
            last.callback(context.log.info, "ended cleanly: the next run goes on from here")
            last.callback(lambda: teller.finish(time.monotonic()))
            loops = last.enter_context(Loops(site.config, news))
            context.log.info("mirroring " + ", ".join(str(f.flow) for f in site.config.flows))
            while not loops.has_ended(TELL_EVERY_S) and time.monotonic() < ends_at:
                teller.turn(time.monotonic())


@dg.job(
    name="mirror",
    description="MirrorMaker's work for half an hour, then the next run takes over.",
    tags=ONE_AT_A_TIME,
)
def mirror_job() -> None:
    """Mirror all flows."""
    _mirror_flows()
