"""Records that a target still holds are paired with the stage; ambiguous ones are an error."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.pairing.pair_remains import RemainderPairing
from schemas.errors.target import MapAmbiguousError, MapUnpairedError
from schemas.kafka.partition import TopicPartition
from tests.support.runs import expand_runs

REMOTE = TopicPartition("us-east.orders", 0)


def mark(letter):
    return letter.encode() * 16


def log(text, start=0):
    """Return a record for each letter; `.` is an offset without a record."""
    return [(i, mark(c)) for i, c in enumerate(text, start) if c != "."]


def remainder(staged, target, *, has_holes=False):
    """Pair *staged* (incarnation, text) with *target*; return the pairs and `complete_from`."""
    made = RemainderPairing(REMOTE)
    for record in target:
        made.take([record])
    incarnations = staged if isinstance(staged, list) else [("life1", staged)]
    records = [
        (incarnation, *record) for incarnation, text in incarnations for record in log(text, 10)
    ]
    paired = made.pair(iter(records), has_holes=has_holes)
    return {
        incarnation: list(expand_runs(runs)) for incarnation, runs in paired.runs.items()
    }, paired.complete_from


def test_after_a_deleted_head_every_record_is_paired_and_complete_from_is_set():
    pairs, complete_from = remainder("abc.de", log("c.de", 7))

    assert pairs == {"life1": [(12, 7), (14, 9), (15, 10)]}
    assert complete_from == ("life1", 12)


def test_for_an_empty_log_the_map_is_complete_from_its_end():
    assert remainder("abc", []) == ({}, ("life1", 13))


def test_an_incarnation_that_was_deleted_completely_has_no_runs():
    pairs, complete_from = remainder([("life1", "ab"), ("life2", "cd")], log("d", 9))

    assert pairs == {"life2": [(11, 9)]}
    assert complete_from == ("life2", 11)


def test_a_record_missing_in_the_middle_is_an_error_without_compaction():
    with pytest.raises(MapUnpairedError, match=r"of 4 records staged in \[10, 14\) only 3"):
        remainder("abcd", log("abd", 5))


def test_a_record_missing_in_the_middle_is_skipped_with_compaction():
    pairs, complete_from = remainder("abcd", log("ab.d"), has_holes=True)

    assert pairs == {"life1": [(10, 0), (11, 1), (13, 3)]}
    assert complete_from == ("life1", 13)


def test_the_last_of_equal_records_are_paired():
    pairs, complete_from = remainder("aabaa", log("a", 9))

    assert pairs == {"life1": [(14, 9)]}
    assert complete_from == ("life1", 14)


def test_more_equal_records_than_were_staged_are_ambiguous():
    with pytest.raises(MapAmbiguousError, match="downstream offset 5 "):
        remainder("xab", log("aab", 5))


def test_an_equal_foreign_record_out_of_order_is_ambiguous():
    with pytest.raises(MapAmbiguousError):
        remainder("abc", log("cab", 5), has_holes=True)


LETTERS = st.text("abc.", max_size=14)


def written(ours, foreign, draw):
    """Return a target's log as (offset, letter, upstream); upstream is None for foreign records."""
    records = [(c, i) for i, c in enumerate(ours, 10) if c != "."]
    for c in foreign:
        records.insert(draw.randint(0, len(records)), (c, None))
    return [(i, c, up) for i, (c, up) in enumerate(records) if c != "."]


@settings(max_examples=300)
@given(LETTERS, st.text("xyz.", max_size=6), st.integers(0, 20), st.randoms())
def test_after_any_deleted_head_the_rest_of_the_map_is_rebuilt_exactly(ours, foreign, low, draw):
    known = [(i, c, up) for i, c, up in written(ours, foreign, draw) if i >= low]

    pairs, complete_from = remainder(ours, [(i, mark(c)) for i, c, _ in known])

    held = [(up, i) for i, _, up in known if up is not None]
    sent = [i for i, c in enumerate(ours, 10) if c != "."]
    assert pairs.get("life1", []) == held
    assert [up for up in sent if complete_from is None or up >= complete_from[1]] == [
        up for up, _ in held
    ]


@settings(max_examples=300)
@given(LETTERS, st.text("xyz.", max_size=6), st.integers(0, 14), st.randoms())
def test_after_any_compaction_the_rebuilt_runs_are_part_of_the_original_map(
    ours, foreign, dirty, draw
):
    known = written(ours, foreign, draw)
    # A letter is key and value. Compaction keeps the last record of each key before *dirty*.
    clean, rest = known[:dirty], known[dirty:]
    kept = [r for i, r in enumerate(clean) if r[1] not in {c for _, c, _ in clean[i + 1 :]}]
    left = kept + rest

    pairs, complete_from = remainder(ours, [(i, mark(c)) for i, c, _ in left], has_holes=True)

    held = [(up, i) for i, _, up in left if up is not None]
    gone = [up for _, _, up in known if up is not None and up not in dict(held)]
    assert pairs.get("life1", []) == held
    assert complete_from == (("life1", max(gone) + 1) if gone else None)
