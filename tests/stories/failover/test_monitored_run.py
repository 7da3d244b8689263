"""A run that Prometheus scrapes, and a standby that takes over, on real brokers."""

from __future__ import annotations

import json
import signal
import threading
import time
import urllib.request
from contextlib import contextmanager
from itertools import count

import pytest
from confluent_kafka import KafkaException, Producer
from prometheus_client.parser import text_string_to_metric_families

from schemas.monitoring import metrics as m
from tests.support.brokers import (
    Record,
    commit_group,
    committed_offsets,
    create_topic,
    high_watermarks,
    produce,
)
from tests.support.world import FLOW, kill, until

pytestmark = [pytest.mark.kafka, pytest.mark.story]

ANY_PORT = {"deltamirror.metrics.listen": "127.0.0.1:0"}
TAKEOVER_S = 15.0
"""Seconds in which a standby must replay after `kill -9` of the holder, as documented."""


def address(here):
    """Return the metrics address of the run that replays the flow, or None if it has none yet."""
    status = here.context.status_file.read(f"replay {FLOW}")
    return status and status["metrics"]


def scrape(url):
    """Return all values of a scrape by name and labels."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        return {
            (sample.name, *sample.labels.values()): sample.value
            for family in families
            for sample in family.samples
        }


def labels(**named):
    """Return label values in Prometheus' order: sorted by the labels' names."""
    return tuple(named[name] for name in sorted(named))


@contextmanager
def written(here, topic):
    """Write a record every 5 ms during the block; yield the list of acknowledged numbers."""
    stop, numbers = threading.Event(), []
    producer = Producer({"bootstrap.servers": here.source.bootstrap_servers})

    def write():
        for number in count():
            if stop.wait(0.005):
                return
            producer.produce(topic, b"v", b"%d" % number)
            assert producer.flush(30) == 0
            numbers.append(number)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield numbers
    finally:
        stop.set()
        thread.join(60)


def arrived(here, topic):
    """Return the end of the target's log, 0 if the topic does not exist or has no leader yet."""
    try:
        return sum(high_watermarks(here.target.bootstrap_servers, here.remote(topic)).values())
    except (KeyError, KafkaException):
        return 0


def replayed(here, topic):
    """Return the flow's progress: the next source offset to replay."""
    found = committed_offsets(here.target.bootstrap_servers, f"deltamirror.{FLOW}")
    return found.get((here.remote(topic), 0), 0)


def test_prometheus_scrapes_the_replayed_records_and_healthz_reports_healthy(
    world, source, unique_topic, names
):
    group = names("billing")
    create_topic(source.bootstrap_servers, unique_topic)
    old = int(time.time() * 1000) - 60_000
    records = [Record(b"k", b"12345", timestamp=old) for _ in range(1_000)]
    produce(source.bootstrap_servers, unique_topic, records)
    commit_group(source.bootstrap_servers, group, {(unique_topic, 0): 400})
    extra = {"groups": group, "emit.checkpoints.interval.seconds": "1"}
    here = world(unique_topic, **ANY_PORT, **extra)
    here.start()
    until(lambda: address(here) is not None, "the run has a metrics address")
    url = address(here)
    flow = {"source": "us-east", "target": "eu-west"}
    partition = labels(**flow, topic=here.remote(unique_topic), partition="0")
    grouped = labels(**flow, topic=here.remote(unique_topic), partition="0", group=group)

    until(lambda: scrape(url).get((m.RECORD_COUNT.name, *partition)) == 1_000, "1,000 are counted")
    until(lambda: scrape(url).get((m.LAG.name, *partition)) == 0, "the lag is 0")
    checkpoint = (m.CHECKPOINT_LATENCY[0].name, *grouped)
    until(lambda: checkpoint in scrape(url), "the group's checkpoint is written")

    seen = scrape(url)
    assert seen[(m.BYTE_COUNT.name, *partition)] == 5_000
    assert seen[(m.SOURCE_END.name, *partition)] == seen[(m.REPLAYED.name, *partition)] == 1_000
    for metrics in (m.RECORD_AGE, m.REPLICATION_LATENCY):
        last, low, high, mean = (seen[(metric.name, *partition)] for metric in metrics)
        assert 60_000 <= low <= mean <= high
        assert low <= last <= high
    assert seen[(m.GROUP_LAG.name, *grouped)] == 600
    with urllib.request.urlopen(f"{url}/healthz", timeout=10) as answer:
        assert json.load(answer)["status"] == "ok"
    (shown,) = here.answer("status")["flows"]
    assert shown["metrics"] == url
    assert f"{url}/metrics" in here.log()


@pytest.mark.timeout(300)
def test_a_standby_takes_over_within_15_s_of_a_kill_without_loss_or_duplicates(
    world, source, unique_topic
):
    create_topic(source.bootstrap_servers, unique_topic)
    here = world(unique_topic)
    with written(here, unique_topic) as numbers:
        holder = here.start()
        until(lambda: arrived(here, unique_topic) > 0, "the holder mirrors")
        standby = here.start("--standby")
        until(lambda: "standby: " in here.log(), "the standby waits")

        kill(holder)
        killed_at, wanted = time.monotonic(), len(numbers) + 1
        until(lambda: replayed(here, unique_topic) >= wanted, "the standby replays", TAKEOVER_S)
        print(f"taken over after {time.monotonic() - killed_at:.1f} s")  # noqa: T201 - for people

        assert standby.poll() is None, here.log()
    standby.send_signal(signal.SIGTERM)
    assert standby.wait(20) == 0, here.log()
    here.mirror()
    assert [m.key() for m in here.arrived(unique_topic)] == [b"%d" % n for n in numbers]
    compared = here.answer("verify")
    kinds = ("lost", "duplicated", "reordered", "altered")
    assert [compared[kind] for kind in kinds] == [0, 0, 0, 0]
    assert compared["records"] == len(numbers)
