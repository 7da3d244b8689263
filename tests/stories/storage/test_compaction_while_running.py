"""Maintenance of the stage during a running loop does not change which records arrive."""

import dataclasses
import json
import signal

import pytest
from confluent_kafka import KafkaException

from deltamirror.maintenance.maintain import maintain, maintain_cluster
from tests.support.brokers import Record, consume_all, create_topic, high_watermarks, produce
from tests.support.world import FLOW, until

pytestmark = [pytest.mark.kafka, pytest.mark.story]

PARTITIONS = 2
AT_ONCE = 20
TIMEOUT_S = 240.0
"""Seconds for the first wait. It includes Spark's start, over a minute on a busy machine."""


def write(bootstrap, topic, turn):
    first = turn * AT_ONCE
    records = (
        Record(b"%d" % n, b"x", partition=p)
        for n in range(first, first + AT_ONCE)
        for p in range(PARTITIONS)
    )
    produce(bootstrap, topic, records)


def arrived(here, topic):
    """Return the number of records on the target, 0 if the topic does not exist yet."""
    try:
        high_watermarks(here.target.bootstrap_servers, here.remote(topic))
    except (KeyError, KafkaException):
        return 0
    return len(here.arrived(topic))


def test_compaction_and_retention_of_the_stage_do_not_change_which_records_arrive(
    world, source, unique_topic
):
    create_topic(source.bootstrap_servers, unique_topic, PARTITIONS)
    here = world(unique_topic)
    run = here.start()
    joined = 0
    for turn in range(8):
        write(source.bootstrap_servers, unique_topic, turn)
        expected = (turn + 1) * AT_ONCE * PARTITIONS
        until(lambda: arrived(here, unique_topic) >= expected, "the records arrive", TIMEOUT_S)  # noqa: B023
        if turn % 4 == 3:
            joined += maintain_cluster(here.context, "us-east").joined
    refused = here.cli("maintain", "--format", "json")
    run.send_signal(signal.SIGTERM)
    run.wait(30)

    assert joined >= 8
    assert refused.returncode == 1
    assert json.loads(refused.stdout)["error"]["type"] == "LeaseHeldError"

    context = here.context
    context.config = dataclasses.replace(here.config, stage_retention_ms=0)
    (done,) = maintain(context)
    assert done.removed > 0
    assert context.lake.records("us-east").files() == []

    write(source.bootstrap_servers, unique_topic, 8)
    here.mirror()

    for partition in range(PARTITIONS):
        keys = [m.key() for m in here.arrived(unique_topic) if m.partition() == partition]
        assert keys == [b"%d" % n for n in range(9 * AT_ONCE)]
    found = json.loads(here.cli("verify", "--format", "json").stdout)
    assert [found[n] for n in ("lost", "duplicated", "reordered", "altered")] == [0, 0, 0, 0]

    # The rest of the stage can be replayed again, by the command with Spark's workers.
    again = here.answer("replay", "--flow", FLOW, "--topic", unique_topic)
    once_more = consume_all(here.target.bootstrap_servers, again["target_topic"])
    assert (again["state"], again["records"]) == ("done", AT_ONCE * PARTITIONS)
    for partition in range(PARTITIONS):
        keys = [m.key() for m in once_more if m.partition() == partition]
        assert keys == [b"%d" % n for n in range(8 * AT_ONCE, 9 * AT_ONCE)]
