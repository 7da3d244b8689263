"""Every metric of `deltamirror run`: name, labels and description.

MirrorMaker 2's metrics have the names that its JMX metrics get in Prometheus with the lower-case
rules of Strimzi's dashboards: `kafka.connect.mirror:type=MirrorSourceConnector` `record-count` is
`kafka_connect_mirror_mirrorsourceconnector_record_count`. They are gauges there and here. The other
metrics follow Prometheus' conventions: `deltamirror_`, a unit, `_total` for counters.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric: its full name, the names of its labels in order, its description.

    A name that ends with `_total` is a counter's; every other metric is a gauge.
    """

    name: str
    labels: tuple[str, ...]
    help: str


SOURCE_CONNECTOR = "kafka_connect_mirror_mirrorsourceconnector_"
CHECKPOINT_CONNECTOR = "kafka_connect_mirror_mirrorcheckpointconnector_"

PARTITION = ("source", "target", "topic", "partition")
GROUP = ("source", "target", "group", "topic", "partition")
LOOP = ("loop", "source", "target")

METRICS: dict[str, Metric] = {}
"""Every metric by its name, in the order of their declaration."""


def _metric(name: str, labels: tuple[str, ...], meaning: str) -> Metric:
    return METRICS.setdefault(name, Metric(name, labels, meaning))


def _stat_metrics(name: str, labels: tuple[str, ...], what: str) -> tuple[Metric, ...]:
    """Return the four metrics that MirrorMaker 2 has for a measured time."""
    recent = " of the last 30 to 60 s; left out if there were none"
    return (
        _metric(name, labels, f"ms {what}: the last one."),
        _metric(f"{name}_min", labels, f"ms {what}: the minimum{recent}."),
        _metric(f"{name}_max", labels, f"ms {what}: the maximum{recent}."),
        _metric(f"{name}_avg", labels, f"ms {what}: the mean{recent}."),
    )


# fmt: off
RECORD_COUNT = _metric(SOURCE_CONNECTOR + "record_count", PARTITION,
    "Records committed on the target since the start.")
RECORD_RATE = _metric(SOURCE_CONNECTOR + "record_rate", PARTITION,
    "Records committed on the target per second, over the last 30 to 60 s.")
BYTE_COUNT = _metric(SOURCE_CONNECTOR + "byte_count", PARTITION,
    "Bytes of the values of these records, without keys and headers, since the start.")
BYTE_RATE = _metric(SOURCE_CONNECTOR + "byte_rate", PARTITION,
    "Bytes of values per second, over the last 30 to 60 s.")
RECORD_AGE = _stat_metrics(SOURCE_CONNECTOR + "record_age_ms", PARTITION,
    "from a record's timestamp to its staging")
REPLICATION_LATENCY = _stat_metrics(SOURCE_CONNECTOR + "replication_latency_ms", PARTITION,
    "from a record's timestamp to the commit of its transaction and its offset map")
CHECKPOINT_LATENCY = _stat_metrics(CHECKPOINT_CONNECTOR + "checkpoint_latency_ms", GROUP,
    "from the start of a round of checkpoints to the last acknowledgement")

SOURCE_END = _metric("deltamirror_source_end_offset", PARTITION,
    "Last known last stable offset of the source: the end for a read_committed reader.")
STAGED = _metric("deltamirror_staged_offset", PARTITION, "Next offset of the source to stage.")
REPLAYED = _metric("deltamirror_replayed_offset", PARTITION, "Next offset of the source to replay.")
LAG = _metric("deltamirror_lag_records", PARTITION,
    "Offsets of the source that are not on the target yet.")
LAG_SECONDS = _metric("deltamirror_lag_seconds", PARTITION,
    "Age of the oldest staged record that waits for replay; 0 if the lag is 0, left out if "
    "records wait only on the source.")
PAUSED = _metric("deltamirror_paused_partitions", ("source", "target"),
    "Partitions that an operator paused.")
GROUP_LAG = _metric("deltamirror_group_lag_records", GROUP,
    "Offsets of the source that a group had not read when its commits were last seen.")
STAGED_RECORDS = _metric("deltamirror_staged_records_total", ("source",),
    "Records staged since the start.")
STAGED_BYTES = _metric("deltamirror_staged_bytes_total", ("source",),
    "Bytes of keys, values and headers of the staged records.")
STATE = _metric("deltamirror_loop_state", (*LOOP, "state"),
    "1 for the current state of the loop, 0 for the others.")
TICKS = _metric("deltamirror_loop_ticks_total", LOOP, "Ticks that ended.")
TICK_SECONDS = _metric("deltamirror_loop_tick_seconds_total", LOOP,
    "Seconds of all ticks that ended.")
SILENT_SECONDS = _metric("deltamirror_loop_silent_seconds", LOOP,
    "Seconds since the loop last reported anything.")
FAILURES = _metric("deltamirror_loop_failures_total", LOOP, "Ticks that failed and were retried.")
LAST_ERROR = _metric("deltamirror_loop_last_error_timestamp_seconds", (*LOOP, "type"),
    "Time of the loop's last failure (s since 1970), by type of error; left out before the first.")
FAILING_PARTITIONS = _metric("deltamirror_troubled_partitions", (*LOOP, "type"),
    "Partitions that are excluded because of an error, by type of error.")
STANDBY = _metric("deltamirror_standby", (),
    "1 while every replay waits for another process, else 0.")
INFO = _metric("deltamirror_info", ("version",), "1, with the running version.")
# fmt: on
