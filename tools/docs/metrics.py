"""Write docs/metrics.md: every metric of `deltamirror run`, from the code."""

from __future__ import annotations

from deltamirror.monitoring.metrics_samples import family_of
from deltamirror.timings import Timings
from pipeline.monitoring.health import LIVENESS_TIMEOUT_S
from schemas.config.flow_keys import METRICS_LISTEN
from schemas.monitoring.flow_state import STATES
from schemas.monitoring.metrics import METRICS
from tools.docs.configuration import markdown_table

LAG_S, FAILING_S = Timings().lag_interval_s, Timings().failure_timeout_s
PER_PARTITION = sum("partition" in m.labels and "group" not in m.labels for m in METRICS.values())

INTRODUCTION = f"""\
# Metrics

`deltamirror run` serves two pages over HTTP, by default at `{METRICS_LISTEN}` (the key
`deltamirror.metrics.listen`; an empty value serves none):

- `/metrics` for Prometheus;
- `/healthz`: 200 or 503, with the state of each loop as JSON.

Neither requires a login or contains a secret, but both name your topics and groups. So they are
served on the loopback interface by default. Each instance on a host needs a port of its own. With
port 0 the log and `deltamirror status --format json` (`metrics`) report the port. If the port is
taken, the process logs one warning and mirrors without the pages until you restart it with another
port. So a standby on the same host needs its own port; with a port that is taken it has no pages,
even after the active process has ended.

A scrape costs some 10 µs for each value; an active partition has {PER_PARTITION} values. Without
a scrape there is no cost. Offsets and lags are at most {LAG_S:.0f} s old. Counts begin with the
process; `process_start_time_seconds` shows restarts. The series of a partition end when the source
no longer has it and none of its records waits. In a process that does not stage that source
(another one does) they last as long as the process.

    scrape_configs:
      - job_name: deltamirror
        static_configs: [{{targets: ["{METRICS_LISTEN}"]}}]

`deploy/grafana/deltamirror.json` is a Grafana dashboard of these metrics: import it and choose
your Prometheus.

## Health

`status` is `ok`, `standby` (200 too: every flow is replayed by another process) or `failing` (503),
and `sick` names each loop that failed for more than {FAILING_S:.0f} s without a successful tick,
or gave no sign of life for {LIVENESS_TIMEOUT_S:.0f} s. The {FAILING_S:.0f} s begin with the first
failed tick, which is when its request timed out; in a trial, `failing` appeared 62 to 81 s after a
source was killed. A cluster that is down makes the status `failing`: use it to alert, and to find
out which instance is active. Do not use it as a liveness probe: it would restart a process that
only waits for that cluster.

## MirrorMaker 2's metrics

These are the names that MirrorMaker 2's JMX metrics have in Prometheus with the usual lower-case
rules of the JMX exporter (Strimzi's), so existing dashboards work. `topic` is the remote topic. If
your exporter's rules give other names (`kafka_connect_mirror_source_connector_*`), rename them in
`metric_relabel_configs`.

"""

DIFFERENCES = """
Differences from MirrorMaker 2, which measures record by record:

- A record is counted when its transaction is committed, not when it is acknowledged.
- `record_age_ms` is measured when the segment of a record is committed to the lake, from all
  timestamps of the segment; MirrorMaker 2 measures it when the record is polled.
- `replication_latency_ms` is measured at the end of a record's tick, after the commits of the
  records and of the offset map. Both begin at the record's own timestamp, so a backlog shows its
  age, not the time of copying; a timestamp in the future gives a number below 0.
- The value without `_min`, `_max` or `_avg` is that of the last record of the last tick.
- Records without a timestamp have neither age nor latency.
- Series appear with a partition's first record, not with its topic.
- `checkpoint_latency_ms` is measured for a round of checkpoints and reported for each one of it.
  MirrorMaker 2 mixes the values of all groups; here each group has its own.

## deltamirror's own metrics

`loop` is `stage` (of `source`; `target` is empty) or `replay`. """

STATES_TEXT = "`state` is one of " + ", ".join(f"`{state}`" for state in STATES) + ".\n\n"


def metrics_page() -> str:
    """Return docs/metrics.md without the notice at its top."""
    mm2, own = _metrics_table("kafka_connect_mirror_"), _metrics_table("deltamirror_")
    return INTRODUCTION + mm2 + DIFFERENCES + STATES_TEXT + own


def _metrics_table(prefix: str) -> str:
    rows = (
        (f"`{name}`", family_of(metric).type, ", ".join(metric.labels) or "-", metric.help)
        for name, metric in METRICS.items()
        if name.startswith(prefix)
    )
    return markdown_table(("metric", "type", "labels", "meaning"), rows)
