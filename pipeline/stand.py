"""A partition's staged links and its progress in; how far it is out."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.monitoring.flow_state import Standing
from schemas.replay.slot_work import Link, Progress
from schemas.staging.frontier import Frontier


def stand(
    frontier: Frontier,
    links: Sequence[tuple[Link, int | None]],
    lives: Sequence[str],
    at: Progress | None,
    target_topic: str,
    *,
    is_paused: bool,
) -> Standing:
    """Return how far the partition of *frontier* is, replayed up to *at* (None: not begun).

    *links* with their smallest timestamps, and the incarnations *lives*, in the order of staging;
    links before *at* may be missing. One that is replayed in part counts with its oldest record.
    """
    life = frontier.source.topic_id
    is_here = at is not None and at.incarnation == life
    replayed = at.next_offset if at is not None and is_here else 0
    begin = next((link.start for link, _ in links if link.incarnation == life), replayed)
    waiting = [
        oldest_ms
        for link, oldest_ms in links
        if oldest_ms is not None and oldest_ms >= 0 and _waits(link, lives, at)
    ]
    return Standing(
        frontier.source,
        target_topic,
        begin,
        max(frontier.next_offset, replayed),
        max(frontier.last_stable, replayed),
        replayed,
        min(waiting, default=None),
        is_paused,
    )


def _waits(link: Link, lives: Sequence[str], at: Progress | None) -> bool:
    """Return whether some of *link* lies past *at*."""
    if at is None or at.incarnation not in lives:
        return True
    if link.incarnation == at.incarnation:
        return link.end > at.next_offset
    return lives.index(link.incarnation) > lives.index(at.incarnation)
