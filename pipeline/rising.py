"""An offset map's runs as they should be, and what is wrong with those that are not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipeline.runs import Runs
from schemas.offset_map import OffsetRun
from schemas.verification import DUPLICATED, REORDERED


@dataclass(frozen=True)
class Fault:
    """What is wrong with a run itself: a *kind* of difference, from upstream *offset* on."""

    kind: str
    offset: int
    length: int
    detail: str


def rising(runs: Runs, above: int) -> tuple[Runs, list[Fault]]:
    """Return those of *runs* that rise on both sides, in order, and what is wrong with the others.

    The first one must lie at or past downstream offset *above*.
    """
    runs = runs.take(np.lexsort((runs.downstream, runs.upstream)))
    upstream_ends, downstream_ends = runs.upstream + runs.length, runs.downstream + runs.length
    if (
        (runs.upstream[1:] >= upstream_ends[:-1]).all()
        and (runs.downstream[1:] >= downstream_ends[:-1]).all()
        and (not len(runs) or runs.downstream[0] >= above)
    ):
        return runs, []
    return _sorted_out(runs, above)


def _sorted_out(runs: Runs, above: int) -> tuple[Runs, list[Fault]]:
    kept: list[int] = []
    faults: list[Fault] = []
    upstream_end, downstream_end = 0, above
    columns = (runs.upstream.tolist(), runs.downstream.tolist(), runs.length.tolist())
    for i, (upstream, downstream, length) in enumerate(zip(*columns, strict=True)):
        run = OffsetRun(upstream, downstream, length)
        if upstream < upstream_end:
            text = f"the offset map holds it more than once: {run}"
            faults.append(Fault(DUPLICATED, upstream, length, text))
        elif downstream < downstream_end:
            text = f"the offset map falls: {run} begins below {downstream_end}"
            faults.append(Fault(REORDERED, upstream, length, text))
        else:
            kept.append(i)
            upstream_end, downstream_end = run.upstream_end, run.downstream_end
    return runs.take(np.array(kept, np.int64)), faults
