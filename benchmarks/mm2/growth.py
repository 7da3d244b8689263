"""Measure growth: more topics, more staged records, more cores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.ground import Ground
from benchmarks.mm2 import catch_up, idle, results, rivals, staged
from benchmarks.mm2.idle import Field
from benchmarks.mm2.loads import Load
from benchmarks.mm2.parts import Part, Say
from benchmarks.mm2.rivals import EXACTLY_ONCE, OURS

Rows = list[dict[str, Any]]

WITH_TOPICS = (EXACTLY_ONCE, OURS)
"""Rivals that are measured with many topics."""


@dataclass(frozen=True)
class Growth:
    """Steps of growth: topics, records in one lake, and `tasks.max` with *loads*.

    With many topics, *idle_s* seconds are measured after *warm_s*.
    """

    topics: Sequence[int] = (10, 100, 1_000)
    staged: Sequence[int] = (1_000_000, 10_000_000, 100_000_000)
    tasks: Sequence[int] = (1, 2)
    loads: Sequence[Load] = (Load(100, 2_000_000), Load(1_024, 400_000))
    warm_s: float = 15.0
    idle_s: float = 60.0


def measure(on: Ground, growth: Growth, rounds: int, say: Say) -> Part:
    """Measure all steps of *growth*. Only the cores are measured in *rounds*."""
    return {
        "growth_topics": topics(on, growth, say),
        "growth_staged": lake(on, growth, say),
        "growth_cores": cores(on, growth, rounds, say),
    }


def topics(on: Ground, growth: Growth, say: Say) -> Rows:
    """Measure each number of topics, all but one of them idle."""
    rows = []
    for count in growth.topics:
        field = Field(count)
        say(f"making {count:,} topics")
        field.fill(on)
        for rival in WITH_TOPICS:
            flow = rivals.flow(on, rival, f"{rival.name}-idle-{count}", f"idle-{count}-.*")
            found = idle.measure(on, flow, field, growth.warm_s, growth.idle_s)
            flow.forget()
            rows.append(results.idle_row(rival.name, count, found))
            say(f"  {rival.words}: all there after {found.all_s:.1f} s")
        field.delete(on)
    return rows


def lake(on: Ground, growth: Growth, say: Say) -> Rows:
    """Measure each number of staged records in one lake."""
    flow = rivals.flow(on, OURS, "grows", staged.TOPIC, more=staged.LINES)
    rows = []
    for found in staged.measure(on, flow, growth.staged):
        rows.append(results.staged_row(found))
        say(f"  {found.records:,} staged: first record {found.start_s:.1f} s after a start")
    flow.forget()
    return rows


def cores(on: Ground, growth: Growth, rounds: int, say: Say) -> Rows:
    """Measure catch-up with each number of tasks; every second round in reverse order."""
    rows = []
    for load in growth.loads:
        say(f"filling {load.topic} with {load.records:,} records")
        load.fill(on)
        backlog = catch_up.backlog(on, load.topic, load.partitions)
        runs: dict[int, list[catch_up.CatchUp]] = {tasks: [] for tasks in growth.tasks}
        for number in range(rounds):
            for tasks in growth.tasks if number % 2 == 0 else growth.tasks[::-1]:
                alias = f"tasks-{tasks}-{load.topic}-{number}"
                more = f"tasks.max = {tasks}\n"
                flow = rivals.flow(on, OURS, alias, load.topic, more=more)
                run = catch_up.measure(on, flow, backlog)
                flow.forget()
                runs[tasks].append(run)
                say(f"  tasks.max = {tasks}: {run.records_per_s:,.0f} records/s")
        backlog.topic.delete()
        rows += [results.cores_row(tasks, load.size_bytes, found) for tasks, found in runs.items()]
    return rows
