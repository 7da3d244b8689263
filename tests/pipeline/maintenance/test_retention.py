"""Retention selects expired files that every flow has replayed: oldest first, without holes."""

from dataclasses import replace

import pyarrow as pa
import pytest

from pipeline.maintenance.retention import held_ranges, select_expired
from resources.delta.arrow_schema import arrow_schema
from schemas.staging.segment import RecordsFile, Segment
from schemas.tables import SEGMENTS as SEGMENTS_TABLE
from tests.support.staged_lake import in_one_slot

SCHEMA = arrow_schema(SEGMENTS_TABLE)

(ORDERS,) = in_one_slot(1)
(USERS,) = in_one_slot(1, slot=4)
(PAYMENTS,) = in_one_slot(1, slot=5)


def file(sequence, *sources, size_bytes=10):
    """Return a file of *sequence* with records of the slots of *sources*, of ORDERS by default."""
    slots = sum({1 << source.slot for source in sources or [ORDERS]})
    return RecordsFile(f"{sequence}-{slots:04x}", slots, sequence, size_bytes)


def segment(source, start, end, sequence, staged_at_ms):
    return Segment(
        source.topic, source.topic_id, source.partition, start, end, end - start, 0, start,
        end - 1, 0, 0, 0, 0, end, end, "", "", staged_at_ms, sequence,
    )  # fmt: skip


FILES = [file(1), file(2), file(3)]
SEGMENTS = [
    segment(ORDERS, 0, 10, 1, 100),
    segment(ORDERS, 10, 20, 2, 200),
    segment(ORDERS, 20, 30, 3, 300),
]


def gone(files=FILES, segments=SEGMENTS, *, replayed=30, before_ms=None, max_bytes=None):
    rows = [{**s.to_dict(), "version": s.sequence} for s in segments]
    tables = [pa.Table.from_pylist([row], SCHEMA) for row in reversed(rows)]
    return select_expired(
        files,
        held_ranges(files, tables),
        lambda held: held.end <= replayed,
        before_ms=before_ms,
        max_bytes=max_bytes,
    )


@pytest.mark.parametrize(
    ("bounds", "sequences"),
    [
        pytest.param({}, [], id="no bound"),
        pytest.param({"before_ms": 250}, [1, 2], id="by age"),
        pytest.param({"max_bytes": 15}, [1, 2], id="by size"),
        pytest.param({"max_bytes": 30}, [], id="within the size"),
        pytest.param({"before_ms": 1000, "replayed": 19}, [1], id="by age, but not replayed"),
        pytest.param({"max_bytes": 0, "replayed": 5}, [], id="by size, but not replayed"),
    ],
)
def test_a_file_expires_by_age_or_size_only_after_it_was_replayed(bounds, sequences):
    assert [f.sequence for f in gone(**bounds)[0]] == sequences


def test_the_first_kept_offset_of_each_partition_is_returned():
    assert gone(before_ms=250)[1] == {ORDERS: 20}


def test_the_oldest_files_of_all_slots_expire_first():
    files = [*FILES, file(2, USERS)]
    segments = [*SEGMENTS, segment(USERS, 0, 5, 2, 150)]

    found = gone(files, segments, max_bytes=20)[0]

    assert found == [file(1), file(2, USERS)]


def test_a_compacted_file_expires_when_its_newest_segment_is_old_enough():
    joined = [file(2), file(3)]

    assert gone(joined, before_ms=150)[0] == []
    assert gone(joined, before_ms=250)[0] == [file(2)]


def test_a_file_without_segments_does_not_expire():
    assert gone([*FILES, file(4)], before_ms=1000)[0] == list(FILES)


def test_a_clock_that_was_set_back_makes_no_hole():
    back = [SEGMENTS[0], replace(SEGMENTS[1], staged_at_ms=50), SEGMENTS[2]]

    assert [f.sequence for f in gone(segments=back, before_ms=80)[0]] == []


SHARED = [file(1, ORDERS, USERS), file(2, ORDERS, USERS), file(3)]


def shared_segments(users_end):
    return [*SEGMENTS, segment(USERS, 0, 5, 1, 100), segment(USERS, 5, users_end, 2, 200)]


def test_a_shared_file_stays_while_one_of_its_slots_is_not_replayed():
    found, kept = gone(SHARED, shared_segments(users_end=31), before_ms=1000)

    assert found == [SHARED[0]]
    assert kept == {ORDERS: 10, USERS: 5}


def test_a_shared_file_whose_slots_are_all_replayed_expires():
    found, kept = gone(SHARED, shared_segments(users_end=30), before_ms=1000)

    assert found == SHARED
    assert kept == {ORDERS: 30, USERS: 30}


def test_no_slot_gets_a_hole_when_an_earlier_file_of_another_slot_stays():
    files = [file(1, USERS), file(2, ORDERS, USERS), file(3, ORDERS), file(3, PAYMENTS)]
    segments = [
        segment(USERS, 0, 31, 1, 100),
        segment(ORDERS, 0, 10, 2, 200),
        segment(USERS, 31, 40, 2, 200),
        segment(ORDERS, 10, 20, 3, 300),
        segment(PAYMENTS, 0, 10, 3, 300),
    ]

    found, kept = gone(files, segments, before_ms=1000)

    assert found == [file(3, PAYMENTS)]
    assert kept == {PAYMENTS: 10}


def test_a_file_does_not_expire_before_an_earlier_file_that_shares_one_of_its_slots():
    back = [
        segment(ORDERS, 0, 10, 1, 900),
        segment(ORDERS, 10, 20, 2, 50),
        segment(USERS, 0, 5, 2, 50),
    ]
    files = [file(1), file(2, ORDERS, USERS)]

    assert gone(files, back, before_ms=100)[0] == []
    assert gone(files, back, before_ms=901)[0] == files


def test_a_segment_of_a_compacted_slot_is_in_the_first_file_of_its_slot_at_or_after_its_sequence():
    files = [file(3, ORDERS), file(4, ORDERS, USERS)]
    segments = [*SEGMENTS, segment(ORDERS, 30, 40, 4, 400), segment(USERS, 0, 5, 4, 400)]

    found, kept = gone(files, segments, before_ms=1000)

    assert found == [file(3)]
    assert kept == {ORDERS: 30}
