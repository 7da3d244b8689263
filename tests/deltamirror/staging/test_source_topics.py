"""A partition with nothing to stage is asked for little, and hides nothing by it."""

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
    """Of which partitions the watermarks were told to be known, look by look."""
    told, ask = [], context.source.watermarks

    def watermarks(partitions, known=None):
        told.append(set(known or {}))
        return ask(partitions, known)

    monkeypatch.setattr(context.source, "watermarks", watermarks)
    return told


def at(context, partition, offset):
    source = SourcePartition(
        partition.topic, context.source.ids[partition.topic], partition.partition
    )
    return Frontier(source, offset, 0, offset)


def test_only_what_is_staged_to_its_end_is_taken_for_known(context, known):
    looking = SourceTopics(context, "us-east")
    staged = {ORDERS: at(context, ORDERS, 2), USERS: at(context, USERS, 1)}

    looking.snapshot_partitions(None, staged)
    looking.snapshot_partitions(None, staged)

    assert known == [set(), {ORDERS}]


def test_new_records_of_a_known_partition_are_seen_at_the_next_look(context, known):
    looking = SourceTopics(context, "us-east")
    staged = {ORDERS: at(context, ORDERS, 2)}
    looking.snapshot_partitions(None, staged)
    context.source.append(ORDERS, RecordContent(b"c"))
    context.source.low[ORDERS] = 1

    seen, _ = looking.snapshot_partitions(None, staged)

    marks = seen[ORDERS].watermarks
    assert (marks.low, marks.stable, marks.high) == (1, 3, 3)


def test_a_known_partition_whose_log_was_cut_is_seen_as_it_is(context, known):
    looking = SourceTopics(context, "us-east")
    staged = {ORDERS: at(context, ORDERS, 2)}
    looking.snapshot_partitions(None, staged)
    context.source.cut(ORDERS, 1)

    seen, _ = looking.snapshot_partitions(None, staged)

    assert seen[ORDERS].watermarks.high == 1


def test_a_topic_made_anew_is_no_longer_known(context, known):
    looking = SourceTopics(context, "us-east")
    staged = {ORDERS: at(context, ORDERS, 2)}
    looking.snapshot_partitions(None, staged)
    context.source.make("orders")
    context.source.append(ORDERS, RecordContent(b"x"), RecordContent(b"y"))
    looking.refresh_topics()

    seen, _ = looking.snapshot_partitions(None, staged)

    assert known[-1] == set()
    assert seen[ORDERS].topic_id == context.source.ids["orders"]


def test_what_an_open_transaction_holds_back_is_seen_when_all_is_asked(context, known):
    looking = SourceTopics(context, "us-east")
    staged = {ORDERS: at(context, ORDERS, 2)}
    looking.snapshot_partitions(None, staged)
    context.source.append(ORDERS, RecordContent(b"c"), state="open")

    seen, _ = looking.snapshot_partitions(None, staged)
    assert seen[ORDERS].watermarks.high == 2
    context.timings = Timings(full_read_interval_s=0.0)
    seen, _ = looking.snapshot_partitions(None, staged)
    assert (seen[ORDERS].watermarks.stable, seen[ORDERS].watermarks.high) == (2, 3)
