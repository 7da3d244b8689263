"""With any sample of the offset map, MirrorMaker 2's translation skips no record."""

from bisect import bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.offset_map.offset_syncs import sample_offset_syncs
from pipeline.offset_map.runs import Runs
from pipeline.offset_map.translate import translate
from schemas.offset_map import OffsetRun
from tests.support.runs import expand_runs


@st.composite
def runs(draw):
    """Return runs that increase on both sides, with gaps on either."""
    upstream, downstream, found = 0, 0, []
    parts = st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 12))
    for gap_up, gap_down, length in draw(st.lists(parts, min_size=1, max_size=6)):
        found.append(OffsetRun(upstream + gap_up, downstream + gap_down, length))
        upstream, downstream = found[-1].upstream_end, found[-1].downstream_end
    return found


def mm2_translates(committed, syncs):
    """Translate as OffsetSyncStore: the newest sync at or before it, or one offset after that."""
    i = bisect_right([upstream for upstream, _ in syncs], committed) - 1
    if i < 0:
        return None
    upstream, downstream = syncs[i]
    return downstream if upstream == committed else downstream + 1


@pytest.mark.parametrize(
    ("lag_max", "pairs"),
    [
        pytest.param(100, [(10, 3), (14, 6), (15, 7)], id="first record of each run, last record"),
        pytest.param(0, [(10, 3), (11, 4), (14, 6), (15, 7)], id="every record"),
    ],
)
def test_a_sample_has_the_start_of_each_run_the_last_record_and_every_nth_between(lag_max, pairs):
    assert sample_offset_syncs([OffsetRun(10, 3, 2), OffsetRun(14, 6, 2)], lag_max) == pairs


def test_a_long_run_is_sampled_at_mirrormaker_2s_distance():
    assert sample_offset_syncs([OffsetRun(0, 0, 203)], 100) == [(0, 0), (101, 101), (202, 202)]


def test_no_runs_give_no_sample():
    assert sample_offset_syncs([], 100) == []


@given(runs(), st.integers(0, 5), st.data())
def test_no_subset_of_a_sample_makes_a_group_skip_a_record(some, lag_max, data):
    syncs = sample_offset_syncs(some, lag_max)
    kept = sorted(data.draw(st.sets(st.sampled_from(syncs))))

    for committed in range(some[-1].upstream_end + 3):
        resumes_at = mm2_translates(committed, kept)
        exact = translate(committed, Runs.of(some))
        assert resumes_at is None or resumes_at <= exact


@given(runs(), st.integers(0, 5))
def test_with_a_full_sample_a_group_reads_at_most_the_distance_again(some, lag_max):
    syncs, downstream_offsets = (
        sample_offset_syncs(some, lag_max),
        [downstream for _, downstream in expand_runs(some)],
    )

    for committed in range(some[0].upstream_start, some[-1].upstream_end + 3):
        resumes_at, exact = mm2_translates(committed, syncs), translate(committed, Runs.of(some))
        assert (
            sum(resumes_at <= downstream_offset < exact for downstream_offset in downstream_offsets)
            <= lag_max
        )
