"""How much a tick stages: little at first, and twice as much after each one that is behind."""

from __future__ import annotations

FIRST_BYTES = 64 * 2**20
"""A second's work, about: replay has something to send before a long backlog is staged.

Larger ticks need less CPU a record, so it is not all that a long backlog gets.
"""


def next_budget(former: int, most: int, *, is_behind: bool) -> int:
    """Return how many bytes the next tick may stage, *most* at most.

    *former* is what the last one was allowed; *is_behind* whether it left some of what there was.
    """
    return min(most, 2 * former if is_behind else FIRST_BYTES)
