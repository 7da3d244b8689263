"""A scrape shows what the loops report, and no series of deleted topics or groups."""

import dataclasses
import json
import threading
import urllib.request
from urllib.error import HTTPError

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from deltamirror.control import PAUSE, ControlTable
from deltamirror.monitoring.metrics_samples import MetricsCollector, registry_of
from deltamirror.monitoring.metrics_server import health, serve_metrics
from deltamirror.monitoring.metrics_state import GroupCommit
from deltamirror.run.supervisor import Mirror
from resources.delta.lake import DeltaLake
from schemas.kafka.partition import SourcePartition, TopicPartition
from schemas.monitoring import metrics as m
from schemas.monitoring.flow_state import PartitionLag
from schemas.monitoring.stats import ValueStats
from tests.support.fake_cluster import RecordContent
from tests.support.loops import looping_context, running_loops
from tests.support.staged_lake import row, segment_of
from tests.support.world import until

ORDERS, USERS = TopicPartition("orders", 0), TopicPartition("users", 0)
LABELS = ("us-east", "eu-west", "us-east.orders", "0")
WAIT_S = 20.0


@pytest.fixture
def context(lake, monkeypatch):
    return looping_context(lake, monkeypatch, lag_interval_s=0.0)


@pytest.fixture
def run(context):
    stop = threading.Event()
    return Mirror(context.config, stop=stop)


def write(context, *values, partition=ORDERS):
    context.source.append(partition, *(RecordContent(value) for value in values))


def value(run, metric, *labels):
    """Return the metric's value for *labels*, or None."""
    named = dict(zip(metric.labels, labels, strict=True))
    return registry_of(run.metrics_state).get_sample_value(metric.name, named)


def comes(run, metric, labels, wanted):
    until(lambda: value(run, metric, *labels) == wanted, f"{metric.name} is {wanted}", WAIT_S)


def test_replayed_records_are_counted_with_bytes_age_and_latency(context, run):
    write(context, b"abc", None, b"de")
    with running_loops(run, run._signals.stop):
        comes(run, m.RECORD_COUNT, LABELS, 3)
        comes(run, m.STAGED_RECORDS, ("us-east",), 3)

        assert value(run, m.BYTE_COUNT, *LABELS) == 5
        assert value(run, m.RECORD_RATE, *LABELS) > 0
        for last, low, high, mean in (m.RECORD_AGE, m.REPLICATION_LATENCY):
            least, most = value(run, low, *LABELS), value(run, high, *LABELS)
            assert least <= value(run, mean, *LABELS) <= most
            assert least <= value(run, last, *LABELS) <= most


def test_metrics_show_lag_and_error_while_the_target_is_down(context, run):
    write(context, b"a")
    with running_loops(run, run._signals.stop):
        comes(run, m.LAG, LABELS, 0)
        context.target.is_down = True
        write(context, b"b", b"c")
        comes(run, m.LAG, LABELS, 2)

        loop = ("replay", "us-east", "eu-west")
        assert value(run, m.REPLAYED, *LABELS) == 1
        comes(run, m.STAGED, LABELS, 3)
        comes(run, m.STATE, (*loop, "failed"), 1)
        assert value(run, m.LAG_SECONDS, *LABELS) > 0
        assert value(run, m.STATE, *loop, "running") == 0
        assert value(run, m.LAST_ERROR, *loop, "UnreachableError") > 0
        assert value(run, m.FAILURES, *loop) >= 1

        context.target.is_down = False
        comes(run, m.LAG, LABELS, 0)
        assert value(run, m.LAG_SECONDS, *LABELS) == 0


def test_failing_partitions_are_counted_by_error_type(context, run):
    write(context, b"a")
    Mirror(context.config, until_caught_up=True).run()
    write(context, b"b", b"c")
    context.source.expire(ORDERS, 2)
    with running_loops(run, run._signals.stop):
        comes(run, m.FAILING_PARTITIONS, ("stage", "us-east", "", "RecordsExpiredError"), 1)


