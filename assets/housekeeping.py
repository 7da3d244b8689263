"""The stage kept small beside the loops: what `maintain` does, by itself."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping

from assets.maintain import maintain_cluster, tables_of
from deltamirror.context import Site
from resources.coordination.lease import Lease
from schemas.errors import DeltamirrorError
from schemas.tables import RECORDS

log = logging.getLogger(__name__)

EVERY_S = 600.0
"""So rarely that it is no work, so often that a replay never meets thousands of small files."""

OFTEN_S = 60.0
COMMITS = 100
"""How often small files of small tables are merged, and checkpoints written of tables with so many
commits since the last one.

Whoever opens a table reads every commit since, a third of a millisecond each, and whoever asks for
its rows opens each file; and a loop that had to do it itself would stand still for as long.
"""


class Housekeeping:
    """The thread that maintains the source clusters whose staging *leases* this process holds."""

    def __init__(self, site: Site, leases: Mapping[str, Lease], over: threading.Event) -> None:
        self._site, self._leases, self._over = site, leases, over
        self._tables = {alias: tables_of(site, alias) for alias in leases}

    def run(self) -> None:
        """Work until it is over; a failure is logged and tried again at the next turn."""
        next_turn = time.monotonic() + EVERY_S
        while not self._over.wait(min(OFTEN_S, EVERY_S)):
            self.tidy_up()
            if time.monotonic() >= next_turn:
                self.turn()
                next_turn = time.monotonic() + EVERY_S

    def tidy_up(self) -> None:
        """Merge small files and write due checkpoints, in the clusters staged by this process."""
        for table in (table for alias in self._staged() for table in self._tables[alias]):
            try:
                if table.table is not RECORDS and table.exists():
                    table.merge()
                table.checkpoint(COMMITS)
            except DeltamirrorError as error:  # of one table: the others need it as well
                log.warning("%s is not tidied up: %s", table.path, error)

    def turn(self) -> None:
        """Maintain every cluster that is staged by this process now."""
        for alias in self._staged():
            try:
                done = maintain_cluster(self._site, alias)
            except DeltamirrorError as error:
                log.warning("stage of %s is not maintained: %s", alias, error)
                continue
            if done.joined or done.removed or done.deleted:
                log.info("%s", done)

    def _staged(self) -> Iterator[str]:
        return (alias for alias, lease in self._leases.items() if lease.is_held)
