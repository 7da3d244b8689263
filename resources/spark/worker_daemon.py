"""The process that Spark forks its Python workers from; what all of them import is there already.

PySpark's own imports nothing, so that each worker imports for itself: two seconds of CPU time, and
a hundred MiB that they could share. It does so because libraries may start threads when they are
imported, and a fork has none of them. Those imported here start one, of jemalloc, which sees to
forks itself; NumPy's OpenBLAS is told to start none (`resources.spark.session`).
"""

from __future__ import annotations

from typing import Any

import confluent_kafka.admin  # noqa: F401 - for the workers, as others here are
import numpy as np
import pyarrow as pa
import pyarrow.dataset
from numba import typeof
from pyspark.daemon import manager

from resources.librdkafka import compiled as loops
from resources.librdkafka.produce_columns import PRODUCE_SCHEMA, to_produce_batch


def load_compiled() -> None:
    """Have the loops compiled, or read from where they are kept, before the first record comes.

    They are compiled for the very kinds of arrays that readers and producers give them.
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
    for told in ({**row, "headers": headers}, row):
        (rows,) = pa.Table.from_pylist([told], PRODUCE_SCHEMA).to_batches()
        kinds.append((loops.produce_rows, 0, words, words, 0, 0, *to_produce_batch(rows).columns))
    for function, *arguments in kinds:
        function.compile(tuple(typeof(each) for each in arguments))  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    pa.array([b"warm"])  # the first one imports pandas: 0.9 s
    load_compiled()
    manager()
