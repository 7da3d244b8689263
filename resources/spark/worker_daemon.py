"""Import all libraries of the Python workers in the daemon from which Spark forks them.

PySpark's daemon imports nothing, because a forked process lacks the threads that a library started.
So every worker would spend 2 s of CPU time on imports, and 100 MiB that workers can share. The
libraries imported here start one thread, of jemalloc, which handles forks.
`resources.spark.session` configures NumPy's OpenBLAS to start none.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.dataset
from pyspark.daemon import manager

import resources.kafka.cluster  # noqa: F401 - for the workers, like others here
from resources.librdkafka.compiled import compile_all
from resources.librdkafka.produce_columns import PRODUCE_SCHEMA, to_produce_batch


def load_compiled() -> None:
    """Compile the loops over records before the first record arrives."""
    row = {**dict.fromkeys(PRODUCE_SCHEMA.names), "key": b"k", "value": b"v", "timestamp_ms": 0}
    rows = [{**row, "headers": [{"key": "k", "value": b"v"}]}, row]
    batches = [pa.RecordBatch.from_pylist([values], PRODUCE_SCHEMA) for values in rows]
    compile_all(to_produce_batch(batch).columns for batch in batches)


if __name__ == "__main__":
    pa.array([b"warm"])  # the first array imports pandas, which takes 0.9 s
    load_compiled()
    manager()
