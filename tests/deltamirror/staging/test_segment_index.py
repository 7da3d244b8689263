"""Index sealed segments in the order of staging."""

import pytest

from deltamirror.staging.segment_index import SegmentIndex
from resources.delta.lake import DeltaLake
from resources.delta.table_maintenance import optimize
from schemas.errors.lake import TableDamagedError
from schemas.kafka.partition import SourcePartition, TopicPartition
from schemas.staging.frontier import Frontier

ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def segments(lake):
    return DeltaLake(lake).segments("us-east")


def row(start, end, version, *, topic_id="id1", partition=0, epoch=4):
    return {
        "topic": "orders", "topic_id": topic_id, "partition": partition, "start": start,
        "end": end, "count": end - start, "size_bytes": 0, "leader_epoch": epoch, "low": 0,
        "stable": end + 5, "high": end + 9, "gap_cause": "", "digest": "",
        "staged_at_ms": version * 10, "sequence": version, "version": version,
    }  # fmt: skip


def spans(index, partition=ORDERS):
    return [(s.link.incarnation, s.link.start, s.link.end) for s in index.links(partition)]


def test_the_index_of_a_missing_table_is_empty_and_does_not_create_the_table(segments):
    index = SegmentIndex(segments)

    assert not index.refresh()
    assert index.links(ORDERS) == []
    assert not segments.exists()


def test_links_are_in_the_order_of_staging_and_the_last_is_the_frontier(segments):
    segments.append([row(5, 9, 2), row(0, 5, 1)])
    index = SegmentIndex(segments)

    assert index.refresh()

    assert spans(index) == [("id1", 0, 5), ("id1", 5, 9)]
    assert index.frontiers[ORDERS] == Frontier(SourcePartition("orders", "id1", 0), 9, 4, 14)


def test_a_refresh_reads_only_new_segments(segments):
    segments.append([row(0, 5, 1)])
    index = SegmentIndex(segments)
    index.refresh()

    assert not index.refresh()
    segments.append([row(5, 9, 2), row(0, 3, 2, partition=1)])
    assert index.refresh()

    assert spans(index) == [("id1", 0, 5), ("id1", 5, 9)]
    assert spans(index, TopicPartition("orders", 1)) == [("id1", 0, 3)]


def test_a_new_incarnation_follows_the_old_one_even_with_lower_offsets(segments):
    segments.append([row(0, 50, 1), row(3, 7, 2, topic_id="id2")])
    index = SegmentIndex(segments)
    index.refresh()

    assert spans(index) == [("id1", 0, 50), ("id2", 3, 7)]
    assert index.frontiers[ORDERS].source.topic_id == "id2"


def test_optimizing_the_table_adds_no_links_again(segments):
    for i in range(20):
        segments.append([row(i, i + 1, i + 1)])
    index = SegmentIndex(segments)
    index.refresh()

    optimize(segments)

    assert not index.refresh()
    assert len(spans(index)) == 20


def test_a_refresh_reads_a_file_that_was_unreadable_before(segments):
    segments.append([row(0, 5, 1)])
    index = SegmentIndex(segments)
    index.refresh()
    segments.append([row(5, 9, 2)])
    new = max(segments.path.glob("*.parquet"), key=lambda file: file.stat().st_mtime_ns)
    away = new.rename(new.with_suffix(".away"))

    with pytest.raises(TableDamagedError):
        index.refresh()
    away.rename(new)

    assert index.refresh()
    assert spans(index) == [("id1", 0, 5), ("id1", 5, 9)]
