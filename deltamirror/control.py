"""Operators' requests (pause, resume, accept-gap, restart): commands write, loops read them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from resources.delta.table import LakeTable
from schemas.errors.lake import StalePlanError
from schemas.kafka.partition import TopicPartition

PAUSE, RESUME, ACCEPT_GAP, RESTART = "pause", "resume", "accept-gap", "restart"

LAST_REQUEST_APP_ID = "last"
"""App id of the txn version of `control`: the time of the last request, in ms since 1970."""

REQUEST_COLUMNS = ("ordered_at_ms", "order", "scope", "topic", "partition")
"""The columns of `control` in the order of OperatorRequest's fields."""

MAX_ATTEMPTS = 10
"""How often a request is tried to be written if another request is written at the same time."""


@dataclass(frozen=True, slots=True)
class OperatorRequest:
    """One request for a cluster alias or a flow (*scope*): for all of it, a topic or a partition.

    *number* is its time in ms since 1970. It increases from request to request, even if the table
    was lost and re-created. A loop remembers the number of the last request that it applied.
    """

    number: int
    order: str
    scope: str
    topic: str | None
    partition: int | None

    def applies_to(self, partition: TopicPartition) -> bool:
        """Return whether the request is for *partition* of its scope."""
        is_of_topic = self.topic in (None, partition.topic)
        return is_of_topic and self.partition in (None, partition.partition)


class ControlTable:
    """The table `control`, which numbers the requests."""

    def __init__(self, control: LakeTable) -> None:
        self._control = control
        self._requests: list[OperatorRequest] = []
        self._version = -1

    def add_request(
        self, order: str, scope: str, topic: str | None = None, partition: int | None = None
    ) -> None:
        """Append a request; the loop of *scope* applies it in its next tick.

        Its number is larger than the last one, even if the clock was set back or two operators
        write at once. Raises StalePlanError after MAX_ATTEMPTS.
        """
        for left in reversed(range(MAX_ATTEMPTS)):
            self._control.refresh()
            last = self._control.txn_version(LAST_REQUEST_APP_ID)
            at_ms = max(int(time.time() * 1000), (last or 0) + 1)
            row = {
                "order": order,
                "scope": scope,
                "topic": topic,
                "partition": partition,
                "detail": "{}",
                "ordered_at_ms": at_ms,
            }
            try:
                self._control.append(
                    [row],
                    txn_versions={LAST_REQUEST_APP_ID: at_ms},
                    expected={LAST_REQUEST_APP_ID: last},
                )
            except StalePlanError:
                if not left:
                    raise
            else:
                return

    def requests_for(self, scope: str) -> list[OperatorRequest]:
        """Return the requests for *scope*, oldest first."""
        if self._control.exists() and self._control.refresh() != self._version:
            rows = self._control.rows(REQUEST_COLUMNS).sort_by("ordered_at_ms").to_pylist()
            self._requests = [OperatorRequest(*row.values()) for row in rows]
            self._version = self._control.version
        return [request for request in self._requests if request.scope == scope]


def is_paused(requests: Iterable[OperatorRequest], partition: TopicPartition) -> bool:
    """Return whether the last pause or resume request for *partition* was a pause."""
    own = [r.order for r in requests if r.order in (PAUSE, RESUME) and r.applies_to(partition)]
    return own[-1:] == [PAUSE]
