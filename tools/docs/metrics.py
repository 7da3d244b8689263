"""The page docs/metrics.md: every metric of `deltamirror run`, from the code."""

from __future__ import annotations

from collections.abc import Iterable

from deltamirror.monitoring.metrics_samples import family_of
from deltamirror.timings import Timings
from pipeline.monitoring.health import LIVENESS_TIMEOUT_S
from schemas.config.flow_keys import METRICS_LISTEN
from schemas.monitoring.flow_state import STATES
from schemas.monitoring.metrics import DELTAMIRROR_METRICS, MM2, Metric

LAG_S, FAILING_S = Timings().lag_interval_s, Timings().failure_timeout_s
PER_PARTITION = sum(
    "partition" in m.labels and "group" not in m.labels for m in (*MM2, *DELTAMIRROR_METRICS)
)

INTRODUCTION = f"""\
# Metrics

`deltamirror run` serves two pages over HTTP, by default at `{METRICS_LISTEN}` (the key
`deltamirror.metrics.listen`; empty: nowhere):

- `/metrics` for Prometheus;
- `/healthz`: 200 or 503, with how each loop is as JSON.

Neither asks for a login or shows a secret, but both name your topics and groups: they are served on
the loopback interface unless you say otherwise. Each instance on a host needs a port of its own.
With port 0 the log and `deltamirror status --format json` (`metrics`) say which one it is. If the
port is taken, the log says so once, and that process mirrors without the pages until you restart it
with another port. So a standby on the same host needs its own port; with a port that is taken it
has no pages, also after the active process is gone.

A scrape costs some 10 µs for each value, of which a partition that moves has {PER_PARTITION}, and
nothing while nobody scrapes. Offsets and lags are at most {LAG_S:.0f} s old. Counts begin
with the process; `process_start_time_seconds` tells of restarts. Series of a partition end when the
source no longer has it and nothing of it waits; in a process that does not stage that source
(another one does) they last as long as the process.

    scrape_configs:
      - job_name: deltamirror
        static_configs: [{{targets: ["{METRICS_LISTEN}"]}}]

`deploy/grafana/deltamirror.json` is a Grafana dashboard of them: import it and choose your
Prometheus.

## Health

`status` is `ok`, `standby` (200 too: every flow is replayed by another process) or `failing` (503),
and `sick` names each loop that failed for more than {FAILING_S:.0f} s without a tick that
worked, or gave no sign of life for {LIVENESS_TIMEOUT_S:.0f} s. A cluster that is down makes it
`failing`: use it to alert, and to tell which instance is active. As a liveness probe it would
restart a process that is only waiting for that cluster.

## MirrorMaker 2's

The names that MirrorMaker 2's JMX metrics have in Prometheus with the usual lower-case rules of the
JMX exporter (Strimzi's), so dashboards move over as they are. `topic` is the remote topic. Where an
exporter's rules gave other names (`kafka_connect_mirror_source_connector_*`), rename them in
`metric_relabel_configs`.

"""

DIFFERENCES = """
What differs from MirrorMaker 2, whose numbers are taken record by record:

- A record is counted when its transaction is committed, not when it is acknowledged.
- `record_age_ms` is taken when the segment that holds a record was committed to the lake, from all
  of the segment's timestamps; MirrorMaker 2 takes it when the record was polled.
- `replication_latency_ms` is taken when the tick that carried a record is over: the records' and
  the offset map's commit included. Both begin at the record's own timestamp, so a backlog shows its
  age, not the time that copying took; a timestamp in the future gives a number below 0.
- The value without `_min`, `_max` or `_avg` is that of the last record of the last tick.
- Records without a timestamp have neither age nor latency.
- Series appear with a partition's first record, not with its topic.
- `checkpoint_latency_ms` is measured for a round of checkpoints and shown for each that was written
  in it. MirrorMaker 2 mixes the values of all groups; here each group has its own.

## Our own

`loop` is `stage` (of `source`; `target` is empty) or `replay`. """

STATES_TEXT = "`state` is one of " + ", ".join(f"`{state}`" for state in STATES) + ".\n\n"


def metrics_page() -> str:
    """Return docs/metrics.md without the notice at its top."""
    return (
        INTRODUCTION
        + _metrics_table(MM2)
        + DIFFERENCES
        + STATES_TEXT
        + _metrics_table(DELTAMIRROR_METRICS)
    )


def _metrics_table(metrics: Iterable[Metric]) -> str:
    cells = [("metric", "type", "labels", "what it is"), ("---", "---", "---", "---")]
    cells += [
        (f"`{metric.name}`", family_of(metric).type, ", ".join(metric.labels) or "-", metric.help)
        for metric in metrics
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in cells)
