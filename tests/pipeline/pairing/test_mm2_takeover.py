"""Import from MirrorMaker 2: where replay resumes, and which records before are mapped."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.pairing.mm2_takeover import LogFingerprints, pair_mm2_log
from schemas.errors.target import MapAmbiguousError
from schemas.kafka.partition import TopicPartition
from schemas.offset_map import OffsetRun
from tests.support.runs import expand_runs

AT = TopicPartition("orders", 0)


def log(first, *logs):
    """Return a record for each letter; '.' is an offset without a record."""
    return LogFingerprints.of(
        (first + i, s.encode()) for i, s in enumerate("".join(logs)) if s != "."
    )


def taken(staged, target, copied, sync=None):
    return pair_mm2_log(AT, staged, target, copied, sync)


def test_after_a_clean_stop_replay_resumes_at_the_committed_offset():
    found = taken(log(10, "abcdef"), log(0, "abcd"), copied=14)

    assert found.next_offset == 14
    assert found.runs == (OffsetRun(10, 0, 4),)
    assert (found.missing, found.complete_from, found.others) == (0, None, 0)
    assert found.doubtful_until is None


def test_records_copied_after_the_committed_offset_are_not_copied_again():
    found = taken(log(10, "abcdef"), log(0, "abcde"), copied=12)

    assert found.next_offset == 15
    assert found.runs == (OffsetRun(10, 0, 5),)


def test_the_last_copy_of_a_duplicated_range_counts():
    found = taken(log(0, "abcdef"), log(0, "abcd" + "cdef"), copied=6)

    assert found.next_offset == 6
    assert found.runs == (OffsetRun(0, 0, 2), OffsetRun(2, 4, 4))
    assert found.others == 2


def test_records_from_before_mirrormaker_2_began_are_reported_as_missing():
    found = taken(log(0, "abcdef"), log(0, "def"), copied=6)

    assert found.runs == (OffsetRun(3, 0, 3),)
    assert (found.missing, found.complete_from) == (3, 3)


def test_records_of_aborted_transactions_are_not_paired():
    found = taken(log(0, "ab..cd"), log(0, "abXYcd"), copied=6)

    assert found.runs == (OffsetRun(0, 0, 2), OffsetRun(4, 4, 2))
    assert (found.missing, found.others) == (0, 2)


def test_offsets_without_records_at_the_end_do_not_matter():
    found = taken(log(0, "ab"), log(0, "ab."), copied=2)

    assert found.next_offset == 2


def test_with_an_empty_target_replay_begins_at_the_committed_offset():
    found = taken(log(0, "abcd"), log(0, ""), copied=2)

    assert (found.next_offset, found.runs, found.missing) == (2, (), 2)


def test_equal_records_are_distinguished_by_an_offset_sync():
    found = taken(log(0, "aaaaaa"), log(0, "aaaa"), copied=2, sync=(2, 2))

    assert (found.next_offset, found.runs) == (4, (OffsetRun(0, 0, 4),))


def test_records_that_may_be_on_the_target_already_are_reported_as_doubtful():
    found = taken(log(0, "aaaabc"), log(0, "aaaa"), copied=2)

    assert (found.next_offset, found.doubtful_until) == (2, 4)


@pytest.mark.parametrize("sync", [(1, 3), (7, 1), (1, 9)])
def test_a_sync_of_another_incarnation_is_ignored(sync):
    found = taken(log(0, "abcdef"), log(0, "abcd"), copied=3, sync=sync)

    assert found.next_offset == 4


def test_a_target_order_that_mirrormaker_2_cannot_have_written_is_an_error():
    with pytest.raises(MapAmbiguousError, match="orders"):
        taken(log(0, "abcd"), log(0, "bacd"), copied=4)


@st.composite
def histories(draw):
    """Return (staged, target, noted, sync, copied) of a MirrorMaker 2 that crashed several times.

    Each run begins at the committed offset *noted*, with a sync, and copies some records, with
    aborted ones between. *copied* has every copied upstream offset with all its downstream offsets.
    """
    size = draw(st.integers(1, 30))
    noted, target, copied, sync = draw(st.integers(0, size - 1)), [], {}, None
    for _ in range(draw(st.integers(1, 4))):
        end = draw(st.integers(noted, size))
        for at in range(noted, end):
            if draw(st.booleans()):
                target.append(b"aborted %d" % len(target))
            copied.setdefault(at, set()).add(len(target))
            if at == noted or draw(st.booleans()):
                sync = at, len(target)
            target.append(b"%d" % at)
        noted = draw(st.integers(noted, end))
    staged = LogFingerprints.of((i, b"%d" % i) for i in range(size))
    return (
        staged,
        LogFingerprints.of(enumerate(target)),
        noted,
        draw(st.sampled_from([sync, None])),
        copied,
    )


@given(histories())
def test_no_record_is_lost_and_possible_duplicates_are_reported(history):
    staged, target, noted, sync, copied = history

    found = taken(staged, target, noted, sync)

    pairs = dict(expand_runs(found.runs))
    assert all(downstream in copied[at] for at, downstream in pairs.items())
    assert [at for at in copied if at < found.next_offset and at not in pairs] == []
    begun = min(copied, default=noted)
    assert found.next_offset == noted or set(range(begun, found.next_offset)) <= copied.keys()
    again = [at for at in copied if at >= found.next_offset]
    assert found.doubtful_until == (max(again) + 1 if again else None)
