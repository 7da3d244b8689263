"""Arrow schemas of the lake's tables, and of records in memory."""

from __future__ import annotations

import pyarrow as pa

from schemas.tables import RECORDS, Table

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
    """Return the Arrow schema of *table* and of its data files."""
    return pa.schema([pa.field(c.name, TYPES[c.type], nullable=c.nullable) for c in table.columns])


ROW_SCHEMA = pa.schema([field for field in arrow_schema(RECORDS) if field.name != "slot"])
"""Schema of records in memory: the columns of `records` without `slot`, which the writer adds."""
