"""The examples in docs/reading-the-lake.md return the staged records."""

import re
from pathlib import Path

import pyarrow as pa
import pytest

from resources.spark.session import spark_session
from schemas.kafka.partition import SourcePartition
from tests.support.lake import ScriptedContext
from tests.support.staged_lake import stage_records

PAGE = Path(__file__).parents[3] / "docs" / "reading-the-lake.md"
ORDERS, OTHER = SourcePartition("orders", "id1", 0), SourcePartition("orders", "id1", 1)


def example(engine):
    """Return the code of the section *engine* of the page."""
    section = PAGE.read_text(encoding="utf-8").split(f"\n## {engine}\n")[1]
    return re.search(r"```python\n(.*?)```", section, re.DOTALL)[1]


def as_pairs(rows):
    if hasattr(rows, "__arrow_c_stream__"):
        rows = zip(*pa.table(rows).to_pydict().values(), strict=True)
    return [(offset, None if value is None else bytes(value)) for offset, value in rows]


@pytest.mark.parametrize(
    "engine", ["Polars", "DuckDB", "deltalake", pytest.param("Spark", marks=pytest.mark.story)]
)
def test_the_example_of_each_engine_returns_the_staged_records(engine, lake, monkeypatch):
    context = ScriptedContext(lake)
    stage_records(context, (ORDERS, 0, 4), (OTHER, 0, 9))
    stage_records(context, (ORDERS, 4, 6))
    monkeypatch.chdir(lake.parent)
    names = {"spark": spark_session()} if engine == "Spark" else {}

    code = example(engine)
    if engine == "Spark":  # its working directory is that of the first test that used it
        code = code.replace('"lake/', f'"{lake}/')
    exec(code, names)

    expected = [(i, None if i % 5 == 0 else b"orders[0] %d" % i) for i in range(2, 6)]
    assert as_pairs(names["rows"]) == expected
