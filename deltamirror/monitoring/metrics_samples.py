"""Collect the Prometheus samples of a scrape from the metrics state."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from deltamirror.monitoring.metrics_state import GroupCommit, LatencyStat, MetricsState
from pipeline.monitoring.health import STANDBY as ON_STANDBY
from pipeline.monitoring.health import check_health
from pipeline.monitoring.lag import StagedEnd, age_ms, consumer_lag, replication_lag
from pipeline.monitoring.sampled_stat import per_second
from schemas.config.flow import Flow
from schemas.kafka.partition import TopicPartition, Watermarks
from schemas.monitoring import metrics as m
from schemas.monitoring.flow_state import STATES, LoopState, PartitionLag
from schemas.monitoring.metrics import METRICS, Metric
from schemas.staging.frontier import base_id

_Family = CounterMetricFamily | GaugeMetricFamily
_Sample = tuple[Metric, tuple[str, ...], float]
"""Metric, label values in the order of its labels, value."""


def registry_of(metrics_state: MetricsState) -> CollectorRegistry:
    """Return the metrics of *metrics_state* and `process_*` of this process (not of Spark's)."""
    registry = CollectorRegistry(auto_describe=True)
    registry.register(MetricsCollector(metrics_state))
    ProcessCollector(registry=registry)
    return registry


def family_of(metric: Metric) -> _Family:
    """Return *metric* as a prometheus_client family without samples."""
    family = CounterMetricFamily if metric.name.endswith("_total") else GaugeMetricFamily
    return family(metric.name, metric.help, labels=metric.labels)


class MetricsCollector(Collector):
    """Collector that reads *metrics_state* at each scrape."""

    def __init__(self, metrics_state: MetricsState) -> None:
        self._metrics_state = metrics_state

    def describe(self) -> Iterable[_Family]:
        """Return every metric that can have samples."""
        return [family_of(metric) for metric in METRICS.values()]

    def collect(self) -> Iterable[_Family]:
        """Return every metric that has samples now."""
        families = {metric.name: family_of(metric) for metric in METRICS.values()}
        for metric, labels, value in _samples(self._metrics_state):
            families[metric.name].add_metric(labels, value)
        return [family for family in families.values() if family.samples]


def _samples(metrics_state: MetricsState) -> list[_Sample]:
    now_s, now_ms = time.monotonic(), int(time.time() * 1000)
    loops = list(metrics_state.loops.values())
    status = check_health(loops, now_s, metrics_state.timings.failure_timeout_s).status
    found: list[_Sample] = [
        (m.INFO, (version("deltamirror"),), 1),
        (m.STANDBY, (), status == ON_STANDBY),
    ]
    for loop in loops:
        found += _loop_samples(loop, now_s)
    with metrics_state.lock:
        for alias, records in metrics_state.staged_records.items():
            found.append((m.STAGED_RECORDS, (alias,), records))
            found.append((m.STAGED_BYTES, (alias,), metrics_state.staged_bytes[alias]))
        found += _traffic_samples(metrics_state, now_s)
        lags_by_flow, commits = dict(metrics_state.partition_lags), dict(metrics_state.commits)
    for flow in (config.flow for config in metrics_state.flows):
        watermarks = metrics_state.watermarks.get(flow.source, {})
        lags = lags_by_flow.get(flow, ())
        for lag in lags:
            found += _lag_samples(flow, lag, watermarks.get(lag.source.topic_partition), now_ms)
        paused = sum(lag.is_paused for lag in lags)
        found.append((m.PAUSED, (flow.source, flow.target), paused))
        found += _group_samples(flow, lags, watermarks, commits.get(flow, ()))
    return found


def _loop_samples(loop: LoopState, now_s: float) -> Iterator[_Sample]:
    place = (loop.loop, loop.source, loop.target)
    for state in STATES:
        yield m.STATE, (*place, state), state == loop.state
    yield m.TICKS, place, loop.ticks
    yield m.TICK_SECONDS, place, loop.ticks_s
    yield m.SILENT_SECONDS, place, now_s - loop.last_sign_at_s
    yield m.FAILURES, place, loop.failures
    if loop.error is not None and loop.error_at_ms is not None:
        yield m.LAST_ERROR, (*place, loop.error.kind), loop.error_at_ms / 1000
    for kind, count in loop.partition_errors.items():
        yield m.FAILING_PARTITIONS, (*place, kind), count


def _traffic_samples(metrics_state: MetricsState, now_s: float) -> Iterator[_Sample]:
    """Yield the samples of each target partition's records and of each group's checkpoints."""
    for (flow, target), traffic in metrics_state.traffic.items():
        place = _labels(flow, target)
        carried = traffic.carried.read(now_s)
        yield m.RECORD_COUNT, place, traffic.records
        yield m.RECORD_RATE, place, per_second(carried.count, now_s)
        yield m.BYTE_COUNT, place, traffic.value_bytes
        yield m.BYTE_RATE, place, per_second(carried.total, now_s)
        yield from _latency_samples(m.RECORD_AGE, place, traffic.ages, now_s)
        yield from _latency_samples(m.REPLICATION_LATENCY, place, traffic.latencies, now_s)
    for (flow, group, target), latency in metrics_state.latencies.items():
        place = (flow.source, flow.target, group, target.topic, str(target.partition))
        yield from _latency_samples(m.CHECKPOINT_LATENCY, place, latency, now_s)


def _latency_samples(
    metrics: Sequence[Metric], place: tuple[str, ...], latency: LatencyStat, now_s: float
) -> Iterator[_Sample]:
    """Yield the last value, and the minimum, maximum and mean of the recent values."""
    if latency.last_ms is not None:
        yield metrics[0], place, latency.last_ms
    spread = latency.recent.read(now_s)
    if spread.count:
        for metric, value in zip(metrics[1:], (spread.low, spread.high, spread.mean), strict=True):
            yield metric, place, value


def _lag_samples(
    flow: Flow, at: PartitionLag, marks: Watermarks | None, now_ms: int
) -> Iterator[_Sample]:
    place = _labels(flow, at.target)
    staged = StagedEnd(at.source, at.begin, at.staged, at.stable)
    lag = replication_lag(marks, staged, at.replayed)
    yield m.SOURCE_END, place, _source_end(at, marks)
    yield m.STAGED, place, at.staged
    yield m.REPLAYED, place, at.replayed
    yield m.LAG, place, lag
    if (age := age_ms(now_ms, at.oldest_ms, lag)) is not None:
        yield m.LAG_SECONDS, place, age / 1000


def _group_samples(
    flow: Flow,
    partition_lags: Sequence[PartitionLag],
    watermarks: Mapping[TopicPartition, Watermarks],
    commits: Sequence[GroupCommit],
) -> Iterator[_Sample]:
    """Yield the consumer lag of groups. Commits in an earlier incarnation are left out."""
    lag_by_partition = {lag.source.topic_partition: lag for lag in partition_lags}
    for commit in commits:
        at = lag_by_partition.get(commit.partition)
        if at is None or base_id(at.source.topic_id) != commit.topic_id:
            continue
        end = _source_end(at, watermarks.get(commit.partition))
        target = (at.target_topic, str(commit.partition.partition))
        place = (flow.source, flow.target, commit.group, *target)
        yield m.GROUP_LAG, place, consumer_lag(end, commit.committed)


def _source_end(at: PartitionLag, marks: Watermarks | None) -> int:
    """Return the source's last stable offset; progress may be ahead of the last one read."""
    return max(marks.stable if marks else at.stable, at.replayed)


def _labels(flow: Flow, target: TopicPartition) -> tuple[str, ...]:
    return flow.source, flow.target, target.topic, str(target.partition)