def test_a_paused_flow_is_shown_as_paused_and_not_as_failed(context, run):
    write(context, b"a")
    ControlTable(DeltaLake(context.config.lake).control).add_request(PAUSE, context.flow.flow.name)
    with running_loops(run, run._signals.stop):
        comes(run, m.STATE, ("replay", "us-east", "eu-west", "paused"), 1)

        comes(run, m.PAUSED, ("us-east", "eu-west"), 1)
        comes(run, m.LAG, LABELS, 1)
        assert health(run.metrics_state)[0] == 200


def test_the_series_of_a_deleted_topic_disappear(context, run):
    context.source.make("users")
    write(context, b"a")
    write(context, b"b", partition=USERS)
    users = ("us-east", "eu-west", "us-east.users", "0")
    with running_loops(run, run._signals.stop):
        comes(run, m.RECORD_COUNT, users, 1)
        comes(run, m.LAG, users, 0)

        context.source.drop("users")

        comes(run, m.LAG, users, None)
        comes(run, m.RECORD_COUNT, users, None)
        assert value(run, m.RECORD_COUNT, *LABELS) == 1


def test_series_of_a_partition_that_was_staged_during_a_lag_report_are_kept(context, run):
    flow, users = context.flow.flow, ("us-east", "eu-west", "us-east.users", "0")
    run.metrics_state.lag_measured(flow, [])
    source = SourcePartition("users", "life1", 0)

    run.metrics_state.staged(
        "us-east", [segment_of(source, [row(source, 0)], 1, 1)], [ValueStats(1, 0)]
    )
    run.metrics_state.lag_measured(flow, [])

    assert value(run, m.RECORD_AGE[0], *users) > 0


def test_consumer_lag_is_shown_for_the_current_incarnation_only(context, run):
    write(context, b"a", b"b", b"c")
    flow, topic_id = context.flow.flow, context.source.ids["orders"]
    with running_loops(run, run._signals.stop):
        comes(run, m.SOURCE_END, LABELS, 3)
        run.metrics_state.committed(
            flow,
            [GroupCommit("billing", ORDERS, topic_id, 1), GroupCommit("old", ORDERS, "former", 1)],
        )

        assert value(run, m.GROUP_LAG, "us-east", "eu-west", "billing", *LABELS[2:]) == 2
        assert value(run, m.GROUP_LAG, "us-east", "eu-west", "old", *LABELS[2:]) is None


def test_checkpoint_latency_is_shown_for_each_group_until_the_group_is_gone(context, run):
    write(context, b"a")
    flow, place = context.flow.flow, ("us-east", "eu-west", "billing", *LABELS[2:])
    with running_loops(run, run._signals.stop):
        comes(run, m.LAG, LABELS, 0)
        remote = TopicPartition("us-east.orders", 0)
        run.metrics_state.record_checkpoints(flow, [("billing", remote)], 10.0)
        run.metrics_state.record_checkpoints(flow, [("billing", remote)], 30.0)

        assert [value(run, each, *place) for each in m.CHECKPOINT_LATENCY] == [30, 10, 30, 20]
        run.metrics_state.committed(flow, [])
        assert value(run, m.CHECKPOINT_LATENCY[0], *place) is None


def test_healthz_returns_ok_and_the_state_of_each_loop(context, run):
    write(context, b"a")
    with running_loops(run, run._signals.stop):
        comes(run, m.LAG, LABELS, 0)

        with (
            serve_metrics(("127.0.0.1", 0), run.metrics_state),
            urllib.request.urlopen(
                f"{run.metrics_state.address}/healthz", timeout=WAIT_S
            ) as answer,
        ):
            kind, body = answer.headers["Content-Type"], json.load(answer)

    assert (kind, body["status"], body["sick"]) == ("application/json", "ok", [])
    assert {each["loop"]: each["state"] for each in body["loops"]} == {
        "stage us-east": "running",
        "replay us-east->eu-west": "running",
    }


def test_healthz_returns_503_and_names_a_loop_that_fails_for_too_long(context, run):
    run.metrics_state.timings = dataclasses.replace(context.timings, failure_timeout_s=0.05)
    context.target.is_down = True
    write(context, b"a")
    with running_loops(run, run._signals.stop):
        until(lambda: health(run.metrics_state)[0] == 503, "503", WAIT_S)
        with serve_metrics(("127.0.0.1", 0), run.metrics_state), pytest.raises(HTTPError) as answer:
            urllib.request.urlopen(f"{run.metrics_state.address}/healthz", timeout=WAIT_S)
        with answer.value as answered:
            status, body = answered.code, json.load(answered)

    assert status == 503
    assert body["status"] == "failing"
    assert [why.split(":")[0] for why in body["sick"]] == ["replay us-east->eu-west"]


