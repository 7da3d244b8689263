"""A translated group resumes at its next record, with any gaps on either side."""

from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.offset_map.encode import encode_runs
from pipeline.offset_map.runs import Runs
from pipeline.offset_map.translate import translate, translate_back
from schemas.offset_map import OffsetRun

RUNS = Runs.of([OffsetRun(10, 3, 2), OffsetRun(14, 6, 2)])


@st.composite
def replicated(draw):
    """Return (upstream, downstream) of every record that arrived.

    Upstream gaps are compaction, markers and aborted records; downstream gaps the markers and
    aborted chunks of replay.
    """
    records = draw(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1))
    upstream = accumulate((gap for gap, _ in records), initial=draw(st.integers(-1, 20)))
    downstream = accumulate((gap for _, gap in records), initial=draw(st.integers(-1, 20)))
    return list(zip(upstream, downstream, strict=True))[1:]


def index(pairs):
    upstream, downstream = (np.array(side, dtype=np.int64) for side in zip(*pairs, strict=True))
    return Runs.of(encode_runs(upstream, downstream))


offsets = st.integers(0, 500)


@pytest.mark.parametrize(
    ("committed", "resumes_at"),
    [
        pytest.param(11, 4, id="on a replicated record"),
        pytest.param(12, 6, id="in a compaction gap"),
        pytest.param(16, 8, id="at the end of what has arrived"),
        pytest.param(99, 8, id="ahead of replication"),
        pytest.param(0, 3, id="before replication began"),
    ],
)
def test_a_group_resumes_at_the_first_record_at_or_after_its_commit(committed, resumes_at):
    assert translate(committed, RUNS) == resumes_at


@pytest.mark.parametrize(
    ("committed", "resumes_at"),
    [
        pytest.param(4, 11, id="on a replicated record"),
        pytest.param(5, 14, id="on a transaction marker"),
        pytest.param(8, 16, id="at the end of what has arrived"),
        pytest.param(0, 10, id="before the first record"),
    ],
)
def test_a_group_that_fails_back_resumes_at_the_source_of_its_next_record(committed, resumes_at):
    assert translate_back(committed, RUNS) == resumes_at


def test_without_replicated_records_a_commit_has_no_translation():
    nothing = Runs.of([])

    assert translate(5, nothing) is None
    assert translate_back(5, nothing) is None


@given(replicated(), offsets)
def test_a_translated_group_skips_no_record_and_reads_none_again(pairs, committed):
    resumes_at = translate(committed, index(pairs))

    unread = [downstream for upstream, downstream in pairs if upstream >= committed]
    assert [downstream for _, downstream in pairs if downstream >= resumes_at] == unread


@given(replicated(), offsets)
def test_a_group_that_fails_back_skips_no_record_and_reads_none_again(pairs, committed):
    resumes_at = translate_back(committed, index(pairs))

    unread = [upstream for upstream, downstream in pairs if downstream >= committed]
    assert [upstream for upstream, _ in pairs if upstream >= resumes_at] == unread


@given(replicated(), offsets)
def test_translating_there_and_back_gives_the_first_replicated_record_at_or_after(pairs, committed):
    runs = index(pairs)

    back = translate_back(translate(committed, runs), runs)

    here = [upstream for upstream, _ in pairs]
    assert back == next((at for at in here if at >= committed), here[-1] + 1)


@given(replicated(), offsets, offsets)
def test_a_larger_commit_never_resumes_earlier(pairs, one, other):
    runs = index(pairs)

    assert translate(min(one, other), runs) <= translate(max(one, other), runs)


@given(replicated())
def test_the_order_of_the_input_runs_does_not_matter(pairs):
    runs = index(pairs)

    shuffled = runs.take(slice(None, None, -1)).sort_by_upstream()

    assert shuffled.upstream.tolist() == runs.upstream.tolist()
    assert shuffled.downstream_end == pairs[-1][1] + 1
    assert shuffled.upstream_end == pairs[-1][0] + 1


@given(replicated(), offsets, offsets)
def test_count_between_counts_records_and_not_gaps(pairs, start, end):
    counted = index(pairs).count_between(start, end)

    assert counted == sum(start <= downstream < end for _, downstream in pairs)


def test_overlapping_runs_are_rejected():
    with pytest.raises(ValueError, match=r"upstream 11 comes after \[10, 12\)"):
        Runs.of([OffsetRun(10, 3, 2), OffsetRun(11, 9, 2)]).sort_by_upstream()
