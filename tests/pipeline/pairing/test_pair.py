"""Staged records are paired with the target's records by content."""

from itertools import combinations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pipeline.pairing.pair import Pairing, fingerprints
from schemas.errors.target import MapAmbiguousError, MapUnpairedError
from schemas.kafka.partition import SourcePartition, TopicPartition
from tests.support.fake_cluster import RecordContent, rows
from tests.support.runs import expand_runs

ORDERS = TopicPartition("us-east.orders", 0)


def log(text, start=0):
    """Return a record for each letter; `.` is an offset without a record."""
    return [(i, c.encode()) for i, c in enumerate(text, start) if c != "."]


def pairing(staged, target, at_once=3):
    """Pair *staged* with *target*, which comes in batches."""
    made = Pairing(ORDERS, (("life1", *record) for record in staged))
    for i in range(0, len(target), at_once):
        made.take(target[i : i + at_once])
    return made


def pair(staged, target):
    return list(expand_runs(pairing(staged, target).all_pairs().runs.get("life1", [])))


def prefix(staged, target):
    return list(expand_runs(pairing(staged, target).leading_pairs().runs.get("life1", [])))


def ways(staged, target):
    """Return every way to pair all of *staged* with *target*, by exhaustive search."""
    return [
        list(zip([offset for offset, _ in staged], [offset for offset, _ in chosen], strict=True))
        for chosen in combinations(target, len(staged))
        if [mark for _, mark in chosen] == [mark for _, mark in staged]
    ]


def test_records_are_paired_in_order_across_gaps_on_both_sides():
    assert pair(log("ab..c", 10), log("ab.c")) == [(10, 0), (11, 1), (14, 3)]


def test_foreign_records_between_pairs_are_skipped():
    assert pair(log("abc"), log("xaybzzc")) == [(0, 1), (1, 3), (2, 6)]


def test_equal_staged_records_are_not_ambiguous():
    assert pair(log("aaa"), log("a.aa")) == [(0, 0), (1, 2), (2, 3)]


def test_an_equal_foreign_record_is_ambiguous_and_its_offset_is_named():
    with pytest.raises(MapAmbiguousError, match="downstream offset 1 fits"):
        pair(log("ab", 7), log(".aab"))


def test_missing_records_are_an_error_with_counts():
    with pytest.raises(MapUnpairedError, match=r"of 3 records staged in \[5, 8\) only 2"):
        pair(log("abc", 5), log("acb"))


def test_leading_pairs_end_at_the_first_missing_record():
    assert prefix(log("abcd"), log("xabyc")) == [(0, 1), (1, 2), (2, 4)]
    assert prefix(log("abcd"), log("")) == []


@settings(max_examples=400)
@given(st.text("ab.", max_size=5), st.text("ab.", max_size=9), st.integers(1, 4))
def test_a_pairing_that_succeeds_is_the_only_possible_one(ours, theirs, at_once):
    staged, target = log(ours, 10), log(theirs)
    possible = ways(staged, target)

    made = pairing(staged, target, at_once)

    if not possible:
        with pytest.raises(MapUnpairedError):
            made.all_pairs()
    elif len(possible) > 1:
        with pytest.raises(MapAmbiguousError):
            made.all_pairs()
    else:
        assert list(expand_runs(made.all_pairs().runs.get("life1", []))) == possible[0]


@given(st.text("ab.", max_size=12), st.text("xyz.", max_size=8), st.randoms())
def test_written_records_are_paired_among_any_foreign_records(ours, foreign, random):
    assume(ours.strip("."))
    mixed = [(c, True) for c in ours if c != "."]
    for c in foreign:
        mixed.insert(random.randint(0, len(mixed)), (c, False))
    target = [(i, c.encode()) for i, (c, _) in enumerate(mixed) if c != "."]

    found = pair(log(ours), target)

    assert [down for _, down in found] == [i for i, (_, own) in enumerate(mixed) if own]
    assert [up for up, _ in found] == [offset for offset, _ in log(ours)]


@pytest.mark.parametrize(
    "other",
    [
        RecordContent(b"w", b"k", (("h", b"1"),), 5),
        RecordContent(b"v", b"l", (("h", b"1"),), 5),
        RecordContent(b"v", b"k", (("h", None),), 5),
        RecordContent(b"v", b"k", (("h", b""),), 5),
        RecordContent(b"v", b"k", (), 5),
        RecordContent(b"v", b"k", (("h", b"1"),), 6),
        RecordContent(b"kv", None, (("h", b"1"),), 5),
        RecordContent(b"", b"kv", (("h", b"1"),), 5),
    ],
)
def test_different_content_has_a_different_fingerprint(other):
    source = SourcePartition("orders", "life1", 0)
    batch = rows(source, [(0, RecordContent(b"v", b"k", (("h", b"1"),), 5)), (1, other)])

    one, two = fingerprints(batch)

    assert one != two
    assert len(one) == 16


def test_null_and_empty_have_different_fingerprints():
    source = SourcePartition("orders", "life1", 0)
    contents = [
        RecordContent(None, None),
        RecordContent(b"", None),
        RecordContent(None, b""),
        RecordContent(b"", b""),
    ]

    assert len(set(fingerprints(rows(source, list(enumerate(contents)))))) == 4
