"""A tick's bound of bytes begins small, and doubles while there is a backlog."""

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from pipeline.staging.plan import INITIAL_TICK_BYTES, next_tick_bytes

BYTES = st.integers(1, 2**40)


@given(former=BYTES, most=BYTES, is_behind=st.booleans())
def test_a_tick_may_stage_at_least_one_byte_and_at_most_the_bound(former, most, is_behind):
    assert 0 < next_tick_bytes(former, most, is_behind=is_behind) <= most


@given(most=BYTES, ticks=st.integers(0, 60))
def test_during_a_backlog_ticks_grow_up_to_the_bound_and_never_shrink(most, ticks):
    first = next_tick_bytes(most, most, is_behind=False)

    budgets = list(
        accumulate(
            range(ticks), lambda b, _: next_tick_bytes(b, most, is_behind=True), initial=first
        )
    )

    assert budgets == sorted(budgets)
    assert budgets[-1] == min(most, first * 2**ticks)


@given(former=BYTES, most=st.integers(INITIAL_TICK_BYTES, 2**40))
def test_after_catching_up_ticks_are_small_again(former, most):
    assert next_tick_bytes(former, most, is_behind=False) == INITIAL_TICK_BYTES
