"""How far each partition of a flow is, kept over time."""

from __future__ import annotations

import time
from typing import Any

from assets.survey import survey
from deltamirror.context import Site
from schemas.config.config import FlowConfig
from schemas.tables import LAG

COLUMNS = ("topic", "partition", "source_end", "staged", "replayed", "lag", "age_ms")


def write_lag(site: Site, flow_config: FlowConfig) -> list[dict[str, Any]]:
    """Append how far every partition of the flow is now; return the rows of `lag`.

    While a cluster is down nothing is appended: what is not known is no measurement.
    """
    state = survey(site, flow_config)
    if state.state == "unreachable":
        return []
    now_ms = int(time.time() * 1000)
    rows = [
        {**{name: getattr(each, name) for name in COLUMNS}, "measured_at_ms": now_ms}
        for each in state.partitions
    ]
    if rows:
        site.lake.of_flow(flow_config.flow, LAG).append(rows)
    return rows
