"""MirrorConnectorsIntegrationBaseTest: where groups resume on the target."""

from __future__ import annotations

import pytest

from tests.stories.mm2.acceptance.cluster_pair import PARTITIONS, PER_PARTITION, RECORDS, running
from tests.support.brokers import commit_group, committed_offsets
from tests.support.world import until

pytestmark = [pytest.mark.kafka, pytest.mark.story]


def test_replication_with_empty_partition(pair, tools):
    pair.make(1)
    pair.write(1, partitions=PARTITIONS - 1)
    offsets = {(pair.topic(1), p): 0 for p in range(PARTITIONS)}
    commit_group(pair.at("primary"), pair.group, offsets)

    with running(pair.mesh()):
        pair.has(1, RECORDS - PER_PARTITION)
        until(lambda: len(pair.translated(tools, 1)) >= PARTITIONS - 1, "the group is translated")
    # A group that has read all partitions commits 0 for the partition that was always empty.
    last = {m.partition(): m.offset() + 1 for m in pair.read(pair.remote(1))}
    offsets = {(pair.remote(1), p): last.get(p, 0) for p in range(PARTITIONS)}
    commit_group(pair.at("backup"), pair.group, offsets)

    found = committed_offsets(pair.at("backup"), pair.group)
    assert found[pair.remote(1), PARTITIONS - 1] == 0
    assert set(pair.translated(tools, 1).values()) == {0}


@pytest.mark.parametrize("lag_max", [10, 0])
def test_one_way_replication_with_auto_offset_sync(pair, lag_max, tools):
    pair.make(1)
    pair.write(1)
    pair.commit(1, lambda p: p % PER_PARTITION)
    entries = {"sync.group.offsets.enabled": "true", "offset.lag.max": str(lag_max)}

    with running(pair.mesh(**entries)):
        pair.has(1, RECORDS)
        until(lambda: len(pair.synced(1)) == PARTITIONS, "the group is on the backup")
        first = pair.synced(1)
        pair.make(2)
        pair.write(2)
        pair.commit(2, lambda _: -1)
        until(lambda: len(pair.synced(2)) == PARTITIONS, "and so is its second topic")

    assert pair.unread(1, first) == {p: PER_PARTITION - p % 10 for p in range(PARTITIONS)}
    assert set(pair.unread(2, pair.synced(2)).values()) == {0}
    assert f"backup.{pair.topic(1)}" not in pair.topics("primary")


def test_no_checkpoints_if_no_records_are_mirrored(pair, tools):
    pair.make(1)
    pair.make(2)
    pair.write(2)
    commit_group(pair.at("primary"), pair.group, {(pair.topic(1), p): 0 for p in range(PARTITIONS)})
    pair.commit(2, lambda _: -1)

    with running(pair.mesh()):
        until(lambda: len(pair.translated(tools, 2)) == PARTITIONS, "the other topic's are there")
        before = pair.translated(tools, 1)
        pair.write(1)
        pair.commit(1, lambda _: -1)
        until(lambda: len(pair.translated(tools, 1)) == PARTITIONS, "now there are some")

    assert before == {}


def test_restart_replication(pair, tools):
    pair.make(1)
    pair.write(1)
    pair.commit(1, lambda _: -1)
    mesh = pair.mesh(**{"sync.group.offsets.enabled": "true"})

    with running(mesh):
        until(lambda: is_read(pair), "the group is on the backup, at the end")
        until(lambda: len(pair.translated(tools, 1)) == PARTITIONS, "its checkpoints are too")
        first = pair.translated(tools, 1)
    pair.write(1, first=PER_PARTITION)
    pair.commit(1, lambda _: -1)
    with running(mesh):
        pair.has(1, 2 * RECORDS)
        until(lambda: is_read(pair), "the group is there again")
        until(lambda: all_past(pair.translated(tools, 1), first), "every checkpoint advances")


def is_read(pair):
    """Return whether the synced group has no record left to read on the backup."""
    places = pair.synced(1)
    if len(places) < PARTITIONS or not pair.read(pair.remote(1)):
        return False
    return not any(pair.unread(1, places).values())


def test_offset_translation_behind_replication_flow(pair, tools):
    pair.make(1)
    for i in range(10):
        pair.write(1, first=i * PER_PARTITION)
    pair.commit(1, lambda _: 50)

    with running(pair.mesh()):
        pair.has(1, 10 * RECORDS)
        until(lambda: len(pair.translated(tools, 1)) == PARTITIONS, "the group is translated")
        middle = pair.translated(tools, 1)
        pair.commit(1, lambda _: 90)
        until(lambda: all_past(pair.translated(tools, 1), middle), "every checkpoint advances")
        late = pair.translated(tools, 1)
        pair.commit(1, lambda _: 10)
        until(lambda: all_past(middle, pair.translated(tools, 1)), "every checkpoint goes back")
        early = pair.translated(tools, 1)

    assert [set(pair.unread(1, at).values()) for at in (early, middle, late)] == [{90}, {50}, {10}]


def all_past(ahead, behind):
    return len(ahead) == len(behind) and all(ahead[p] > behind[p] for p in ahead)
