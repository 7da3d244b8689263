"""Compute the metadata of assets from the lake. It never has a record's content."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from assets.keys import offset_map_key, records_key
from deltamirror.context import MirrorContext
from schemas.config.flow import Flow
from schemas.tables import VERIFICATION
from schemas.verification import KINDS

Metadata = dict[str, Any]

MAX_ROWS = 40
"""Maximum number of series and of table rows, because Dagster stores all of them in every event."""

_OFFSET_COLUMNS = ("records", "first_offset", "last_offset")


def staged_metadata(context: MirrorContext, alias: str, topic: str) -> Metadata:
    """Return records, bytes, offset bounds and gaps (offsets without record) staged of *topic*."""
    columns = ["topic_id", "partition", "start", "end", "count", "size_bytes", "first", "last"]
    rows = context.lake.segments(alias).rows(columns, ds.field("topic") == topic)
    spans = pc.sum(pc.subtract(rows["end"], rows["start"])).as_py() or 0
    records = _sum(rows, "count")
    table = (
        rows.group_by(["topic_id", "partition"])
        .aggregate([("count", "sum"), ("first", "min"), ("last", "max"), ("end", "max")])
        .rename_columns(["incarnation", "partition", *_OFFSET_COLUMNS, "frontier"])
    )
    return {
        "dagster/row_count": records,
        "size_bytes": _sum(rows, "size_bytes"),
        "gaps": spans - records,
        **_bounds(rows, "first", "last"),
        "partitions": _table_metadata(table),
    }


def mapped_metadata(context: MirrorContext, flow: Flow, topic: str) -> Metadata:
    """Return records, offset runs and downstream offset bounds that were replayed of *topic*."""
    columns = ["target_topic", "target_topic_id", "target_partition", "downstream_start", "length"]
    rows = context.lake.offset_map(flow).rows(columns, ds.field("topic") == topic)
    last = pc.subtract(pc.add(rows["downstream_start"], rows["length"]), 1)
    rows = rows.append_column("last", last)
    table = (
        rows.group_by(["target_topic", "target_topic_id", "target_partition"])
        .aggregate([("length", "sum"), ("downstream_start", "min"), ("last", "max")])
        .rename_columns(["target_topic", "target_topic_id", "partition", *_OFFSET_COLUMNS])
    )
    return {
        "dagster/row_count": _sum(rows, "length"),
        "runs": rows.num_rows,
        **_bounds(rows, "downstream_start", "last"),
        "partitions": _table_metadata(table),
    }


def lag_metadata(rows: Sequence[Mapping[str, Any]]) -> Metadata:
    """Return the rows of `lag` of one time as series: totals, then the topics with most lag."""
    topics: dict[str, int] = {}
    for row in rows:
        topics[row["topic"]] = topics.get(row["topic"], 0) + row["lag"]
    worst = sorted(topics, key=lambda topic: (-topics[topic], topic))[:MAX_ROWS]
    return {
        # Dagster sorts series by name: with `a_` the totals come first.
        "a_total_lag": sum(topics.values()),
        "a_max_lag_records": max((row["lag"] for row in rows), default=0),
        "a_max_lag_seconds": max((row["age_ms"] or 0 for row in rows), default=0) / 1000,
        **{f"lag/{topic}": topics[topic] for topic in worst},
    }


def parity_metadata(context: MirrorContext, flow: Flow) -> Metadata:
    """Return the totals of each partition's newest comparison of *flow*, or {} if there is none."""
    rows = context.lake.flow_table(flow, VERIFICATION).rows().to_pylist()
    newest: dict[tuple[str, int], Mapping[str, int]] = {}
    for row in sorted(rows, key=lambda row: row["verified_at_ms"]):
        newest[row["topic"], row["partition"]] = row
    if not newest:
        return {}
    return {name: sum(row[name] for row in newest.values()) for name in ("records", *KINDS)}


def row_counts(context: MirrorContext) -> dict[tuple[dg.AssetKey, str], int]:
    """Return the number of records of each topic in every stage and every offset map."""
    found: dict[tuple[dg.AssetKey, str], int] = {}
    for alias in context.config.sources():
        rows = context.lake.segments(alias).rows(["topic", "count"])
        found |= _count_by_topic(records_key(alias), rows, "count")
    for config in context.config.flows:
        rows = context.lake.offset_map(config.flow).rows(["topic", "length"])
        found |= _count_by_topic(offset_map_key(config.flow), rows, "length")
    return found


def _count_by_topic(
    key: dg.AssetKey, rows: pa.Table, column: str
) -> dict[tuple[dg.AssetKey, str], int]:
    totals = rows.group_by("topic").aggregate([(column, "sum")])
    return {(key, row["topic"]): row[f"{column}_sum"] for row in totals.to_pylist()}


def _sum(rows: pa.Table, column: str) -> int:
    return int(pc.sum(rows[column]).as_py() or 0)


def _bounds(rows: pa.Table, first: str, last: str) -> Metadata:
    """Return the lowest and highest offset of all partitions, or {} if there are no records."""
    low, high = pc.min(rows[first]).as_py(), pc.max(rows[last]).as_py()
    return {} if low is None else {"first_offset": low, "last_offset": high}


def _table_metadata(rows: pa.Table) -> dg.TableMetadataValue:
    shown = rows.sort_by("partition").slice(0, MAX_ROWS).to_pylist()
    schema = dg.TableSchema([dg.TableColumn(name) for name in rows.column_names])
    return dg.MetadataValue.table([dg.TableRecord(row) for row in shown], schema)
