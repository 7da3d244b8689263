"""Each planted difference is found once, and equal sides have no differences."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.offset_map.runs import Runs
from pipeline.record_digest import Digest
from pipeline.verification.compare import RecordStream, diff_fields, is_same
from pipeline.verification.stage_audit import Evidence, StageAudit
from pipeline.verification.target_audit import (
    StagedIncarnation,
    TargetAudit,
    TargetView,
    arrival_bounds,
)
from schemas.kafka.partition import TopicPartition
from schemas.offset_map import OffsetRun
from schemas.verification import EXPLAINED, KINDS, PartitionFindings

ORDERS = TopicPartition("orders", 0)
REMOTE = TopicPartition("us-east.orders", 0)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
NONE = dict.fromkeys((*KINDS, *EXPLAINED), 0)


def rows(*records):
    """Return a batch of (offset, value) or (offset, value, headers)."""
    records = [(*record, None)[:3] for record in records]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([o for o, _, _ in records], pa.int64()),
            pa.array([1] * len(records), pa.int64()),
            pa.array([b"k"] * len(records), pa.binary()),
            pa.array([v for _, v, _ in records], pa.binary()),
            pa.array([h for _, _, h in records], HEADERS),
            pa.nulls(len(records), pa.list_(pa.binary())),
        ],
        ["offset", "timestamp_ms", "key", "value", "headers", "raw_header_keys"],
    )


def numbered(*offsets):
    return [(o, b"%d" % o) for o in offsets]


def evidence(start, end, records):
    digest = Digest()
    if records:
        digest.add(rows(*records))
    return Evidence(start, end, len(records), digest.hexdigest())


STAGED = numbered(10, 11, 14, 15)
SEGMENTS = [evidence(10, 13, STAGED[:2]), evidence(13, 13, []), evidence(13, 18, STAGED[2:])]


def audit_stage(staged, source=None, kept=0, is_counted=True, damage=""):
    found = PartitionFindings("a->b", ORDERS)
    feed = None if source is None else RecordStream(iter([rows(*part) for part in source]))
    audit = StageAudit(found, SEGMENTS, kept, feed, is_counted=is_counted)
    for part in staged:
        audit.add_rows(rows(*part))
    audit.finish(damage)
    return found


def counts(**some):
    return NONE | some


def test_a_stage_that_equals_its_source_has_no_differences_in_any_batching():
    found = audit_stage([STAGED[:3], STAGED[3:]], [STAGED[:1], STAGED[1:]])

    assert found.is_same
    assert found.counts == NONE


@pytest.mark.parametrize(
    ("staged", "source", "expected"),
    [
        pytest.param(STAGED[1:], STAGED, counts(lost=1), id="lost, and on the source"),
        pytest.param(STAGED[:3], STAGED, counts(lost=1), id="the last one lost"),
        pytest.param(STAGED[:2], None, counts(lost=2), id="a file lost, source not compared"),
        pytest.param(
            STAGED[1:],
            STAGED[2:],
            counts(lost=1, gone_upstream=1),
            id="one lost, one deleted on the source",
        ),
        pytest.param(
            [*STAGED[:3], (15, b"x")],
            STAGED,
            counts(altered=1),
            id="altered: found with the source",
        ),
        pytest.param(
            [*STAGED[:3], (15, b"x")], None, counts(altered=1), id="altered: found with the digest"
        ),
        pytest.param(
            [*STAGED[:2], (12, b"n"), *STAGED[2:]], None, counts(altered=1), id="one too many"
        ),
        pytest.param(STAGED, STAGED[2:], counts(gone_upstream=2), id="expired on the source"),
        pytest.param(STAGED, STAGED[::2], counts(gone_upstream=2), id="compacted on the source"),
        pytest.param(STAGED, [], counts(gone_upstream=4), id="all of it expired"),
    ],
)
def test_each_difference_of_the_stage_is_found_once(staged, source, expected):
    found = audit_stage([staged], None if source is None else [source])

    assert found.counts == expected


def test_offsets_that_the_stage_holds_twice_are_duplicated():
    assert audit_stage([STAGED, STAGED[1:3]], [STAGED]).counts == counts(duplicated=2)


@pytest.mark.parametrize("source", [None, STAGED, STAGED[2:]])
def test_records_that_retention_deleted_from_the_stage_are_not_lost(source):
    held = None if source is None else [source]

    assert audit_stage([STAGED[2:]], held, kept=13).counts == counts(expired_staged=2)


def test_an_unreadable_file_is_named_if_its_records_are_missing():
    (difference,) = audit_stage([STAGED[:2]], damage="part-1 cannot be read").differences

    assert (difference.kind, difference.offset) == ("lost", 13)
    assert "part-1 cannot be read" in difference.detail


def test_header_keys_are_compared_by_their_raw_bytes():
    one, other = (
        rows(*[(o, b"v", [{"key": "\ufffd", "value": b""}]) for o in (10, 11)]).set_column(
            5, "raw_header_keys", pa.array([[key]] * 2)
        )
        for key in (b"\xff", b"\xfe")
    )

    assert not is_same(one, other)
    assert diff_fields(one, other).tolist() == [True, True]
    assert is_same(one, one)


def test_null_and_empty_values_differ_but_null_headers_equal_an_empty_list():
    one = [(10, None), (11, b""), (14, b"v", []), (15, b"v", [{"key": "h", "value": None}])]
    other = [(10, b""), (11, b""), (14, b"v"), (15, b"v", [{"key": "h", "value": b""}])]

    found = audit_stage([one], [other], is_counted=False)

    assert [(d.kind, d.offset) for d in found.differences] == [("altered", 10), ("altered", 15)]


RUNS = (OffsetRun(10, 3, 2), OffsetRun(14, 6, 2))
ARRIVED = [(3, b"10"), (4, b"11"), (6, b"14"), (7, b"15")]


def audit_target(
    target, staged=STAGED, runs=RUNS, due=18, reach=18, low=0, end=100, ours=0, **view
):
    found = PartitionFindings("a->b", ORDERS)
    incarnations = [StagedIncarnation("id", Runs.of(runs), due, reach, ours)]
    audit = TargetAudit(
        found,
        incarnations,
        TargetView(REMOTE, low, end, **view),
        RecordStream(iter([rows(*target)])),
    )
    audit.add_rows("id", rows(*staged[:3]))
    if staged[3:]:
        audit.add_rows("id", rows(*staged[3:]))
    audit.finish()
    if audit.extras:
        audit.match_extras(rows(*staged))
        audit.close()
    return found


def test_a_target_that_agrees_with_the_map_has_no_differences():
    assert audit_target(ARRIVED).counts == NONE


@pytest.mark.parametrize(
    ("target", "expected", "offset"),
    [
        pytest.param([*ARRIVED[:2], ARRIVED[3]], counts(lost=1), 14, id="lost"),
        pytest.param(ARRIVED[:3], counts(lost=1), 15, id="the last one lost"),
        pytest.param([*ARRIVED, (9, b"11")], counts(duplicated=1), 11, id="sent twice"),
        pytest.param(
            [*ARRIVED[:2], (5, b"10"), *ARRIVED[2:]],
            counts(duplicated=1),
            10,
            id="sent twice, second copy in the middle",
        ),
        pytest.param(
            [(3, b"11"), (4, b"10"), *ARRIVED[2:]], counts(reordered=2), 10, id="two swapped"
        ),
        pytest.param([*ARRIVED[1:], (9, b"10")], counts(reordered=1), 10, id="moved to the end"),
        pytest.param([(3, b"x"), *ARRIVED[1:]], counts(altered=1), 10, id="altered"),
        pytest.param([*ARRIVED, (9, b"x")], counts(foreign=1), None, id="of another producer"),
    ],
)
def test_each_difference_of_the_target_is_found_once(target, expected, offset):
    found = audit_target(target)

    assert found.counts == expected
    assert [d.offset for d in found.differences][:1] == ([] if offset is None else [offset])


def test_records_that_the_target_deleted_by_retention_are_not_lost():
    assert audit_target(ARRIVED[2:], low=5).counts == counts(expired_downstream=2)
    assert audit_target([], low=9, end=9).counts == counts(expired_downstream=4)


def test_records_that_the_target_deleted_by_compaction_are_not_lost():
    found = audit_target(ARRIVED[1:], is_compacted=True)

    assert found.counts == counts(expired_downstream=1)


def test_a_mapped_record_missing_in_the_stage_is_not_a_difference_of_the_target():
    assert audit_target(ARRIVED, staged=STAGED[1:]).counts == NONE


def test_records_that_are_in_no_run_are_found_by_their_content():
    assert audit_target(ARRIVED, runs=RUNS[:1]).counts == NONE
    assert audit_target(ARRIVED, runs=RUNS[1:]).counts == NONE
    assert audit_target([(0, b"x"), *ARRIVED], runs=()).counts == counts(foreign=1)


def test_unmapped_records_can_be_expired_only_before_the_first_record_on_the_target():
    assert audit_target(ARRIVED[2:], runs=(), low=5).counts == counts(expired_downstream=2)
    found = audit_target([ARRIVED[0], *ARRIVED[2:]], runs=(), low=2)
    assert found.counts == counts(lost=1)


def test_mirrormaker_2s_missing_records_are_reported_and_its_duplicates_are_foreign():
    target = [(0, b"11"), (1, b"10"), *ARRIVED[1:]]

    taken_over = audit_target(target, runs=[OffsetRun(11, 4, 1), RUNS[1]], ours=14, since=6)
    ours_all_along = audit_target(target, runs=[OffsetRun(11, 4, 1), RUNS[1]])

    assert taken_over.counts == {**NONE, "never_copied": 1, "foreign": 2}
    assert ours_all_along.counts["duplicated"] == 1


def test_records_sent_during_the_audit_are_neither_lost_nor_foreign():
    late = (OffsetRun(10, 3, 2), OffsetRun(14, 106, 2))

    assert audit_target(ARRIVED[:2], runs=RUNS[:1], due=12).counts == NONE
    assert audit_target(ARRIVED[:2], runs=late, due=12).counts == NONE
    assert audit_target(ARRIVED[:2], runs=late, due=18).counts == counts(lost=2)


def test_a_map_that_decreases_or_has_a_record_twice_is_a_difference():
    falls = audit_target(ARRIVED, runs=(OffsetRun(10, 6, 2), OffsetRun(14, 3, 2)))
    twice = audit_target(ARRIVED, runs=(*RUNS, OffsetRun(15, 9, 1)))

    assert falls.counts["reordered"] >= 2
    assert twice.counts["duplicated"] == 1


def test_incarnations_are_due_one_after_another():
    due = arrival_bounds(["a", "b", "c"], ("b", 7), ("c", 2))

    assert due["a"][0] > 10**9
    assert (due["b"][0], due["c"]) == (7, (0, 2))
    assert arrival_bounds(["a"], None, None) == {"a": (0, 0)}


@given(st.data())
def test_lost_and_duplicated_records_are_counted_exactly(data):
    size = data.draw(st.integers(1, 30))
    staged = numbered(*range(size))
    arrived = [(2 * o, value) for o, value in staged]
    lost = data.draw(st.sets(st.integers(0, size - 1)))
    copied = data.draw(st.sets(st.integers(0, size - 1)).map(lambda found: found - lost))
    target = [pair for o, pair in enumerate(arrived) if o not in lost]
    target += [(2 * size + i, b"%d" % o) for i, o in enumerate(sorted(copied))]

    runs = [OffsetRun(o, 2 * o, 1) for o in range(size)]
    found = audit_target(target or [], staged=staged, runs=runs, due=size, reach=size)

    assert found.counts == counts(lost=len(lost), duplicated=len(copied))
