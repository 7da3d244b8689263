"""Views of a source cluster's tables, answered by deltalake's own query engine: without Spark."""

from __future__ import annotations

import pyarrow as pa
from deltalake import QueryBuilder
from deltalake.exceptions import DeltaError

from resources.delta.lake import DeltaLake
from schemas.errors import LakeError
from schemas.views import View


def query_view(view: View, lake: DeltaLake, alias: str, topic: str | None = None) -> pa.Table:
    """Return the rows of *view* on the tables of source cluster *alias*, of *topic* alone if given.

    In the order of staging, by topic and partition. No rows where nothing is staged yet. It may
    hold some 150 bytes at a time for each record of the partitions that it is about. Raises
    LakeError.
    """
    records, segments = lake.records(alias), lake.segments(alias)
    if not (records.exists() and segments.exists()):
        return pa.table({column.name: [] for column in view.columns})
    # Segments are written after their records: read before them, they never name one that is not
    # there yet.
    tables = QueryBuilder().register("segments", segments.delta).register("records", records.delta)
    order = "v.topic, v.partition, v.version, v.start_offset"
    sql = view.sql if topic is None else _filter_topic(view.sql, topic)
    try:
        answer = tables.execute(f"SELECT v.* FROM ({sql}) v ORDER BY {order}")
        return pa.table(answer.read_all())
    except (DeltaError, OSError, pa.ArrowException) as error:
        raise LakeError(f"{lake.root}: {view.name} cannot be asked: {error}") from error


def _filter_topic(sql: str, topic: str) -> str:
    """Return *sql* asked of the rows of *topic* alone, so that no others are sorted."""
    name = topic.replace("'", "''")  # how SQL writes a quote in a text
    tables = ", ".join(
        f"{table}_of AS (SELECT * FROM {table} t WHERE t.topic = '{name}')"
        for table in ("segments", "records")
    )
    narrowed = sql.replace("FROM segments ", "FROM segments_of ")
    narrowed = narrowed.replace("FROM records ", "FROM records_of ")
    return narrowed.replace("WITH ", f"WITH {tables}, ", 1)
