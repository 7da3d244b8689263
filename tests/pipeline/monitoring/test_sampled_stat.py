"""Sampled statistics cover the present sample and the one before it."""

import pytest

from pipeline.monitoring.sampled_stat import SampledStat, per_second
from schemas.monitoring.stats import EMPTY, ValueStats

ONE = ValueStats(1, 7, 7, 7, 7)


@pytest.mark.parametrize(
    ("at_s", "counts"),
    [
        pytest.param(101, True, id="one second later"),
        pytest.param(119, True, id="in its sample"),
        pytest.param(149, True, id="in the sample after it"),
        pytest.param(151, False, id="a sample later"),
    ],
)
def test_a_value_counts_in_its_sample_and_in_the_next_one(at_s, counts):
    recent = SampledStat()
    recent.add(ONE, 100)

    assert recent.read(at_s) == (ONE if counts else EMPTY)


def test_values_of_two_samples_count_together_and_older_ones_do_not():
    recent = SampledStat()
    for at_s, number in ((1, 100), (31, 5), (61, 3)):
        recent.add(ValueStats(1, number, number, number, number), at_s)

    assert recent.read(62) == ValueStats(2, 8, 3, 5, 3)


def test_values_from_before_a_pause_do_not_count():
    recent = SampledStat()
    recent.add(ONE, 10)
    recent.add(ValueStats(1, 1, 1, 1, 1), 100)

    assert recent.read(100).high == 1


def test_a_rate_covers_the_previous_sample_and_the_elapsed_part_of_the_present_one():
    recent = SampledStat()
    recent.add(ValueStats(30), 95)
    recent.add(ValueStats(60), 130)

    assert per_second(recent.read(135).count, 135) == 90 / 45
