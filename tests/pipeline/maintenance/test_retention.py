"""Retention selects expired files that every flow has replayed: oldest first, without holes."""

from dataclasses import dataclass, replace

import pytest

from pipeline.maintenance.retention import select_expired
from schemas.staging.segment import Segment
from tests.support.staged_lake import in_one_slot

(ORDERS,) = in_one_slot(1)
(USERS,) = in_one_slot(1, slot=4)


@dataclass(frozen=True)
class File:
    slot: int
    sequence: int
    size_bytes: int = 10


def segment(source, start, end, sequence, staged_at_ms):
    return Segment(
        source.topic, source.topic_id, source.partition, start, end, end - start, 0, start,
        end - 1, 0, 0, 0, 0, end, end, "", "", staged_at_ms, sequence,
    )  # fmt: skip


FILES = [File(3, 1), File(3, 2), File(3, 3)]
SEGMENTS = [
    segment(ORDERS, 0, 10, 1, 100),
    segment(ORDERS, 10, 20, 2, 200),
    segment(ORDERS, 20, 30, 3, 300),
]


def gone(files=FILES, segments=SEGMENTS, *, replayed=30, before_ms=None, max_bytes=None):
    return select_expired(
        files, segments, lambda s: s.end <= replayed, before_ms=before_ms, max_bytes=max_bytes
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
    assert [file.sequence for file in gone(**bounds)[0]] == sequences


def test_the_first_kept_offset_of_each_partition_is_returned():
    assert gone(before_ms=250)[1] == {ORDERS: 20}


def test_the_oldest_files_of_all_slots_expire_first():
    files = [*FILES, File(4, 2)]
    segments = [*SEGMENTS, segment(USERS, 0, 5, 2, 150)]

    found = gone(files, segments, max_bytes=20)[0]

    assert [(file.slot, file.sequence) for file in found] == [(3, 1), (4, 2)]


def test_a_compacted_file_expires_when_its_newest_segment_is_old_enough():
    joined = [File(3, 2), File(3, 3)]

    assert gone(joined, before_ms=150)[0] == []
    assert gone(joined, before_ms=250)[0] == [File(3, 2)]


def test_a_file_without_segments_does_not_expire():
    assert gone([*FILES, File(3, 4)], before_ms=1000)[0] == list(FILES)


def test_a_clock_that_was_set_back_makes_no_hole():
    back = [SEGMENTS[0], replace(SEGMENTS[1], staged_at_ms=50), SEGMENTS[2]]

    assert [file.sequence for file in gone(segments=back, before_ms=80)[0]] == []
