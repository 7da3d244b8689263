"""A rebuilt map is compared with the kept one, pair by pair."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.offset_map.encode import encode_runs
from pipeline.replay.rebuild_map import missing_runs, subtract_runs
from schemas.errors.target import MapDiffersError
from schemas.kafka.partition import TopicPartition
from schemas.offset_map import OffsetRun
from tests.support.runs import expand_runs

REMOTE = TopicPartition("us-east.orders", 0)


def runs(*numbers):
    return [OffsetRun(*each) for each in numbers]


@st.composite
def some_runs(draw):
    """Return runs that increase on both sides."""
    steps = draw(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), max_size=12))
    upstream, downstream, pairs = 0, 0, []
    for up, down in steps:
        upstream, downstream = upstream + up, downstream + down
        pairs.append((upstream, downstream))
    return of(pairs)


def of(pairs):
    return encode_runs(*(np.array([p[i] for p in pairs], np.int64) for i in (0, 1)))


@given(some_runs(), some_runs())
def test_subtracted_runs_are_the_pairs_that_only_the_first_runs_have(some, others):
    left = list(expand_runs(subtract_runs(some, others)))

    assert left == [pair for pair in expand_runs(some) if pair not in set(expand_runs(others))]


def test_equal_maps_have_no_missing_runs():
    same = runs((10, 3, 2), (14, 6, 2))

    assert missing_runs(REMOTE, same, same, 0) == []


def test_runs_missing_at_the_end_or_in_the_middle_are_returned():
    whole = runs((10, 3, 2), (14, 6, 2), (20, 9, 5))

    assert missing_runs(REMOTE, whole[:1], whole, 0) == whole[1:]
    assert missing_runs(REMOTE, [whole[0], whole[2]], whole, 0) == [whole[1]]
    assert missing_runs(REMOTE, [], whole, 0) == whole


def test_the_kept_map_may_have_records_that_the_target_has_deleted():
    assert missing_runs(REMOTE, runs((0, 0, 9)), runs((6, 6, 3)), 6) == []


@pytest.mark.parametrize(
    ("kept", "rebuilt", "complete_from", "records"),
    [
        pytest.param(runs((10, 3, 2)), runs((10, 4, 2)), 0, 2, id="another downstream offset"),
        pytest.param(runs((10, 3, 4)), runs((10, 3, 2)), 0, 2, id="not on the target"),
        pytest.param(runs((0, 0, 9)), runs((7, 7, 2)), 4, 3, id="missing after complete_from"),
        pytest.param(
            runs((0, 0, 9)), runs((2, 3, 1)), 9, 1, id="another offset before complete_from"
        ),
        pytest.param(
            runs((0, 0, 2)), runs((5, 1, 1)), 5, 1, id="one downstream offset for two records"
        ),
    ],
)
def test_a_different_kept_map_is_an_error_with_the_number_of_records(
    kept, rebuilt, complete_from, records
):
    with pytest.raises(MapDiffersError, match=f"differ in {records} records"):
        missing_runs(REMOTE, kept, rebuilt, complete_from)
