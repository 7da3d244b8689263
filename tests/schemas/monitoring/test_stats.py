"""Merged statistics equal the statistics of all numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.monitoring.stats import EMPTY, ValueStats

NUMBERS = st.lists(st.integers(0, 2**40), max_size=20)


def spread(numbers):
    if not numbers:
        return EMPTY
    return ValueStats(len(numbers), sum(numbers), min(numbers), max(numbers), numbers[-1])


@given(NUMBERS, NUMBERS)
def test_merged_stats_equal_the_stats_of_all_numbers(first, second):
    assert spread(first) + spread(second) == spread(first + second)


@given(NUMBERS.filter(bool), st.integers(0, 2**40))
def test_ages_at_a_time_equal_the_stats_of_all_ages(numbers, now):
    distances = spread([now - number for number in numbers])

    assert spread(numbers).ages_at(now) == distances
    assert distances.mean == pytest.approx(sum(now - n for n in numbers) / len(numbers))
