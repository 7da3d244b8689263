"""The stage kept small beside the loops: what `maintain` does, by itself."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from assets.maintain import maintain_cluster
from assets.site import Site
from resources.lease import Lease
from schemas.errors import DeltamirrorError

log = logging.getLogger(__name__)

EVERY_S = 600.0
"""So rarely that it is no work, so often that a replay never meets thousands of small files."""


class Housekeeping:
    """The thread that maintains the source clusters whose staging *leases* this process holds."""

    def __init__(self, site: Site, leases: Mapping[str, Lease], over: threading.Event) -> None:
        self._site, self._leases, self._over = site, leases, over

    def run(self) -> None:
        """Work until it is over; a failure is logged and tried again at the next turn."""
        while not self._over.wait(EVERY_S):
            self.turn()

    def turn(self) -> None:
        """Maintain every cluster that is staged by this process now."""
        for alias, lease in self._leases.items():
            if not lease.is_held:
                continue
            try:
                done = maintain_cluster(self._site, alias)
            except DeltamirrorError as error:
                log.warning("stage of %s is not maintained: %s", alias, error)
                continue
            if done.joined or done.removed or done.deleted:
                log.info("%s", done)
