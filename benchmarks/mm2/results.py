"""What the rounds come to: medians with their spread, and ours to theirs, round by round."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from benchmarks.meter import Cost
from benchmarks.mm2.catch_up import CatchUp
from benchmarks.mm2.latency import Latency
from benchmarks.mm2.precision import Precision
from benchmarks.mm2.rivals import OURS
from benchmarks.report import spread

T = TypeVar("T")

Case = Mapping[str, Any]
"""What a measure was taken of: size, partitions, rate, ..."""


def catch_up_row(rival: str, case: Case, rounds: Sequence[CatchUp]) -> dict[str, Any]:
    """Return what *rival*'s *rounds* over one backlog come to."""
    return {
        "rival": rival,
        **case,
        "records": rounds[0].records,
        "records_per_s": _of(rounds, lambda r: r.records_per_s, 0),
        "first_s": _of(rounds, lambda r: r.first_s, 1),
        "last_s": _of(rounds, lambda r: r.last_s, 1),
        **_costs([r.cost for r in rounds]),
        "peak_mib": _of(rounds, lambda r: r.peak_bytes / 2**20, 0),
    }


def latency_row(rival: str, case: Case, rounds: Sequence[Latency]) -> dict[str, Any]:
    """Return what *rival*'s *rounds* at one rate come to, in milliseconds."""
    return {
        "rival": rival,
        **case,
        "achieved": _of(rounds, lambda r: r.achieved, 0),
        "p50_ms": _of(rounds, lambda r: r.p50 * 1e3, 0),
        "p95_ms": _of(rounds, lambda r: r.p95 * 1e3, 0),
        "p99_ms": _of(rounds, lambda r: r.p99 * 1e3, 0),
        "max_ms": _of(rounds, lambda r: r.worst * 1e3, 0),
        **_costs([r.cost for r in rounds]),
        "peak_mib": _of(rounds, lambda r: r.peak_bytes / 2**20, 0),
    }


def precision_row(rival: str, found: Precision) -> dict[str, Any]:
    """Return where a group of *rival*'s stands after it failed over."""
    return {
        "rival": rival,
        "lag": found.lag,
        "reread": found.reread,
        "skipped": found.skipped,
        "unknown_partitions": found.unknown,
    }


def ratios(
    case: Case, measure: str, by_rival: Mapping[str, Sequence[float]]
) -> list[dict[str, Any]]:
    """Return our *measure* divided by each rival's, of the same round, over all rounds."""
    ours = by_rival[OURS.name]
    return [
        {
            "to": rival,
            **case,
            "measure": measure,
            **spread([a / b for a, b in zip(ours, theirs, strict=True)], 2),
        }
        for rival, theirs in by_rival.items()
        if rival != OURS.name
    ]


def _of(rounds: Sequence[T], value: Callable[[T], float], digits: int) -> dict[str, float]:
    return spread([value(each) for each in rounds], digits)


def _costs(costs: Sequence[Cost]) -> dict[str, dict[str, float]]:
    return {
        "cpu_s_per_million": _of(costs, lambda c: c.cpu_s_per_million, 2),
        "broker_cpu_s_per_million": _of(costs, lambda c: c.broker_cpu_s_per_million, 2),
    }
