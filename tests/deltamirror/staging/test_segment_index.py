"""The ledger remembers what was sealed, in the order of staging."""

import pytest

from deltamirror.staging.segment_index import SegmentIndex
from resources.delta.lake import DeltaLake
from resources.delta.table_maintenance import optimize
from schemas.errors import TableDamagedError
from schemas.kafka.partition import SourcePartition, TopicPartition
from schemas.staging.frontier import Frontier

ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def segments(lake):
    return DeltaLake(lake).segments("us-east")


def row(start, end, version, *, topic_id="life1", partition=0, epoch=4):
    return {
        "topic": "orders", "topic_id": topic_id, "partition": partition, "start": start,
        "end": end, "count": end - start, "size_bytes": 0, "leader_epoch": epoch, "low": 0,
        "stable": end + 5, "high": end + 9, "gap_cause": "", "digest": "",
        "staged_at_ms": version * 10, "sequence": version, "version": version,
    }  # fmt: skip


def spans(ledger, partition=ORDERS):
    return [(s.link.incarnation, s.link.start, s.link.end) for s in ledger.links(partition)]


def test_a_ledger_that_nobody_wrote_is_empty_and_stays_unmade(segments):
    ledger = SegmentIndex(segments)

    assert not ledger.refresh()
    assert ledger.links(ORDERS) == []
    assert not segments.exists()


def test_links_are_in_the_order_of_staging_and_the_last_is_the_frontier(segments):
    segments.append([row(5, 9, 2), row(0, 5, 1)])
    ledger = SegmentIndex(segments)

    assert ledger.refresh()

    assert spans(ledger) == [("life1", 0, 5), ("life1", 5, 9)]
    assert ledger.chains.frontiers[ORDERS] == Frontier(
        SourcePartition("orders", "life1", 0), 9, 4, 14
    )


def test_only_what_is_new_is_taken_in(segments):
    segments.append([row(0, 5, 1)])
    ledger = SegmentIndex(segments)
    ledger.refresh()

    assert not ledger.refresh()
    segments.append([row(5, 9, 2), row(0, 3, 2, partition=1)])
    assert ledger.refresh()

    assert spans(ledger) == [("life1", 0, 5), ("life1", 5, 9)]
    assert spans(ledger, TopicPartition("orders", 1)) == [("life1", 0, 3)]


def test_a_new_life_follows_the_former_one_whatever_its_offsets(segments):
    segments.append([row(0, 50, 1), row(3, 7, 2, topic_id="life2")])
    ledger = SegmentIndex(segments)
    ledger.refresh()

    assert spans(ledger) == [("life1", 0, 50), ("life2", 3, 7)]
    assert ledger.chains.frontiers[ORDERS].source.topic_id == "life2"


def test_a_table_that_was_merged_is_not_taken_in_twice(segments):
    for i in range(20):
        segments.append([row(i, i + 1, i + 1)])
    ledger = SegmentIndex(segments)
    ledger.refresh()

    optimize(segments)

    assert not ledger.refresh()
    assert len(spans(ledger)) == 20


def test_a_file_that_could_not_be_read_is_taken_in_once_it_can(segments):
    segments.append([row(0, 5, 1)])
    ledger = SegmentIndex(segments)
    ledger.refresh()
    segments.append([row(5, 9, 2)])
    new = max(segments.path.glob("*.parquet"), key=lambda file: file.stat().st_mtime_ns)
    away = new.rename(new.with_suffix(".away"))

    with pytest.raises(TableDamagedError):
        ledger.refresh()
    away.rename(new)

    assert ledger.refresh()
    assert spans(ledger) == [("life1", 0, 5), ("life1", 5, 9)]
