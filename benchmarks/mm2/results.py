"""Compute results of rounds: medians with spread, and ratios to each rival round by round."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from benchmarks.meter import Cost
from benchmarks.mm2.catch_up import CatchUp
from benchmarks.mm2.cost import Spent
from benchmarks.mm2.idle import Idle
from benchmarks.mm2.latency import Latency
from benchmarks.mm2.precision import Precision
from benchmarks.mm2.rivals import OURS
from benchmarks.mm2.staged import Grown
from benchmarks.mm2.ticks import Ticks
from benchmarks.report import spread

T = TypeVar("T")

_BY_LOAD = ("catch_up", "catch_up_ratios")

Case = Mapping[str, Any]
"""Parameters of a measure: size, partitions, rate, ..."""


def catch_up_row(rival: str, case: Case, rounds: Sequence[CatchUp]) -> dict[str, Any]:
    """Return the row of *rival*'s *rounds* over one backlog."""
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
    """Return the row of *rival*'s *rounds* at one rate, in milliseconds."""
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


def idle_row(rival: str, topics: int, found: Idle) -> dict[str, Any]:
    """Return the row of *rival* with *topics* topics; costs are per minute."""
    minutes = found.cost.seconds / 60
    return {
        "rival": rival,
        "topics": topics,
        "all_s": round(found.all_s, 1),
        "cpu_s_per_minute": round(found.cost.cpu_s / minutes, 2),
        "broker_cpu_s_per_minute": round(found.cost.broker_cpu_s / minutes, 2),
        "peak_mib": round(found.peak_bytes / 2**20),
        **({} if found.ticks is None else _ticks(found.ticks)),
    }


def staged_row(found: Grown) -> dict[str, Any]:
    """Return the row of deltamirror with a lake of one size."""
    return {
        "records": found.records,
        "brought": found.cost.records,
        "brought_s": round(found.cost.seconds, 1),
        "cpu_s_per_million": round(found.cost.cpu_s_per_million, 2),
        "peak_mib": round(found.peak_bytes / 2**20),
        "start_s": round(found.start_s, 1),
        "rests_mib": round(found.rests_bytes / 2**20),
        **_ticks(found.ticks),
        "lake_mib": round(found.lake_bytes / 2**20, 1),
        "log_mib": round(found.log_bytes / 2**20, 2),
        "commits": found.commits,
    }


def cores_row(tasks: int, size_bytes: int, rounds: Sequence[CatchUp]) -> dict[str, Any]:
    """Return the row of deltamirror's *rounds* over one backlog with *tasks* tasks."""
    return {"tasks": tasks, **catch_up_row(OURS.name, {"size_bytes": size_bytes}, rounds)}


def cost_rows(side: str, size_bytes: int, spent: Spent) -> list[dict[str, Any]]:
    """Return rows of *side*'s CPU time in one step by *where*; the total has *where* ""."""
    return [
        {
            "rival": side,
            "step": spent.step,
            "size_bytes": size_bytes,
            "records": spent.records,
            "where": where,
            "cpu_s_per_million": round(cpu_s * 1e6 / spent.records, 3),
        }
        for where, cpu_s in {"": spent.cpu_s, **spent.places}.items()
    ]


def precision_row(rival: str, found: Precision) -> dict[str, Any]:
    """Return the row of *rival*'s failover precision."""
    return {
        "rival": rival,
        "lag": found.lag,
        "reread": found.reread,
        "skipped": found.skipped,
        "unknown_partitions": found.unknown,
    }


def joined(former: Mapping[str, Any] | None, result: Mapping[str, Any]) -> dict[str, Any]:
    """Return *result* with the parts and loads that only *former* has, if both may be joined.

    So a long comparison can be run in parts. Commit, machine and number of rounds must be the same,
    and the commit must be without changes.
    """
    same = ("commit", "machine", "rounds")
    if former is None or "+" in result["commit"] or any(former[k] != result[k] for k in same):
        return dict(result)
    loads = {
        kind: [row for row in former[kind] if _load(row) not in map(_load, rows)] + rows
        for kind in _BY_LOAD
        if (rows := result.get(kind)) and kind in former
    }
    return {
        **former,
        **result,
        **loads,
        "command": f"{former['command']}; {result['command']}",
        "seconds": former["seconds"] + result["seconds"],
    }


def ratios(
    case: Case, measure: str, by_rival: Mapping[str, Sequence[float]]
) -> list[dict[str, Any]]:
    """Return deltamirror's *measure* divided by each rival's of the same round, as spreads."""
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


def _load(row: Case) -> tuple[object, ...]:
    return tuple(row.get(name) for name in ("data", "size_bytes", "partitions", "compression"))


def _ticks(ticks: Ticks) -> dict[str, Any]:
    return {
        "open_s": round(ticks.open_s, 3),
        "stage_tick_s": spread(ticks.stage_s, 3),
        "replay_tick_s": spread(ticks.replay_s, 3),
        "idle_stage_tick_s": spread(ticks.idle_stage_s, 3),
        "idle_replay_tick_s": spread(ticks.idle_replay_s, 3),
    }


def _of(rounds: Sequence[T], value: Callable[[T], float], digits: int) -> dict[str, float]:
    return spread([value(each) for each in rounds], digits)


def _costs(costs: Sequence[Cost]) -> dict[str, dict[str, float]]:
    return {
        "cpu_s_per_million": _of(costs, lambda c: c.cpu_s_per_million, 2),
        "broker_cpu_s_per_million": _of(costs, lambda c: c.broker_cpu_s_per_million, 2),
    }
