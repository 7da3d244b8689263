"""Arrow schemas of the lake's tables and of their data files."""

from __future__ import annotations

import pyarrow as pa

from schemas.tables import Table

HEADERS = pa.list_(pa.field("element", pa.struct({"key": pa.string(), "value": pa.binary()})))
RAW_HEADER_KEYS = pa.list_(pa.field("element", pa.binary()))

TYPES: dict[str, pa.DataType] = {
    "int": pa.int32(),
    "long": pa.int64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "headers": HEADERS,
    "binaries": RAW_HEADER_KEYS,
}


def arrow_schema(table: Table) -> pa.Schema:
    """Return the Arrow schema of *table*, partition columns included."""
    return pa.schema([pa.field(c.name, TYPES[c.type], nullable=c.nullable) for c in table.columns])


def file_schema(table: Table) -> pa.Schema:
    """Return the Arrow schema of a data file of *table*: Delta omits partition columns from it."""
    return pa.schema([f for f in arrow_schema(table) if f.name not in table.partitioned_by])
