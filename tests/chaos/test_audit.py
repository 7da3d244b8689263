"""The auditor and the check of translations find what is planted, without a broker."""

from array import array

import pytest

from tests.chaos.audit import Counts, Log, compare
from tests.chaos.translations import is_exact

SOURCE = [b"w-%d x" % n for n in range(6)]


@pytest.mark.parametrize(
    ("places", "found"),
    [
        ([0, 1, 2, 3, 4, 5], Counts(6)),
        ([0, 1, 3, 4, 5], Counts(6, lost=1)),
        ([0, 1, 2, 1, 2, 3, 4, 5], Counts(6, duplicated=2)),
        ([0, 1, 3, 4, 2, 5], Counts(6, reordered=1)),
        ([5, 0, 1, 1, 3, 4], Counts(6, lost=1, duplicated=1, reordered=1)),
        ([], Counts(6, lost=6)),
    ],
)
def test_lost_duplicated_and_reordered_records_are_counted(places, found):
    assert compare(SOURCE, [SOURCE[at] for at in places]) == found


def test_a_changed_record_and_an_unknown_record_are_altered_and_a_changed_one_is_not_lost():
    assert compare(SOURCE, [b"w-0 y", *SOURCE[1:], b"z-9 x"]) == Counts(6, altered=2)


def test_a_changed_copy_next_to_the_right_record_is_a_duplicate():
    assert compare(SOURCE, [*SOURCE, b"w-3 y"]) == Counts(6, duplicated=1)


@pytest.mark.parametrize(
    ("committed", "resumes_at", "right"),
    [(0, 10, True), (3, 12, True), (4, 12, True), (4, 11, False), (5, 12, False), (6, 14, True)],
)
def test_a_translation_is_exact_if_the_same_records_are_left_unread(committed, resumes_at, right):
    source = Log(array("q", [0, 1, 4, 5]), SOURCE[:4])
    target = Log(array("q", [10, 11, 12, 13]), SOURCE[:4])

    assert is_exact(source, target, committed, resumes_at) is right
