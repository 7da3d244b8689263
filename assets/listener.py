"""Offer `deltamirror run` a listener that reports to Dagster; see `deltamirror.listener`.

A module of its own, so that Dagster is imported only if there is an instance to report to.
"""

from __future__ import annotations

import logging
import os

from deltamirror.listener import Listener

log = logging.getLogger(__name__)


def dagster_listener() -> Listener | None:
    """Return a listener that reports to the instance of DAGSTER_HOME; None if that is not set.

    An instance that cannot be opened is logged, never raised.
    """
    if not os.environ.get("DAGSTER_HOME"):
        return None
    from assets.event_reporter import DagsterListener

    try:
        return DagsterListener()
    except Exception as error:  # Dagster's, SQLAlchemy's, the file system's: mirroring goes on
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
        log.warning("Dagster reports are off: %s", reason)
        return None
