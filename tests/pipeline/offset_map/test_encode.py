"""Pairs of offsets are encoded as runs, and runs expand to the same pairs."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.offset_map.encode import encode_runs
from schemas.offset_map import OffsetRun
from tests.support.runs import expand_runs


@st.composite
def sent(draw):
    """Return the offsets of some records on both sides: increasing, with gaps on either side."""
    count = draw(st.integers(0, 40))
    gaps = st.lists(st.integers(1, 3), min_size=count, max_size=count)
    start = st.integers(0, 1000)
    upstream = draw(start) + np.cumsum(np.array(draw(gaps), dtype=np.int64))
    downstream = draw(start) + np.cumsum(np.array(draw(gaps), dtype=np.int64))
    return upstream, downstream


def test_records_that_are_adjacent_on_both_sides_share_a_run():
    runs = encode_runs(np.array([10, 11, 14, 15]), np.array([3, 4, 6, 7]))

    assert runs == [OffsetRun(10, 3, 2), OffsetRun(14, 6, 2)]


def test_a_transaction_marker_on_the_target_ends_a_run():
    runs = encode_runs(np.array([10, 11, 12]), np.array([3, 4, 6]))

    assert runs == [OffsetRun(10, 3, 2), OffsetRun(12, 6, 1)]


def test_no_records_give_no_runs():
    nothing = np.array([], dtype=np.int64)

    assert encode_runs(nothing, nothing) == []


@given(sent())
def test_expanded_runs_are_the_pairs_that_were_encoded(pairs):
    upstream, downstream = pairs

    runs = encode_runs(upstream, downstream)

    assert list(expand_runs(runs)) == list(zip(upstream.tolist(), downstream.tolist(), strict=True))


@given(sent())
def test_the_number_of_runs_is_minimal(pairs):
    runs = encode_runs(*pairs)

    assert not any(
        (b.upstream_start, b.downstream_start) == (a.upstream_end, a.downstream_end)
        for a, b in pairwise(runs)
    )


@pytest.mark.parametrize(
    ("upstream", "downstream", "says"),
    [
        pytest.param([5, 5], [1, 2], "upstream offsets do not increase: 5 after 5", id="repeated"),
        pytest.param(
            [5, 6], [2, 1], "downstream offsets do not increase: 1 after 2", id="reordered"
        ),
        pytest.param([5, 6], [2], "2 upstream offsets, 1 downstream", id="a report is missing"),
        pytest.param([5], [-1001], "downstream offset -1001 is negative", id="not delivered"),
    ],
)
def test_invalid_offsets_are_an_error_with_the_numbers(upstream, downstream, says):
    with pytest.raises(ValueError, match=says):
        encode_runs(np.array(upstream), np.array(downstream))
