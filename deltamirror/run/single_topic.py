"""Stage or replay a single topic up to its current end, for a Dagster materialization.

It takes the same ticks as the loops. If another process holds the lease, it waits for its work.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from deltamirror.context import MirrorContext
from deltamirror.replay.offset_map import OffsetMap
from deltamirror.replay.replayer import FlowReplayer
from deltamirror.run.catch_up import CatchUpTarget
from deltamirror.staging.segment_index import SegmentIndex, last_only
from deltamirror.staging.stager import SourceStager
from deltamirror.timings import Timings
from resources.spark.session import SparkWorkers
from schemas.config.config import FlowConfig
from schemas.errors.base import ConfigError, DeltamirrorError, NotCaughtUpError
from schemas.errors.lake import LeaseHeldError, StalePlanError
from schemas.errors.source import RangeUnfinishedError, TopicMissingError
from schemas.kafka.partition import TopicPartition, Watermarks

OTHER_PROCESS_TIMEOUT_S = 600.0
"""How long another process that holds the lease may take to reach the topic's end."""

POLL_INTERVAL_S = 0.3


def stage_topic(context: MirrorContext, alias: str, topic: str, workers: SparkWorkers) -> None:
    """Stage *topic* of source cluster *alias* up to its current last stable offsets.

    Raises TopicMissingError, UnreachableError, a partition's error, or LeaseHeldError if the
    process that holds the lease did not reach these offsets in time.
    """
    context.lake.ensure_exists()
    catch_up_target = CatchUpTarget(last_stable_offsets(context, alias, topic))
    segment_index = SegmentIndex(context.lake.segments(alias), last_only)

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
    """Replay *topic* of *flow* up to its current end in the stage.

    Raises ConfigError if the flow does not mirror the topic, NotCaughtUpError if a partition is
    paused, UnreachableError, a partition's error, or LeaseHeldError as `stage_topic` does.
    """
    if not flow.replicates(topic):
        raise ConfigError(f"flow {flow.flow} does not mirror {topic}: see its topics in the file")
    context.lake.ensure_exists()
    segment_index = SegmentIndex(context.lake.segments(flow.flow.source), last_only)
    segment_index.refresh()
    catch_up_target = {
        at: frontier
        for at, frontier in segment_index.frontiers.items()
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
        # Compare the end of the offset map, not the target's progress: the asset is the map.
        for at, frontier in catch_up_target.items():
            target = TopicPartition(remote, at.partition)
            end = offset_map.end(target, there.topic_id, [frontier.source.topic_id])
            if end is None or end.progress.next_offset < frontier.next_offset:
                return False
        return True

    _run_until_caught_up(
        context.timings, replayer, topic, lambda: bool(replayer.tick([topic]).moves), is_caught_up
    )


def last_stable_offsets(
    context: MirrorContext, alias: str, topic: str
) -> dict[TopicPartition, tuple[str, int]]:
    """Return topic id and LSO of each partition of *topic*. Raises TopicMissingError."""
    cluster = context.cluster(alias)
    cluster.probe()
    found = cluster.topics([topic]).get(topic)
    if found is None:
        raise TopicMissingError(topic, location=f"on {alias}")
    marks = cluster.watermarks([TopicPartition(topic, i) for i in range(found.partitions)])
    ends = {}
    for at, answer in marks.items():
        if not isinstance(answer, Watermarks):
            raise answer
        ends[at] = (found.topic_id, answer.stable)
    return ends


def _run_until_caught_up(
    timings: Timings,
    role: SourceStager | FlowReplayer,
    topic: str,
    tick: Callable[[], bool],
    is_caught_up: Callable[[], bool],
) -> None:
    """Tick *role* until *topic* *is_caught_up*, or wait for the process that holds the lease."""
    worked_at_s = time.monotonic()
    try:
        while not is_caught_up():
            error = _tick_once(role, topic, tick)
            if error is None:
                worked_at_s = time.monotonic()
                continue
            is_held = isinstance(error, LeaseHeldError)
            limit_s = OTHER_PROCESS_TIMEOUT_S if is_held else timings.failure_timeout_s
            if time.monotonic() - worked_at_s > limit_s:
                raise error
            time.sleep(POLL_INTERVAL_S)
    finally:
        role.close()


def _tick_once(
    role: SourceStager | FlowReplayer, topic: str, tick: Callable[[], bool]
) -> DeltamirrorError | None:
    """Run one *tick*; return None if records moved, else the reason why none did."""
    try:
        if not role.lease.is_held:
            role.open()
        moved = tick()
    except StalePlanError as error:
        role.close()  # the next tick opens it again and reads the current state
        return error
    except DeltamirrorError as error:
        return error
    partition_errors = [error for at, error in role.partition_errors.items() if at.topic == topic]
    for partition_error in partition_errors:
        if not isinstance(partition_error, RangeUnfinishedError):
            raise partition_error
    if moved:
        return None
    nothing = NotCaughtUpError([f"no record of {topic} was staged or replayed"])
    return next(iter(partition_errors), nothing)
