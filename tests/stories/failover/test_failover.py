"""A group reads on the source, the source is abandoned, the group resumes on the target.

The test uses only the configuration file, the commands, and ordinary consumers.
"""

import json
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException

from tests.support.brokers import (
    ANSWER_SECONDS,
    Record,
    commit_group,
    create_topic,
    high_watermarks,
    produce,
    run_cli,
)

pytestmark = [pytest.mark.kafka, pytest.mark.story]

PARTITIONS = 3
FLOW = "us-east->eu-west"


class Mirrored(NamedTuple):
    """A configuration, its clusters, a topic, and the values that a group read before the run."""

    file: Path
    source: str
    target: str
    topic: str
    group: str
    before: list[str]


@pytest.fixture(scope="module")
def here(tmp_path_factory, clusters):
    """A finished run, after a group has read a part of the topic."""
    source, target = (broker.start().bootstrap_servers for broker in clusters)
    mark = uuid.uuid4().hex[:8]
    topic, group = f"orders-{mark}", f"billing-{mark}"
    fill(source, topic)
    path = tmp_path_factory.mktemp("failover") / "mm2.properties"
    path.write_text(
        f"""
        clusters = us-east, eu-west
        us-east.bootstrap.servers = {source}
        eu-west.bootstrap.servers = {target}
        {FLOW}.enabled = true
        {FLOW}.topics = {topic}
        {FLOW}.groups = {group}
        replication.factor = 1
        emit.heartbeats.enabled = false
        """
    )
    before = consume(source, group, topic, at_most=47)
    command_json(path, "run", "--until-caught-up")
    return Mirrored(path, source, target, topic, group, before)


def fill(source, topic):
    """Write unique values p-n: without transactions, in committed and in aborted ones."""
    create_topic(source, topic, partitions=PARTITIONS)
    everywhere = range(PARTITIONS)
    aborted = [Record(b"k", b"aborted", partition=part) for part in everywhere for _ in range(3)]
    for chunk in range(4):
        records = [
            Record(b"k", f"{part}-{chunk * 10 + n}".encode(), partition=part)
            for part in everywhere
            for n in range(10)
        ]
        app = f"{topic}-app"
        produce(source, topic, records, transactional_id=app if chunk % 2 else None)
        produce(source, topic, aborted, transactional_id=app, commit=False)


def consume(bootstrap, group, topic, at_most=None):
    """Read as a member of *group* to the end or *at_most* values; commit and return them."""
    ends = high_watermarks(bootstrap, topic)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([topic])
    values = []
    give_up_at = time.monotonic() + ANSWER_SECONDS
    try:
        while ends and len(values) != at_most:
            assert time.monotonic() < give_up_at, f"{len(values)} values, {ends} not reached"
            message = consumer.poll(0.2)
            if message is None:
                continue
            if message.error() is None:
                values.append(message.value().decode())
                consumer.commit(message, asynchronous=False)
            elif message.error().code() != KafkaError._PARTITION_EOF:
                raise KafkaException(message.error())
            elif message.offset() >= ends[message.partition()]:
                del ends[message.partition()]
    finally:
        consumer.close()
    return values


def command_json(file, *arguments):
    answer = run_cli(*arguments, "--config", file, "--format", "json")
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return json.loads(answer.stdout)


def test_a_group_that_fails_over_reads_each_record_once(here):
    answer = command_json(here.file, "translate", "--flow", FLOW, "--group", here.group)
    resumes = {
        (at["target_topic"], at["target_partition"]): at["downstream_offset"]
        for at in answer["partitions"]
    }
    commit_group(here.target, here.group, resumes)
    # In partitions that the group had not read, it begins at the first record.
    after = consume(here.target, here.group, f"us-east.{here.topic}")

    every = Counter(f"{part}-{n}" for part in range(PARTITIONS) for n in range(40))
    assert len(here.before) == 47
    assert Counter(here.before + after) == every


def test_status_shows_that_all_records_have_arrived(here):
    (flow,) = command_json(here.file, "status")["flows"]

    assert (flow["flow"], flow["state"], flow["error"]) == (FLOW, "stopped", None)
    assert [at["lag"] for at in flow["partitions"]] == [0] * PARTITIONS
    assert {at["target_topic"] for at in flow["partitions"]} == {f"us-east.{here.topic}"}
    assert all(at["source_end"] == at["staged"] == at["replayed"] for at in flow["partitions"])


def test_each_offset_translates_to_the_target_and_back(here):
    def translate(offset, *more):
        options = ("--topic", here.topic, "--partition", 0, "--offset", offset)
        return command_json(here.file, "translate", "--flow", FLOW, *options, *more)

    there = translate(12)
    back = translate(there["downstream_offset"], "--reverse")
    assert back["upstream_offset"] >= 12
    assert translate(back["upstream_offset"])["downstream_offset"] == there["downstream_offset"]
