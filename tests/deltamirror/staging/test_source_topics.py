"""A partition with nothing to stage is asked for little, and hides nothing by it."""

import pytest

from deltamirror.staging import source_topics as sights
from deltamirror.staging.source_topics import Sights
from schemas.kafka.partition import SourcePartition, TopicPartition
from schemas.staging.frontier import Frontier
from tests.support.fake_cluster import Said
from tests.support.fake_context import FakeClusters

ORDERS, USERS = TopicPartition("orders", 0), TopicPartition("users", 0)


@pytest.fixture
def site(lake, monkeypatch):
    made = FakeClusters(lake, monkeypatch)
    for partition in (ORDERS, USERS):
        made.source.make(partition.topic)
        made.source.append(partition, Said(b"a"), Said(b"b"))
    return made


@pytest.fixture
def known(site, monkeypatch):
    """Of which partitions the watermarks were told to be known, look by look."""
    told, ask = [], site.source.watermarks

    def watermarks(partitions, known=None):
        told.append(set(known or {}))
        return ask(partitions, known)

    monkeypatch.setattr(site.source, "watermarks", watermarks)
    return told


def at(site, partition, offset):
    source = SourcePartition(partition.topic, site.source.ids[partition.topic], partition.partition)
    return Frontier(source, offset, 0, offset)


def test_only_what_is_staged_to_its_end_is_taken_for_known(site, known):
    looking = Sights(site, "us-east")
    staged = {ORDERS: at(site, ORDERS, 2), USERS: at(site, USERS, 1)}

    looking.look(None, staged)
    looking.look(None, staged)

    assert known == [set(), {ORDERS}]


def test_new_records_of_a_known_partition_are_seen_at_the_next_look(site, known):
    looking = Sights(site, "us-east")
    staged = {ORDERS: at(site, ORDERS, 2)}
    looking.look(None, staged)
    site.source.append(ORDERS, Said(b"c"))
    site.source.low[ORDERS] = 1

    seen, _ = looking.look(None, staged)

    marks = seen[ORDERS].watermarks
    assert (marks.low, marks.stable, marks.high) == (1, 3, 3)


def test_a_known_partition_whose_log_was_cut_is_seen_as_it_is(site, known):
    looking = Sights(site, "us-east")
    staged = {ORDERS: at(site, ORDERS, 2)}
    looking.look(None, staged)
    site.source.cut(ORDERS, 1)

    seen, _ = looking.look(None, staged)

    assert seen[ORDERS].watermarks.high == 1


def test_a_topic_made_anew_is_no_longer_known(site, known):
    looking = Sights(site, "us-east")
    staged = {ORDERS: at(site, ORDERS, 2)}
    looking.look(None, staged)
    site.source.make("orders")
    site.source.append(ORDERS, Said(b"x"), Said(b"y"))
    looking.refresh_topics()

    seen, _ = looking.look(None, staged)

    assert known[-1] == set()
    assert seen[ORDERS].topic_id == site.source.ids["orders"]


def test_what_an_open_transaction_holds_back_is_seen_when_all_is_asked(site, known, monkeypatch):
    looking = Sights(site, "us-east")
    staged = {ORDERS: at(site, ORDERS, 2)}
    looking.look(None, staged)
    site.source.append(ORDERS, Said(b"c"), state="open")

    seen, _ = looking.look(None, staged)
    assert seen[ORDERS].watermarks.high == 2
    monkeypatch.setattr(sights, "ALL_EVERY_S", 0.0)
    seen, _ = looking.look(None, staged)
    assert (seen[ORDERS].watermarks.stable, seen[ORDERS].watermarks.high) == (2, 3)
