"""Maintenance of the stage during a running loop does not change which records arrive."""

import dataclasses
import json
import signal
import threading
import time
from contextlib import contextmanager

import pytest
from confluent_kafka import KafkaException

from deltamirror.maintenance.maintain import compact, maintain, maintain_cluster
from resources.delta.table_maintenance import Vacuum
from schemas.errors.lake import StalePlanError
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


RETENTION_S = 1.0


@contextmanager
def everything_is_compacted(here, topic):
    """Write to the source, join all files, and delete replaced ones after RETENTION_S."""
    records, done, counts = here.context.lake.records("us-east"), threading.Event(), []
    vacuum = Vacuum(records)

    def maintain_all():
        turn = 0
        while not done.wait(0.05):
            write(here.source.bootstrap_servers, topic, turn := turn + 1)
            try:
                joined = compact(records, min_sequences=2)
            except StalePlanError:  # the run compacts, too
                continue
            counts.append((joined[0] if joined else 0, vacuum.run(RETENTION_S)))

    thread = threading.Thread(target=maintain_all)
    thread.start()
    try:
        yield counts
    finally:
        done.set()
        thread.join()


def test_verify_and_replay_are_exact_while_all_files_they_read_are_compacted_and_deleted(
    world, source, unique_topic
):
    create_topic(source.bootstrap_servers, unique_topic, PARTITIONS)
    here = world(unique_topic)
    run = here.start()
    write(source.bootstrap_servers, unique_topic, 0)
    until(lambda: arrived(here, unique_topic) >= AT_ONCE * PARTITIONS, "they arrive", TIMEOUT_S)

    with everything_is_compacted(here, unique_topic) as counts:
        until(lambda: sum(deleted for _, deleted in counts) > 10, "files are deleted", TIMEOUT_S)
        at, give_up_at = len(counts), time.monotonic() + 3 * RETENTION_S
        while time.monotonic() < give_up_at:
            found = json.loads(here.cli("verify", "--format", "json").stdout)
            again = here.answer("replay", "--flow", FLOW, "--topic", unique_topic)
            copied = consume_all(here.target.bootstrap_servers, again["target_topic"])

            assert [found[n] for n in ("lost", "duplicated", "reordered", "altered")] == [0] * 4
            assert found["records"] > AT_ONCE * PARTITIONS
            assert again["state"] == "done"
            assert again["records"] == len(copied) > AT_ONCE * PARTITIONS
    run.send_signal(signal.SIGTERM)
    run.wait(30)

    assert sum(deleted for _, deleted in counts) > sum(deleted for _, deleted in counts[:at])
