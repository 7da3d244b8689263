"""Change a target like other programs do, and read the effects."""

from __future__ import annotations

import re
import shutil
from contextlib import contextmanager
from functools import cache
from threading import Event, Thread

from confluent_kafka import TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from deltamirror.run.supervisor import Mirror
from tests.support.brokers import Record, committed_offsets, create_topic, produce
from tests.support.cli import answer, run
from tests.support.world import FLOW, until

GROUP = f"deltamirror.{FLOW}"
WAIT_S = 30


def write(here, topic, *values):
    produce(
        here.source.bootstrap_servers, topic, [Record(b"k", v, timestamp=1_000) for v in values]
    )


def write_foreign(here, remote, *values, **transaction):
    """Write records of another producer to the target; equal values are equal records."""
    records = [Record(b"k", v, timestamp=1_000) for v in values]
    produce(here.target.bootstrap_servers, remote, records, **transaction)


def arrived(here, topic):
    return [m.value() for m in here.arrived(topic)]


def admin(here):
    return _admin(here.target.bootstrap_servers)


@cache
def _admin(servers):
    return AdminClient({"bootstrap.servers": servers, "log_level": 0})


def assert_stops(here, *words):
    """Assert that a run ends with code 1, and that its output and `status` match *words*."""
    output = run("run", "--until-caught-up", "--config", str(here.path), code=1).output
    assert all(re.search(word, output) for word in words), output
    (error,) = partition_errors(here)
    assert all(re.search(word, error) for word in words), error


def partition_errors(here):
    """Return the errors of partitions that `status` shows."""
    (flow,) = answer("status", "--config", str(here.path))["flows"]
    return [each["error"] for each in flow["partitions"] if each["error"]]


def resume(here, topic):
    """Request that *topic* is replayed from the beginning of the stage."""
    run("resume", "--flow", FLOW, "--restart-topic", topic, "--config", str(here.path))


def delete_topic(here, remote):
    admin(here).delete_topics([remote])[remote].result(WAIT_S)
    until(lambda: remote not in admin(here).list_topics(timeout=WAIT_S).topics, "it is gone")


def recreate_topic(here, remote, **configs):
    delete_topic(here, remote)
    create_topic(here.target.bootstrap_servers, remote, **configs)


def delete_map(here):
    shutil.rmtree(here.context.lake.offset_map(here.config.flow(FLOW).flow).path)


def delete_progress(here):
    admin(here).delete_consumer_groups([GROUP])[GROUP].result(WAIT_S)


def delete_map_and_progress(here):
    delete_map(here)
    delete_progress(here)


def delete_records(here, remote, before):
    at = TopicPartition(remote, 0, before)
    admin(here).delete_records([at])[at].result(WAIT_S)


def progress(here, remote):
    return committed_offsets(here.target.bootstrap_servers, GROUP)[remote, 0]


def pairs(here, topic):
    """Return upstream and downstream offset of every record in the offset map."""
    table = here.context.lake.offset_map(here.config.flow(FLOW).flow)
    names = ["topic", "upstream_start", "downstream_start", "length"]
    rows = table.rows(names).sort_by("downstream_start").to_pylist()
    return [
        (row["upstream_start"] + i, row["downstream_start"] + i)
        for row in rows
        if row["topic"] == topic
        for i in range(row["length"])
    ]


def assert_exact(here, topic, *values):
    """Assert that the flow's records are on the target once, in order, and in the offset map."""
    shown = [(m.value(), m.offset()) for m in here.arrived(topic)]
    ours = dict(pairs(here, topic))
    placed = [value for value, offset in shown if offset in ours.values()]
    assert placed == list(values)
    assert len(ours) == len(values)


def set_config(here, remote, **configs):
    resource = ConfigResource(
        ResourceType.TOPIC,
        remote,
        incremental_configs=[
            ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for name, value in configs.items()
        ],
    )
    admin(here).incremental_alter_configs([resource])[resource].result(WAIT_S)


@contextmanager
def running(here):
    """Run the loops in a thread during the block."""
    stop = Event()
    thread = Thread(target=Mirror(here.config, stop=stop).run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(WAIT_S)
