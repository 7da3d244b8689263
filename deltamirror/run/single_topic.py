"""One topic brought to where it shall be, by the steps that the loops take.

A materialization asks for this: it ends, and where another process does the duty it waits for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Protocol

from deltamirror.context import MirrorContext
from deltamirror.replay.offset_map import OffsetMap
from deltamirror.replay.replayer import FlowReplayer
from deltamirror.run.catch_up import CatchUpTarget
from deltamirror.staging.segment_index import SegmentIndex
from deltamirror.staging.stager import SourceStager
from deltamirror.timings import Timings
from resources.coordination.lease import Lease
from resources.spark.session import SparkWorkers
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

OTHER_PROCESS_TIMEOUT_S = 600.0
"""How long another process may take to bring the topic there."""

POLL_INTERVAL_S = 0.3


class LeasedRole(Protocol):
    """What staging and replaying have in common."""

    lease: Lease

    @property
    def partition_errors(self) -> Mapping[TopicPartition, PartitionError]:
        """Return the partitions that cannot go on, with why."""

    def open(self) -> None:
        """Take the lease. Raises LeaseHeldError where another process has it."""

    def close(self) -> None:
        """Give the lease back."""


def stage_topic(context: MirrorContext, alias: str, topic: str, workers: SparkWorkers) -> None:
    """Stage *topic* of source cluster *alias* up to the last stable offsets that it has now.

    Raises TopicMissingError, the error of a partition that cannot be staged, LeaseHeldError where
    the process that stages did not get there, UnreachableError.
    """
    context.lake.ensure_exists()
    catch_up_target = CatchUpTarget(last_stable_offsets(context, alias, topic))
    segment_index = SegmentIndex(context.lake.segments(alias))

    def is_caught_up() -> bool:
        segment_index.refresh()
        return catch_up_target.is_staged(segment_index, ())

    staging = SourceStager(context, alias, workers)
    _run_until_caught_up(
        context.timings, staging, topic, lambda: bool(staging.tick([topic]).segments), is_caught_up
    )


def materialize_topic(
    context: MirrorContext, flow: FlowConfig, topic: str, workers: SparkWorkers
) -> None:
    """Replay *topic* of *flow* to the end of what is staged now.

    Raises ConfigError where the flow does not mirror the topic, the error of a partition that
    cannot go on, LeaseHeldError where the process that replays did not get there,
    UnreachableError.
    """
    if not flow.replicates(topic):
        raise ConfigError(f"flow {flow.flow} does not mirror {topic}: see its topics in the file")
    context.lake.ensure_exists()
    segment_index = SegmentIndex(context.lake.segments(flow.flow.source))
    segment_index.refresh()
    catch_up_target = {
        at: frontier
        for at, frontier in segment_index.chains.frontiers.items()
        if at.topic == topic and frontier.next_offset > 0
    }
    replayer = FlowReplayer(context, flow, workers)
    table = context.lake.offset_map(flow.flow)
    offset_map = OffsetMap(table, run_id="")

    def is_caught_up() -> bool:
        paused = sorted(at for at in replayer.paused if at.topic == topic)
        if paused:
            raise NotCaughtUpError([f"{at} is paused" for at in paused])
        remote = flow.remote_topic(topic)
        there = context.cluster(flow.flow.target).topics([remote]).get(remote)
        if there is None:
            return not catch_up_target
        table.refresh()
        # The map's mark, not the target's progress: the map is what this brings about.
        ends = (
            (
                offset_map.end(
                    _remote_partition(remote, at), there.topic_id, [frontier.source.topic_id]
                ),
                frontier,
            )
            for at, frontier in catch_up_target.items()
        )
        return all(
            end is not None and end.progress.next_offset >= frontier.next_offset
            for end, frontier in ends
        )

    _run_until_caught_up(
        context.timings, replayer, topic, lambda: bool(replayer.tick([topic]).moves), is_caught_up
    )


def last_stable_offsets(
    context: MirrorContext, alias: str, topic: str
) -> dict[TopicPartition, tuple[str, int]]:
    """Return topic id and last stable offset of each partition of *topic*.

    Raises TopicMissingError.
    """
    cluster = context.cluster(alias)
    cluster.probe()
    found = cluster.topics([topic]).get(topic)
    if found is None:
        raise TopicMissingError(topic, location=f"on {alias}")
    marks = cluster.watermarks([TopicPartition(topic, i) for i in range(found.partitions)])
    for answer in marks.values():
        if not isinstance(answer, Watermarks):
            raise answer
    return {at: (found.topic_id, a.stable) for at, a in marks.items() if isinstance(a, Watermarks)}


def _remote_partition(remote: str, partition: TopicPartition) -> TopicPartition:
    return TopicPartition(remote, partition.partition)


def _run_until_caught_up(
    timings: Timings,
    role: LeasedRole,
    topic: str,
    tick: Callable[[], bool],
    is_caught_up: Callable[[], bool],
) -> None:
    """Do *role* for *topic* until it *is_caught_up*, or wait for the process that does it."""
    worked = time.monotonic()
    try:
        while not is_caught_up():
            error = _tick_once(role, topic, tick)
            if error is None:
                worked = time.monotonic()
                continue
            limit = (
                OTHER_PROCESS_TIMEOUT_S
                if isinstance(error, LeaseHeldError)
                else timings.failure_timeout_s
            )
            if time.monotonic() - worked > limit:
                raise error
            time.sleep(POLL_INTERVAL_S)
    finally:
        role.close()


def _tick_once(role: LeasedRole, topic: str, tick: Callable[[], bool]) -> DeltamirrorError | None:
    """Do one *tick*; return why nothing moved, None where something did.

    Raises the error of a partition that waits for an operator.
    """
    try:
        if not role.lease.is_held:
            role.open()
        moved = tick()
    except StalePlanError as error:
        role.close()  # what opens it again learns anew
        return error
    except DeltamirrorError as error:
        return error
    partition_errors = [error for at, error in role.partition_errors.items() if at.topic == topic]
    for partition_error in partition_errors:
        if not isinstance(partition_error, RangeUnfinishedError):
            raise partition_error
    if moved:
        return None
    return (
        partition_errors[0] if partition_errors else NotCaughtUpError([f"nothing of {topic} moves"])
    )