def test_a_scrape_has_no_duplicate_samples_and_only_listed_metrics(context, run):
    write(context, b"a")
    with running_loops(run, run._signals.stop):
        comes(run, m.LAG, LABELS, 0)
        found = [
            each
            for family in MetricsCollector(run.metrics_state).collect()
            for each in family.samples
        ]

    assert {(each.name, *each.labels) for each in found} <= {
        (each.name, *each.labels) for each in m.METRICS.values()
    }
    assert len({(each.name, *each.labels.values()) for each in found}) == len(found)


def test_samples_have_labels_help_and_type(context, run):
    odd = 'a "quoted\\ topic'
    source = SourcePartition(odd, "life1", 0)
    run.metrics_state.lag_measured(
        context.flow.flow, [PartitionLag(source, odd, 0, 7, 7, 0, None, is_paused=False)]
    )

    text = generate_latest(registry_of(run.metrics_state)).decode()

    families = {family.name: family for family in text_string_to_metric_families(text)}
    lag, staged = families[m.LAG.name], families[m.STAGED_RECORDS.name.removesuffix("_total")]
    assert (lag.type, lag.documentation, staged.type) == ("gauge", m.LAG.help, "counter")
    (sample,) = lag.samples
    place = {"source": "us-east", "target": "eu-west", "topic": odd, "partition": "0"}
    assert (sample.labels, sample.value) == (place, 7)
    assert [(each.name, each.value) for each in staged.samples] == [(m.STAGED_RECORDS.name, 0)]
    assert "process_start_time_seconds" in families


def test_the_metrics_page_is_prometheus_text_and_can_be_filtered_by_name(run):
    accepted = {"Accept": "application/openmetrics-text; version=1.0.0, text/plain;q=0.5"}
    with serve_metrics(("127.0.0.1", 0), run.metrics_state):
        page = f"{run.metrics_state.address}/metrics"
        with urllib.request.urlopen(urllib.request.Request(page, headers=accepted)) as answer:
            kind, text = answer.headers["Content-Type"], answer.read().decode()
        with urllib.request.urlopen(f"{page}?name[]={m.STAGED_RECORDS.name}") as answer:
            named = answer.read().decode()

    assert kind == "text/plain; version=0.0.4; charset=utf-8"
    assert f"# TYPE {m.STAGED_RECORDS.name} counter\n" in text
    assert "process_start_time_seconds" in text
    (family,) = text_string_to_metric_families(named)
    assert [each.name for each in family.samples] == [m.STAGED_RECORDS.name]


def test_each_metric_has_samples_after_a_run_with_all_events(context, run):
    write(context, b"a")
    Mirror(context.config, until_caught_up=True).run()
    context.source.make("users")
    write(context, b"b", b"c", partition=ORDERS)
    context.source.expire(ORDERS, 2)
    write(context, b"a", partition=USERS)
    users, flow = TopicPartition("us-east.users", 0), context.flow.flow
    context.target.is_down = True
    with running_loops(run, run._signals.stop):
        comes(run, m.STATE, ("replay", "us-east", "eu-west", "failed"), 1)
        context.target.is_down = False
        comes(run, m.RECORD_COUNT, ("us-east", "eu-west", "us-east.users", "0"), 1)
        comes(run, m.STAGED_RECORDS, ("us-east",), 1)
        comes(run, m.FAILING_PARTITIONS, ("stage", "us-east", "", "RecordsExpiredError"), 1)
        run.metrics_state.committed(
            flow, [GroupCommit("billing", USERS, context.source.ids["users"], 0)]
        )
        run.metrics_state.record_checkpoints(flow, [("billing", users)], 10.0)

        text = generate_latest(registry_of(run.metrics_state)).decode()

    families = text_string_to_metric_families(text)
    seen = {sample.name for family in families for sample in family.samples}
    assert m.METRICS.keys() - seen == set()
