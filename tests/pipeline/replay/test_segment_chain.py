"""Staged ranges must be contiguous, and have the number of records that they count."""

from itertools import pairwise

import pytest

from pipeline.replay.segment_chain import SegmentChain, cut_link
from schemas.errors.lake import StageIncompleteError
from schemas.kafka.partition import SourcePartition, TopicPartition
from schemas.replay.slot_work import ChainLink, PartitionWork, Progress
from tests.support.fake_cluster import RecordContent, rows

ORDERS = TopicPartition("orders", 0)
LIFE1, LIFE2 = (SourcePartition("orders", incarnation, 0) for incarnation in ("life1", "life2"))


def chain(*links, at=0, incarnation="life1", staged=()):
    """Return a chain; *staged* are the offsets of the staged records in the first link."""
    made = tuple(ChainLink(*link) for link in links)
    work = PartitionWork(ORDERS, TopicPartition("us-east.orders", 0), "t1", made, None)

    def count(source, edges, total):
        return [sum(a <= offset < b for offset in staged) for a, b in pairwise(edges)]

    return SegmentChain(work, Progress(at, incarnation, "t1"), count)


def batch(*offsets, source=LIFE1):
    return rows(source, [(o, RecordContent()) for o in offsets])


def test_a_chain_ends_at_the_end_of_its_last_link():
    found = chain(("life1", 0, 10, 3), ("life1", 10, 25, 1))

    assert found.starts() == {LIFE1: 0}
    assert found.end == Progress(25, "life1", "t1")


def test_progress_inside_a_link_is_the_start_of_the_chain():
    found = chain(("life1", 0, 10, 3), ("life1", 10, 25, 1), at=7, staged=(1, 6, 8))

    assert found.starts() == {LIFE1: 7}


def test_a_missing_link_is_an_error_with_the_start_of_the_next_one():
    with pytest.raises(StageIncompleteError, match=r"from 10 on, but the next segment .* at 20"):
        chain(("life1", 0, 10, 3), ("life1", 20, 25, 1))


def test_a_chain_that_begins_after_progress_is_an_error():
    with pytest.raises(StageIncompleteError, match="from 3 on"):
        chain(("life1", 10, 20, 3), at=3)


def test_a_chain_that_ends_before_progress_is_an_error():
    with pytest.raises(StageIncompleteError, match="from 30 on, but nothing is staged there"):
        chain(("life1", 0, 10, 3), at=30)


def test_an_incarnation_that_is_not_staged_is_an_error():
    with pytest.raises(StageIncompleteError, match="nothing is staged there"):
        chain(("life1", 0, 10, 3), incarnation="life9")


def test_missing_records_of_a_link_are_an_error_before_the_next_link_is_sent():
    found = chain(("life1", 0, 10, 3), ("life1", 10, 20, 1))
    found.follow(LIFE1, batch(1, 2))

    with pytest.raises(StageIncompleteError, match="not all of the 3 records"):
        found.follow(LIFE1, batch(11))


def test_missing_records_of_the_last_link_are_an_error_at_the_end():
    found = chain(("life1", 0, 10, 3))
    found.follow(LIFE1, batch(1, 2))

    with pytest.raises(StageIncompleteError):
        found.finish()


def test_a_complete_chain_finishes_with_links_that_have_no_records():
    found = chain(("life1", 0, 10, 2), ("life1", 10, 12, 0), ("life1", 12, 20, 1))
    found.follow(LIFE1, batch(1, 2))
    found.follow(LIFE1, batch(15))

    found.finish()


def test_the_rest_of_a_partly_replayed_link_is_counted():
    found = chain(("life1", 0, 10, 5), ("life1", 10, 20, 1), at=6, staged=(1, 2, 3, 7, 8))
    found.follow(LIFE1, batch(7, 8, 11))

    found.finish()


def test_a_partly_replayed_link_whose_file_is_gone_is_an_error_before_anything_is_sent():
    with pytest.raises(StageIncompleteError, match="not all of the 5 records"):
        chain(("life1", 0, 10, 5), ("life1", 10, 20, 1), at=6, staged=())


def test_a_missing_record_in_the_rest_of_a_partly_replayed_link_is_an_error():
    found = chain(("life1", 0, 10, 5), ("life1", 10, 20, 1), at=6, staged=(1, 2, 3, 7, 8))

    with pytest.raises(StageIncompleteError, match="not all of the 2 records"):
        found.follow(LIFE1, batch(8, 11))


def test_a_link_is_cut_to_a_range_with_the_number_of_its_records_there():
    def count(source, edges, total):
        assert (source, edges, total) == (LIFE1, (0, 3, 6, 10), 4)
        return [1, 2, 1]

    whole = ChainLink("life1", 0, 10, 4)

    assert cut_link(whole, ORDERS, 3, 6, count) == ChainLink("life1", 3, 6, 2)
    assert cut_link(whole, ORDERS, -5, 99, count) == whole


def test_records_past_the_end_of_the_chain_are_left_out():
    found = chain(("life1", 0, 10, 2))

    assert found.follow(LIFE1, batch(1, 2, 10, 11)).column("offset").to_pylist() == [1, 2]
    found.finish()


def test_incarnations_follow_one_another_each_from_its_own_start():
    found = chain(("life1", 0, 10, 1), ("life2", 3, 8, 2), at=10)

    assert found.starts() == {LIFE2: 3}
    assert found.end == Progress(8, "life2", "t1")


def test_earlier_incarnations_are_done_when_progress_is_in_a_later_one():
    found = chain(("life1", 0, 10, 1), ("life2", 3, 8, 2), at=5, incarnation="life2", staged=(3, 6))

    assert found.starts() == {LIFE2: 5}
