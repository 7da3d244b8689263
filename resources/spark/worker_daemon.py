"""Import all libraries of the Python workers in the daemon from which Spark forks them.

PySpark's daemon imports nothing, so every worker imports the libraries itself: that takes 2 s of
CPU time, and 100 MiB that the workers could share. PySpark does so because a library may start
threads when it is imported, and a forked process does not have them. The libraries imported here
start one thread, of jemalloc, which handles forks. `resources.spark.session` configures NumPy's
OpenBLAS to start none.
"""

from __future__ import annotations

from typing import Any

import confluent_kafka.admin  # noqa: F401 - for the workers, like others here
import numpy as np
import pyarrow as pa
import pyarrow.dataset
from numba import typeof
from pyspark.daemon import manager

from resources.librdkafka import compiled as loops
from resources.librdkafka.produce_columns import PRODUCE_SCHEMA, to_produce_batch


def load_compiled() -> None:
    """Compile the loops, or load them from Numba's cache, before the first record arrives.

    They are compiled for the array types that readers and producers pass to them.
    """
    words, numbers = np.zeros(2, np.int64), np.zeros(2, np.int32)
    messages, data = np.zeros(2, loops.MESSAGE), np.zeros(0, np.uint8)
    kinds: list[tuple[Any, ...]] = [
        (loops.read_messages, words, 0, messages, words, numbers, numbers, words),
        (loops.copy_bytes, messages["key"], messages["key_len"], data),
        (loops.copy_bytes, words, words, data),
        (loops.destroy_messages, words, 0),
        (loops.read_reports, 0, 0, words, messages, 0, words, words, numbers, words),
    ]
    headers = [{"key": "k", "value": b"v"}]
    row = {**dict.fromkeys(PRODUCE_SCHEMA.names), "key": b"k", "value": b"v", "timestamp_ms": 0}
    for values in ({**row, "headers": headers}, row):
        (rows,) = pa.Table.from_pylist([values], PRODUCE_SCHEMA).to_batches()
        kinds.append((loops.produce_rows, 0, words, words, 0, 0, *to_produce_batch(rows).columns))
    for function, *arguments in kinds:
        function.compile(tuple(typeof(each) for each in arguments))  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    pa.array([b"warm"])  # the first array imports pandas, which takes 0.9 s
    load_compiled()
    manager()
