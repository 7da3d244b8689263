"""Waits and intervals of a run, as one value: loops take it, and tests pass their own."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timings:
    """Waits and intervals in seconds; the defaults are those of `deltamirror run`."""

    tick_interval_s: float = 0.25
    """Shortest time between two ticks of a loop: each tick makes commits and small files."""

    max_idle_interval_s: float = 1.0
    """The same for an idle loop whose tick takes long: with 1,000 topics it takes 0.1 s."""

    lease_poll_interval_s: float = 1.0
    """How often a loop tries to take a lease that another process holds."""

    backoff_initial_s: float = 0.2
    backoff_max_s: float = 5.0
    """First and longest wait after a failed tick. The wait doubles in between."""

    failure_timeout_s: float = 30.0
    """A loop that fails for longer is unhealthy; a run until caught up then gives up."""

    stop_timeout_s: float = 8.0
    """How long a stopped loop may take to end. Then the process ends without it."""

    lag_interval_s: float = 5.0
    """How often a replay loop computes its lag: with 1,000 topics it takes 10 ms."""

    partition_retry_s: float = 5.0
    """How long a partition that was not read to its end is left out of staging."""

    transient_retry_s: float = 15.0
    """How long a partition with a transient error is left out of replay."""

    seal_interval_s: float = 30.0
    """How often staging appends the segments of its commits to the table `segments`."""

    map_interval_s: float = 2.0
    """How often replay appends to the offset map."""

    lag_table_interval_s: float = 60.0
    """How often the lag is appended to the table `lag`."""

    full_read_interval_s: float = 5.0
    """How often staging requests the watermarks of all partitions, not only of busy ones."""

    topics_max_age_s: float = 5.0
    """How old replay's view of the target's topics may be."""

    groups_interval_s: float = 60.0
    """How often groups are read if no flow sets `emit.checkpoints.interval.seconds`."""

    offset_syncs_interval_s: float = 1.0
    """How often pending offset syncs are written."""

    compact_interval_s: float = 5.0
    """How often a run looks for small files of `records` to join."""

    optimize_interval_s: float = 60.0
    """How often a run joins the files of the other tables, and deletes replaced files."""

    maintain_interval_s: float = 600.0
    """How often a run applies retention."""
