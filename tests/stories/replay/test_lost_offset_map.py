"""A lost offset map is rebuilt with the same rows, by a start and by the command."""

import shutil

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.brokers import Record, create_topic, produce
from tests.support.world import FLOW, World

pytestmark = [pytest.mark.kafka, pytest.mark.story]

PARTITIONS = 3
IDENTITY = (
    "topic", "incarnation", "partition", "upstream_start", "target_topic", "target_topic_id",
    "target_partition", "downstream_start", "length",
)  # fmt: skip


def write(here, topic, turn, records=400):
    """Write to the source in transactions; every third one is aborted."""
    producer = Producer(
        {"bootstrap.servers": here.source.bootstrap_servers, "transactional.id": f"{topic}-writer"}
    )
    producer.init_transactions(30)
    for part in range(6):
        producer.begin_transaction()
        for n in range(records // 6):
            value = b"%d %d %d" % (turn, part, n)
            producer.produce(topic, value, b"k", partition=n % PARTITIONS)
        producer.flush(30)
        producer.abort_transaction(30) if part % 3 == 1 else producer.commit_transaction(30)


def disturb(here, topic):
    """Write records of another producer to the target."""
    foreign = (Record(b"foreign", b"%d" % p, partition=p) for p in range(PARTITIONS))
    produce(here.target.bootstrap_servers, here.remote(topic), foreign)


def rows(here):
    """Return the map's rows without run_id and committed_at, in order."""
    table = here.context.lake.offset_map(here.config.flow(FLOW).flow)
    return sorted(tuple(row.values()) for row in table.rows(IDENTITY).to_pylist())


def upstream(here):
    return [(row[2], row[3] + i) for row in rows(here) for i in range(row[8])]


def test_a_lost_offset_map_is_rebuilt_with_the_same_rows(
    world, source, target, unique_topic, tmp_path
):
    create_topic(source.bootstrap_servers, unique_topic, PARTITIONS)
    here = world(unique_topic, **{"deltamirror.replay.chunk.records": "150"})
    path = here.context.lake.offset_map(here.config.flow(FLOW).flow).path
    for turn in range(2):
        write(here, unique_topic, turn)
        here.mirror()
        disturb(here, unique_topic)
        if turn == 0:
            shutil.copytree(path, tmp_path / "older")
    known = rows(here)
    assert len(known) > 4 * PARTITIONS

    # Without its last commits: a start rebuilds it.
    shutil.rmtree(path)
    shutil.copytree(tmp_path / "older", path)
    assert len(rows(here)) < len(known)
    here.mirror()
    assert rows(here) == known

    # Without the whole table: a start rebuilds it, and so does the command.
    shutil.rmtree(path)
    here.mirror()
    assert rows(here) == known
    shutil.rmtree(path)
    rebuilt = here.answer("maintain", "--rebuild-map", "--flow", FLOW)
    assert rows(here) == known
    assert rebuilt["errors"] == []
    assert [each["complete_from"] for each in rebuilt["partitions"]] == [None] * PARTITIONS
    assert sum(each["written_records"] for each in rebuilt["partitions"]) == len(upstream(here))

    # Without the head of a partition on the target: rebuilt from there on, and reported.
    cut = [row for row in known if row[2] == 0][len(known) // PARTITIONS // 2]
    remote = TopicPartition(here.remote(unique_topic), 0, cut[7])
    admin = AdminClient({"bootstrap.servers": target.bootstrap_servers})
    admin.delete_records([remote])[remote].result(30)
    shutil.rmtree(path)
    here.mirror()
    left = [row for row in known if row[2] != 0 or row[7] >= cut[7]]
    assert rows(here) == left
    rebuilt = here.answer("maintain", "--rebuild-map", "--flow", FLOW)
    (first,) = [each for each in rebuilt["partitions"] if each["partition"] == 0]
    before = [row for row in known if row[2] == 0 and row[7] < cut[7]][-1]
    assert (first["written_records"], first["complete_from"]) == (0, before[3] + before[8])

    # A map of a second flow with other transactions has the same upstream offsets.
    (tmp_path / "second").mkdir()
    extra = {"replication.policy.separator": "-", "deltamirror.replay.chunk.records": "70"}
    other = World(tmp_path / "second", source, target, [unique_topic], extra)
    other.mirror()
    assert len(rows(other)) > len(known)
    assert upstream(other) == [(row[2], row[3] + i) for row in known for i in range(row[8])]
