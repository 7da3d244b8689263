"""Operators' orders: written by a command, read by the loops each tick."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from resources.delta.table import LakeTable
from schemas.errors import StalePlanError
from schemas.kafka.partition import TopicPartition

PAUSE, RESUME, ACCEPT_GAP, RESTART = "pause", "resume", "accept-gap", "restart"

LAST_REQUEST_APP_ID = "last"
"""The mark of `control`: the time of the last order, in ms since 1970."""

MAX_ATTEMPTS = 10
"""How often an order is written again that another one was in the way of."""


@dataclass(frozen=True, slots=True)
class OperatorRequest:
    """One order: for a cluster alias or a flow, for all of it, a topic or a partition.

    *number* is its time: it rises from order to order, also where the table was lost and begun
    anew. A loop remembers the last one it has carried out.
    """

    number: int
    order: str
    scope: str
    topic: str | None
    partition: int | None

    def applies_to(self, partition: TopicPartition) -> bool:
        """Return whether *partition* of the scope is meant."""
        return self.topic in (None, partition.topic) and self.partition in (
            None,
            partition.partition,
        )


class ControlTable:
    """The table `control`: its commits number the orders."""

    def __init__(self, control: LakeTable) -> None:
        self._control = control
        self._requests: list[OperatorRequest] = []
        self._version = -1

    def add_request(
        self,
        order: str,
        scope: str,
        topic: str | None = None,
        partition: int | None = None,
        detail: dict[str, Any] | None = None,
    ) -> None:
        """Write an order; the loop in charge sees it at its next tick.

        Orders are numbered by their times, so each is later than the one before it, also where
        the clock was set back or two operators speak at once.
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
                "detail": json.dumps(detail or {}),
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
        """Return the orders for *scope*, in the order they were given."""
        if self._control.exists() and self._control.refresh() != self._version:
            rows = self._control.rows().sort_by("ordered_at_ms").to_pylist()
            self._requests = [
                OperatorRequest(
                    r["ordered_at_ms"], r["order"], r["scope"], r["topic"], r["partition"]
                )
                for r in rows
            ]
            self._version = self._control.version
        return [order for order in self._requests if order.scope == scope]


def is_paused(requests: Iterable[OperatorRequest], partition: TopicPartition) -> bool:
    """Return whether the last order to pause or resume *partition* was to pause it."""
    paused = False
    for order in requests:
        if order.order in (PAUSE, RESUME) and order.applies_to(partition):
            paused = order.order == PAUSE
    return paused
