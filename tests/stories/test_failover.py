"""A group works on the source, the source is given up, the group goes on at the target.

Nothing here knows the inside: a file, the commands, and consumers as applications have them.
"""

import json
import time
from collections import Counter

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException

from tests.brokers import (
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


@pytest.fixture
def topic(source, unique_topic, names):
    """Values p-n, unique: plain ones, whole transactions, and aborted ones between them."""
    create_topic(source.bootstrap_servers, unique_topic, partitions=PARTITIONS)
    for part in range(PARTITIONS):
        for chunk in range(4):
            values = [f"{part}-{chunk * 10 + n}" for n in range(10)]
            records = [Record(b"k", v.encode(), partition=part) for v in values]
            transaction = names("app") if chunk % 2 else None
            produce(source.bootstrap_servers, unique_topic, records, transactional_id=transaction)
            lost = [Record(b"k", b"aborted", partition=part)] * 3
            produce(
                source.bootstrap_servers,
                unique_topic,
                lost,
                transactional_id=names("app"),
                commit=False,
            )
    return unique_topic


@pytest.fixture
def file(tmp_path, source, target, topic, names):
    path = tmp_path / "mm2.properties"
    path.write_text(
        f"""
        clusters = us-east, eu-west
        us-east.bootstrap.servers = {source.bootstrap_servers}
        eu-west.bootstrap.servers = {target.bootstrap_servers}
        {FLOW}.enabled = true
        {FLOW}.topics = {topic}
        {FLOW}.groups = {names("billing")}
        replication.factor = 1
        emit.heartbeats.enabled = false
        """
    )
    return path


def consume(bootstrap, group, topic, at_most=None):
    """Read as a member of *group* to the end or *at_most* values, commit each, return them."""
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


def asked(file, *arguments):
    answer = run_cli(*arguments, "--config", file, "--format", "json")
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return json.loads(answer.stdout)


def test_a_group_that_fails_over_reads_each_record_once(file, source, target, topic, names):
    group = names("billing")
    before = consume(source.bootstrap_servers, group, topic, at_most=47)

    asked(file, "run", "--until-caught-up")

    answer = asked(file, "translate", "--flow", FLOW, "--group", group)
    resumes = {
        (at["target_topic"], at["target_partition"]): at["downstream_offset"]
        for at in answer["partitions"]
    }
    commit_group(target.bootstrap_servers, group, resumes)
    # Partitions in which the group had read nothing yet begin at their first record.
    after = consume(target.bootstrap_servers, group, f"us-east.{topic}")

    every = Counter(f"{part}-{n}" for part in range(PARTITIONS) for n in range(40))
    assert Counter(before + after) == every


def test_status_shows_that_all_has_arrived(file, topic):
    asked(file, "run", "--until-caught-up")

    (flow,) = asked(file, "status")["flows"]

    assert (flow["flow"], flow["state"], flow["error"]) == (FLOW, "stopped", None)
    assert [at["lag"] for at in flow["partitions"]] == [0] * PARTITIONS
    assert {at["target_topic"] for at in flow["partitions"]} == {f"us-east.{topic}"}
    assert all(at["source_end"] == at["staged"] == at["replayed"] for at in flow["partitions"])


def test_each_offset_translates_there_and_back(file, topic):
    asked(file, "run", "--until-caught-up")

    def translate(offset, *more):
        return asked(
            file,
            "translate",
            *("--flow", FLOW, "--topic", topic, "--partition", 0, "--offset", offset, *more),
        )

    there = translate(12)
    back = translate(there["downstream_offset"], "--reverse")
    assert back["upstream_offset"] >= 12
    assert translate(back["upstream_offset"])["downstream_offset"] == there["downstream_offset"]
