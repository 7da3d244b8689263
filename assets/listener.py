"""Create the listener by which `deltamirror run` reports to Dagster; see `deltamirror.listener`.

It is a separate module, so that Dagster is imported only if there is an instance to report to.
"""

from __future__ import annotations

import logging
import os

from deltamirror.listener import Listener

log = logging.getLogger(__name__)


def dagster_listener() -> Listener | None:
    """Return a listener for the instance of DAGSTER_HOME; None if there is none or it fails."""
    if not os.environ.get("DAGSTER_HOME"):
        return None
    from assets.event_reporter import DagsterListener

    try:
        return DagsterListener()
    except Exception as error:  # of Dagster, SQLAlchemy or the file system: mirroring continues
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
        log.warning("Dagster reports are off: %s", reason)
        return None
