"""One topic brought to where it shall be, by the steps that the loops take.

A materialization asks for this: it ends, and where another process does the duty it waits for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Protocol

from deltamirror.backoff import GIVE_UP_S
from deltamirror.context import Site
from deltamirror.replay.offset_map import OffsetMap
from deltamirror.replay.replayer import Replaying
from deltamirror.run.catch_up import Goal
from deltamirror.staging.segment_index import Ledger
from deltamirror.staging.stager import Staging
from resources.coordination.lease import Lease
from resources.spark.session import Workers
from schemas.config.config import FlowConfig
from schemas.errors import (
    ConfigError,
    DeltamirrorError,
    LeaseHeldError,
    NotCaughtUpError,
    PartitionError,
    RangeUnfinishedError,
    StalePlanError,
    TopicMissingError,
)
from schemas.kafka.partition import TopicPartition, Watermarks

WAIT_S = 600.0
"""How long another process may take to bring the topic there."""

POLL_S = 0.3


class Duty(Protocol):
    """What staging and replaying have in common."""

    lease: Lease

    @property
    def troubles(self) -> Mapping[TopicPartition, PartitionError]:
        """Return the partitions that cannot go on, with why."""

    def open(self) -> None:
        """Take the lease. Raises LeaseHeldError where another process has it."""

    def close(self) -> None:
        """Give the lease back."""


def stage_topic(site: Site, alias: str, topic: str, workers: Workers) -> None:
    """Stage *topic* of source cluster *alias* up to the last stable offsets that it has now.

    Raises TopicMissingError, the error of a partition that cannot be staged, LeaseHeldError where
    the process that stages did not get there, UnreachableError.
    """
    site.lake.make()
    goal = Goal(last_stable(site, alias, topic))
    ledger = Ledger(site.lake.segments(alias))

    def has_arrived() -> bool:
        ledger.refresh()
        return goal.is_staged(ledger, ())

    staging = Staging(site, alias, workers)
    _bring(staging, topic, lambda: bool(staging.tick([topic]).segments), has_arrived)


def replay_topic(site: Site, flow: FlowConfig, topic: str, workers: Workers) -> None:
    """Replay *topic* of *flow* to the end of what is staged now.

    Raises ConfigError where the flow does not mirror the topic, the error of a partition that
    cannot go on, LeaseHeldError where the process that replays did not get there,
    UnreachableError.
    """
    if not flow.replicates(topic):
        raise ConfigError(f"flow {flow.flow} does not mirror {topic}: see its topics in the file")
    site.lake.make()
    ledger = Ledger(site.lake.segments(flow.flow.source))
    ledger.refresh()
    goal = {
        at: frontier
        for at, frontier in ledger.chains.frontiers.items()
        if at.topic == topic and frontier.next_offset > 0
    }
    replaying = Replaying(site, flow, workers)
    table = site.lake.offset_map(flow.flow)
    offset_map = OffsetMap(table, run_id="")

    def has_arrived() -> bool:
        paused = sorted(at for at in replaying.paused if at.topic == topic)
        if paused:
            raise NotCaughtUpError([f"{at} is paused" for at in paused])
        remote = flow.remote_topic(topic)
        there = site.cluster(flow.flow.target).topics([remote]).get(remote)
        if there is None:
            return not goal
        table.refresh()
        # The map's mark, not the target's progress: the map is what this brings about.
        ends = (
            (offset_map.end(_at(remote, at), there.topic_id, [frontier.source.topic_id]), frontier)
            for at, frontier in goal.items()
        )
        return all(
            end is not None and end.progress.next_offset >= frontier.next_offset
            for end, frontier in ends
        )

    _bring(replaying, topic, lambda: bool(replaying.tick([topic]).moves), has_arrived)


def last_stable(site: Site, alias: str, topic: str) -> dict[TopicPartition, tuple[str, int]]:
    """Return topic id and last stable offset of each partition of *topic*.

    Raises TopicMissingError.
    """
    cluster = site.cluster(alias)
    cluster.probe()
    found = cluster.topics([topic]).get(topic)
    if found is None:
        raise TopicMissingError(topic, f"on {alias}")
    marks = cluster.watermarks([TopicPartition(topic, i) for i in range(found.partitions)])
    for answer in marks.values():
        if not isinstance(answer, Watermarks):
            raise answer
    return {at: (found.topic_id, a.stable) for at, a in marks.items() if isinstance(a, Watermarks)}


def _at(remote: str, partition: TopicPartition) -> TopicPartition:
    return TopicPartition(remote, partition.partition)


def _bring(
    duty: Duty, topic: str, tick: Callable[[], bool], has_arrived: Callable[[], bool]
) -> None:
    """Do *duty* for *topic* until it *has_arrived*, or wait for the process that does it."""
    worked = time.monotonic()
    try:
        while not has_arrived():
            error = _step(duty, topic, tick)
            if error is None:
                worked = time.monotonic()
                continue
            limit = WAIT_S if isinstance(error, LeaseHeldError) else GIVE_UP_S
            if time.monotonic() - worked > limit:
                raise error
            time.sleep(POLL_S)
    finally:
        duty.close()


def _step(duty: Duty, topic: str, tick: Callable[[], bool]) -> DeltamirrorError | None:
    """Do one *tick*; return why nothing moved, None where something did.

    Raises the error of a partition that waits for an operator.
    """
    try:
        if not duty.lease.is_held:
            duty.open()
        moved = tick()
    except StalePlanError as error:
        duty.close()  # what opens it again learns anew
        return error
    except DeltamirrorError as error:
        return error
    troubles = [error for at, error in duty.troubles.items() if at.topic == topic]
    for trouble in troubles:
        if not isinstance(trouble, RangeUnfinishedError):
            raise trouble
    if moved:
        return None
    return troubles[0] if troubles else NotCaughtUpError([f"nothing of {topic} moves"])
