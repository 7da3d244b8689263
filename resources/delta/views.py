"""Query views of a source cluster's tables with deltalake's query engine, without Spark."""

from __future__ import annotations

from tempfile import TemporaryDirectory

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from deltalake.exceptions import DeltaError

from resources.delta.lake import DeltaLake
from schemas.errors.lake import LakeError
from schemas.views import View


def query_view(view: View, lake: DeltaLake, alias: str, topic: str | None = None) -> pa.Table:
    """Return the rows of *view* on the tables of source cluster *alias*.

    If *topic* is given, return only its rows. Rows are ordered by topic, partition and order of
    staging. There are none if nothing is staged yet. The query takes about 150 bytes of memory for
    each record of the partitions it reads. Raises LakeError.
    """
    records, segments = lake.records(alias), lake.segments(alias)
    if not (records.exists() and segments.exists()):
        return pa.table({column.name: [] for column in view.columns})
    # Segments are written after their records. So they are read first: no segment read here has
    # records that are missing.
    unsealed = segments.unsealed_rows()
    order = "v.topic, v.partition, v.version, v.start_offset"
    sql = view.sql if topic is None else _filter_topic(view.sql, topic)
    columns = ", ".join(f'"{name}"' for name in unsealed.column_names)
    both = f"(SELECT {columns} FROM segments UNION ALL SELECT {columns} FROM unsealed)"
    try:
        with TemporaryDirectory() as folder:
            write_deltalake(folder, unsealed)
            tables = QueryBuilder().register("segments", segments.delta)
            tables.register("records", records.delta).register("unsealed", DeltaTable(folder))
            sql = sql.replace("FROM segments ", f"FROM {both} ")
            answer = tables.execute(f"SELECT v.* FROM ({sql}) v ORDER BY {order}")
            return pa.table(answer.read_all())
    except (DeltaError, OSError, pa.ArrowException) as error:
        raise LakeError(f"{lake.root}: view {view.name} cannot be queried: {error}") from error


def _filter_topic(sql: str, topic: str) -> str:
    """Return *sql* restricted to the rows of *topic*, so that no other rows are sorted."""
    name = topic.replace("'", "''")
    tables = ", ".join(
        f"{table}_of AS (SELECT * FROM {table} t WHERE t.topic = '{name}')"
        for table in ("segments", "records")
    )
    narrowed = sql.replace("FROM segments ", "FROM segments_of ")
    narrowed = narrowed.replace("FROM records ", "FROM records_of ")
    return narrowed.replace("WITH ", f"WITH {tables}, ", 1)
