"""Read fewer watermarks of partitions that have nothing to stage, without missing a change."""

import pytest

from deltamirror.staging.source_topics import SourceTopics
from deltamirror.timings import Timings
from schemas.kafka.partition import SourcePartition, TopicPartition
from schemas.staging.frontier import Frontier
from tests.support.fake_cluster import RecordContent
from tests.support.fake_context import FakeContext

ORDERS, USERS = TopicPartition("orders", 0), TopicPartition("users", 0)


@pytest.fixture
def context(lake, monkeypatch):
    made = FakeContext(lake, monkeypatch)
    for partition in (ORDERS, USERS):
        made.source.make(partition.topic)
        made.source.append(partition, RecordContent(b"a"), RecordContent(b"b"))
    return made


@pytest.fixture
def known(context, monkeypatch):
    """Return the partitions that each snapshot passed as known to `watermarks`."""
    passed, original = [], context.source.watermarks

    def watermarks(partitions, known=None):
        passed.append(set(known or {}))
        return original(partitions, known)

    monkeypatch.setattr(context.source, "watermarks", watermarks)
    return passed


def at(context, partition, offset):
    source = SourcePartition(
        partition.topic, context.source.ids[partition.topic], partition.partition
    )
    return Frontier(source, offset, 0, offset)


def test_only_partitions_that_are_staged_to_their_end_are_passed_as_known(context, known):
    topics = SourceTopics(context, "us-east")
    staged = {ORDERS: at(context, ORDERS, 2), USERS: at(context, USERS, 1)}

    topics.snapshot_partitions(None, staged)
    topics.snapshot_partitions(None, staged)

    assert known == [set(), {ORDERS}]


def test_new_records_of_an_idle_partition_are_seen_in_the_next_snapshot(context, known):
    topics = SourceTopics(context, "us-east")
    staged = {ORDERS: at(context, ORDERS, 2)}
    topics.snapshot_partitions(None, staged)
    context.source.append(ORDERS, RecordContent(b"c"))
    context.source.low[ORDERS] = 1

    seen, _ = topics.snapshot_partitions(None, staged)

    marks = seen[ORDERS].watermarks
    assert (marks.low, marks.stable, marks.high) == (1, 3, 3)


def test_the_truncated_log_of_an_idle_partition_is_seen_in_the_next_snapshot(context, known):
    topics = SourceTopics(context, "us-east")
    staged = {ORDERS: at(context, ORDERS, 2)}
    topics.snapshot_partitions(None, staged)
    context.source.cut(ORDERS, 1)

    seen, _ = topics.snapshot_partitions(None, staged)

    assert seen[ORDERS].watermarks.high == 1


def test_a_re_created_topic_is_not_passed_as_known(context, known):
    topics = SourceTopics(context, "us-east")
    staged = {ORDERS: at(context, ORDERS, 2)}
    topics.snapshot_partitions(None, staged)
    context.source.make("orders")
    context.source.append(ORDERS, RecordContent(b"x"), RecordContent(b"y"))
    topics.refresh_topics()

    seen, _ = topics.snapshot_partitions(None, staged)

    assert known[-1] == set()
    assert seen[ORDERS].topic_id == context.source.ids["orders"]


def test_records_of_an_open_transaction_are_seen_when_all_watermarks_are_read(context, known):
    topics = SourceTopics(context, "us-east")
    staged = {ORDERS: at(context, ORDERS, 2)}
    topics.snapshot_partitions(None, staged)
    context.source.append(ORDERS, RecordContent(b"c"), state="open")

    seen, _ = topics.snapshot_partitions(None, staged)
    assert seen[ORDERS].watermarks.high == 2
    context.timings = Timings(full_read_interval_s=0.0)
    seen, _ = topics.snapshot_partitions(None, staged)
    assert (seen[ORDERS].watermarks.stable, seen[ORDERS].watermarks.high) == (2, 3)
