"""Offset runs as the pairs of offsets that they mean."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from schemas.offset_map import OffsetRun


def expand_runs(runs: Iterable[OffsetRun]) -> Iterator[tuple[int, int]]:
    """Yield the (upstream, downstream) pairs of *runs*."""
    for run in runs:
        yield from zip(
            range(run.upstream_start, run.upstream_end),
            range(run.downstream_start, run.downstream_end),
            strict=True,
        )
