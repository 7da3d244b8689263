"""Every value of a scrape, from what the loops told the board."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version

from deltamirror.backoff import GIVE_UP_S
from deltamirror.monitoring.metrics_state import Board, GroupCommit
from pipeline.monitoring.health import STANDBY as ON_STANDBY
from pipeline.monitoring.health import diagnose
from pipeline.monitoring.lag import Staged, age_ms, consumer_lag, replication_lag
from pipeline.monitoring.sampled_stat import Recent, per_second
from schemas.config.flow import Flow
from schemas.kafka.partition import TopicPartition, Watermarks
from schemas.monitoring import metrics as m
from schemas.monitoring.flow_state import STATES, LoopState, Standing
from schemas.monitoring.metrics import Metric, Sample
from schemas.staging.frontier import base_id


def samples(board: Board) -> list[Sample]:
    """Return every value that *board* stands for now."""
    now_s, now_ms = time.monotonic(), int(time.time() * 1000)
    loops = [watch.state for watch in board.watches()]
    status = diagnose(loops, now_s, GIVE_UP_S).status
    found = [
        Sample(m.INFO, (version("deltamirror"),), 1),
        Sample(m.STANDBY, (), status == ON_STANDBY),
    ]
    for loop in loops:
        found += _loop(loop, now_s)
    with board.lock:
        for alias, records in board.staged_records.items():
            found.append(Sample(m.STAGED_RECORDS, (alias,), records))
            found.append(Sample(m.STAGED_BYTES, (alias,), board.staged_bytes[alias]))
        found += _passages(board, now_s)
        found += _checkpoints(board, now_s)
        standings, commits = dict(board.standings), dict(board.commits)
    for flow in (config.flow for config in board.flows):
        seen = board.seen.get(flow.source, {})
        stand = standings.get(flow, ())
        for standing in stand:
            found += _standing(flow, standing, seen.get(standing.source.plain), now_ms)
        paused = sum(standing.is_paused for standing in stand)
        found.append(Sample(m.PAUSED, (flow.source, flow.target), paused))
        found += _groups(flow, stand, seen, commits.get(flow, ()))
    return found


def _loop(loop: LoopState, now_s: float) -> Iterator[Sample]:
    place = (loop.loop, loop.source, loop.target)
    for state in STATES:
        yield Sample(m.STATE, (*place, state), state == loop.state)
    yield Sample(m.TICKS, place, loop.ticks)
    yield Sample(m.TICK_SECONDS, place, loop.ticks_s)
    yield Sample(m.SINCE_SIGN, place, now_s - loop.sign_at_s)
    yield Sample(m.FAILURES, place, loop.failures)
    if loop.error is not None and loop.error_at_ms is not None:
        yield Sample(m.LAST_ERROR, (*place, loop.error.kind), loop.error_at_ms / 1000)
    for kind, count in loop.troubles.items():
        yield Sample(m.TROUBLES, (*place, kind), count)


def _passages(board: Board, now_s: float) -> Iterator[Sample]:
    for (flow, target), passage in board.passages.items():
        place = _place(flow, target)
        carried = passage.carried.read(now_s)
        yield Sample(m.RECORD_COUNT, place, passage.records)
        yield Sample(m.RECORD_RATE, place, per_second(carried.count, now_s))
        yield Sample(m.BYTE_COUNT, place, passage.value_bytes)
        yield Sample(m.BYTE_RATE, place, per_second(carried.total, now_s))
        yield from _spread(m.RECORD_AGE, place, passage.last_age_ms, passage.ages, now_s)
        yield from _spread(
            m.REPLICATION_LATENCY, place, passage.last_latency_ms, passage.latencies, now_s
        )


def _checkpoints(board: Board, now_s: float) -> Iterator[Sample]:
    for (flow, group, target), latency in board.latencies.items():
        place = (flow.source, flow.target, group, target.topic, str(target.partition))
        yield from _spread(m.CHECKPOINT_LATENCY, place, latency.last_ms, latency.recent, now_s)


def _spread(
    metrics: Sequence[Metric],
    place: tuple[str, ...],
    last: float | None,
    recent: Recent,
    now_s: float,
) -> Iterator[Sample]:
    """Yield the last value, the least, the greatest and the mean of what was measured."""
    if last is not None:
        yield Sample(metrics[0], place, last)
    spread = recent.read(now_s)
    if spread.count:
        for metric, value in zip(metrics[1:], (spread.low, spread.high, spread.mean), strict=True):
            yield Sample(metric, place, value)


def _standing(
    flow: Flow, standing: Standing, marks: Watermarks | None, now_ms: int
) -> Iterator[Sample]:
    place = _place(flow, standing.target)
    staged = Staged(standing.source, standing.begin, standing.staged, standing.stable)
    lag = replication_lag(marks, staged, standing.replayed)
    age = age_ms(now_ms, standing.oldest_ms, lag)
    end = marks.stable if marks else standing.stable
    yield Sample(m.SOURCE_END, place, max(end, standing.replayed))
    yield Sample(m.STAGED, place, standing.staged)
    yield Sample(m.REPLAYED, place, standing.replayed)
    yield Sample(m.LAG, place, lag)
    if age is not None:
        yield Sample(m.AGE, place, age / 1000)


def _groups(
    flow: Flow,
    standings: Sequence[Standing],
    seen: Mapping[TopicPartition, Watermarks],
    commits: Sequence[GroupCommit],
) -> Iterator[Sample]:
    """Yield how far groups are behind; commits in a topic's former life say nothing of now."""
    there = {standing.source.plain: standing for standing in standings}
    for commit in commits:
        standing = there.get(commit.partition)
        if standing is None or base_id(standing.source.topic_id) != commit.topic_id:
            continue
        marks = seen.get(commit.partition)
        end = max(marks.stable if marks else standing.stable, standing.replayed)
        target = (standing.target_topic, str(commit.partition.partition))
        place = (flow.source, flow.target, commit.group, *target)
        yield Sample(m.GROUP_LAG, place, consumer_lag(end, commit.committed))


def _place(flow: Flow, target: TopicPartition) -> tuple[str, ...]:
    return flow.source, flow.target, target.topic, str(target.partition)
