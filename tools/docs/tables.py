"""Write docs/tables.md from the declarations of the tables and views."""

from __future__ import annotations

from collections.abc import Iterator

from schemas.tables import CLUSTER_TABLES, FLOW_TABLES, LAKE_TABLES, Column, Table
from schemas.views import GAPS, View

_TABLE_GROUPS = (
    ("One of each source cluster", "clusters/<alias>/", CLUSTER_TABLES),
    ("One of each flow", "flows/<source>__<target>/", FLOW_TABLES),
    ("One of the lake", "", LAKE_TABLES),
)
_TYPES = {"headers": "array of (key string, value binary)", "binaries": "array of binary"}


def tables_page() -> str:
    """Return the page: every table of the lake with its place, key and columns."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield "# The tables of the lake\n"
    yield "Delta tables in the folder that `deltamirror.lake` names. Only deltamirror writes them;"
    yield "any engine that reads Delta may read them. Offsets are Kafka's, times are milliseconds"
    yield "since 1970. While deltamirror runs, the table `segments` is up to 30 s behind `records`,"
    yield "and `offset_map` 2 s behind the target. deltamirror's own commands see the missing rows."
    yield "Files of `records` are joined all the time and deleted 15 minutes later: a program that"
    yield "reads one version for longer needs a larger `deltamirror.stage.vacuum.retention.ms`."
    for title, folder, tables in _TABLE_GROUPS:
        yield f"\n## {title}"
        for table in tables:
            yield from _table_section(table, folder)
    yield from _view(GAPS)
    yield ""


def _view(view: View) -> Iterator[str]:
    yield f"\n## The view `{view.name}`\n"
    yield f"One row is {view.row}: of one source cluster, from its tables `records` and `segments`."
    yield "`deltamirror gaps` queries it without Spark. In Spark SQL (other engines are similar):\n"
    yield "```sql"
    for table in ("records", "segments"):
        yield f"CREATE TEMPORARY VIEW {table} AS"
        yield f"  SELECT * FROM delta.`lake/clusters/us-east/{table}`;"
    yield f"CREATE TEMPORARY VIEW {view.name} AS"
    yield f"{view.sql.rstrip()};"
    yield "```\n"
    yield from _columns(view.columns)


def _table_section(table: Table, folder: str) -> Iterator[str]:
    yield f"\n### `{folder}{table.name}`\n"
    yield f"One row is {table.row}. Key: {_names(table.key)}.\n"
    yield from _columns(table.columns)


def _columns(columns: tuple[Column, ...]) -> Iterator[str]:
    yield "| column | type | null | meaning |"
    yield "|---|---|---|---|"
    for column in columns:
        type_ = _TYPES.get(column.type, column.type)
        null = "yes" if column.nullable else "no"
        yield f"| `{column.name}` | {type_} | {null} | {column.meaning} |"


def _names(columns: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in columns)
