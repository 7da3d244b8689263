"""The process that Spark forks its Python workers from; what all of them import is there already.

PySpark's own imports nothing, so that each worker imports for itself: two seconds of CPU time, and
a hundred MiB that they could share. It does so because libraries may start threads when they are
imported, and a fork has none of them. Those imported here start one, of jemalloc, which sees to
forks itself; NumPy's OpenBLAS is told to start none (`resources.spark.session`).
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.dataset
from pyspark.daemon import manager

import resources.kafka.cluster  # noqa: F401 - for the workers, as others here are
from resources.librdkafka.compiled import compile_all
from resources.librdkafka.produce_columns import PRODUCE_SCHEMA, to_produce_batch


def load_compiled() -> None:
    """Have the loops over records compiled before the first one comes."""
    headers = [{"key": "k", "value": b"v"}]
    row = {**dict.fromkeys(PRODUCE_SCHEMA.names), "key": b"k", "value": b"v", "timestamp_ms": 0}
    tables = [
        pa.Table.from_pylist([told], PRODUCE_SCHEMA) for told in ({**row, "headers": headers}, row)
    ]
    compile_all(to_produce_batch(rows).columns for table in tables for rows in table.to_batches())


if __name__ == "__main__":
    pa.array([b"warm"])  # the first one imports pandas: 0.9 s
    load_compiled()
    manager()
