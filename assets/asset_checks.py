"""Asset checks of the stage, the offset maps and the verification, computed from the lake."""

# Without `from __future__ import annotations`: Dagster reads annotations to find resources.

from collections.abc import Iterable
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from assets.keys import offset_map_key, open_context, records_key
from assets.metadata import parity_metadata
from resources.dagster_resources import MirrorFile
from resources.delta.arrow_schema import arrow_schema
from schemas.config.flow import Flow
from schemas.staging.segment import ACCEPTED
from schemas.tables import RECORDS
from schemas.verification import KINDS

TARGET_COLUMNS = ("target_topic", "target_topic_id", "target_partition")
SOURCE_COLUMNS = (*TARGET_COLUMNS, "incarnation", "partition")


def cluster_checks(alias: str) -> list[dg.AssetChecksDefinition]:
    """Return the checks of the stage of source cluster *alias*."""

    @dg.asset_check(
        asset=records_key(alias),
        name="gaps",
        description="Fails if a gap with lost records was accepted. The metadata has the number of "
        "offsets without a record by cause.",
    )
    def _gaps(file: MirrorFile) -> dg.AssetCheckResult:
        with open_context(file) as context:
            rows = context.lake.segments(alias).rows(
                ["start", "end", "count", "gap_cause"], ds.field("gap_cause") != ""
            )
        missing = pc.subtract(pc.subtract(rows["end"], rows["start"]), rows["count"])
        causes = rows.append_column("gaps", missing).group_by("gap_cause")
        sums = causes.aggregate([("gaps", "sum")]).to_pylist()
        counted = {row["gap_cause"]: row["gaps_sum"] for row in sums}
        return dg.AssetCheckResult(
            passed=not any(cause.endswith(ACCEPTED) for cause in counted),
            severity=dg.AssetCheckSeverity.WARN,
            metadata=dict(sorted(counted.items())),
        )

    @dg.asset_check(
        asset=records_key(alias),
        name="table_schema",
        description="The table's columns are those that docs/tables.md describes.",
    )
    def _table_schema(file: MirrorFile) -> dg.AssetCheckResult:
        wanted = arrow_schema(RECORDS)
        with open_context(file) as context:
            table = context.lake.records(alias)
            # A missing table passes. `exists` does not create it.
            found = pa.schema(table.delta.schema().to_arrow()) if table.exists() else wanted
        return dg.AssetCheckResult(passed=found == wanted, metadata={"columns": len(found)})

    return [_gaps, _table_schema]


def flow_checks(flow: Flow) -> list[dg.AssetChecksDefinition]:
    """Return the checks of the offset map and of the last comparison of *flow*."""

    @dg.asset_check(
        asset=offset_map_key(flow),
        name="rising_runs",
        description="Upstream and downstream offsets of the offset runs increase along every "
        "target partition.",
    )
    def _rising_runs(file: MirrorFile) -> dg.AssetCheckResult:
        with open_context(file) as context:
            rows = context.lake.offset_map(flow).rows(
                [*SOURCE_COLUMNS, "upstream_start", "downstream_start", "length"]
            )
        falling = count_falling(rows.sort_by("downstream_start").to_pylist())
        return dg.AssetCheckResult(
            passed=falling == 0, metadata={"runs": rows.num_rows, "falling": falling}
        )

    @dg.asset_check(
        asset=[flow.key, "verification"],
        name="parity",
        description="The last comparison found nothing lost, duplicated, reordered or altered.",
    )
    def _parity(file: MirrorFile) -> dg.AssetCheckResult:
        with open_context(file) as context:
            numbers = parity_metadata(context, flow)
        passed = bool(numbers) and not any(numbers[name] for name in KINDS)
        return dg.AssetCheckResult(passed=passed, metadata=numbers)

    return [_rising_runs, _parity]


def count_falling(runs: Iterable[dict[str, Any]]) -> int:
    """Return how many of *runs*, sorted by downstream offset, do not start after the previous run.

    Downstream offsets are compared within one incarnation of the target topic, upstream offsets
    also within one incarnation of the source topic.
    """
    ends: dict[tuple[Any, ...], int] = {}
    falling = 0
    for run in runs:
        source = tuple(run[name] for name in SOURCE_COLUMNS)
        target = source[: len(TARGET_COLUMNS)]
        starts = {target: run["downstream_start"], source: run["upstream_start"]}
        falling += any(start < ends.get(key, 0) for key, start in starts.items())
        ends |= {key: start + run["length"] for key, start in starts.items()}
    return falling
