"""Views of a source cluster's tables, answered by deltalake's own query engine: without Spark."""

from __future__ import annotations

import pyarrow as pa
from deltalake import QueryBuilder
from deltalake.exceptions import DeltaError

from resources.lake import DeltaLake
from schemas.errors import LakeError
from schemas.views import View


def ask(view: View, lake: DeltaLake, alias: str, topic: str | None = None) -> pa.Table:
    """Return the rows of *view* on the tables of source cluster *alias*, of *topic* alone if given.

    In the order of staging, by topic and partition. No rows where nothing is staged yet.
    Raises LakeError.
    """
    records, segments = lake.records(alias), lake.segments(alias)
    if not (records.exists() and segments.exists()):
        return pa.table({column.name: [] for column in view.columns})
    # Segments are written after their records: read before them, they never name one that is not
    # there yet.
    tables = QueryBuilder().register("segments", segments.delta).register("records", records.delta)
    # A literal's quotes are doubled in SQL; a topic's name holds none, an operator's word may.
    where = "" if topic is None else "WHERE v.topic = '{}'".format(topic.replace("'", "''"))
    order = "v.topic, v.partition, v.version, v.start_offset"
    try:
        answer = tables.execute(f"SELECT v.* FROM ({view.sql}) v {where} ORDER BY {order}")
        return pa.table(answer.read_all())
    except (DeltaError, OSError, pa.ArrowException) as error:
        raise LakeError(f"{lake.root}: {view.name} cannot be asked: {error}") from error
