"""Value bytes and timestamp statistics of a batch."""

import pyarrow as pa

from pipeline.record_stats import measure_records, timestamp_stats
from schemas.monitoring.stats import EMPTY, ValueStats


def rows(values, timestamps):
    columns = {
        "value": pa.array(values, pa.binary()),
        "timestamp_ms": pa.array(timestamps, pa.int64()),
    }
    return pa.RecordBatch.from_pydict(columns)


def test_values_count_in_bytes_and_tombstones_count_as_0():
    assert measure_records(rows([b"abc", None, b""], [1, 2, 3])).value_bytes == 3


def test_a_slice_counts_only_its_own_records():
    part = rows([b"abcd", b"ef", b"g"], [10, 20, 30]).slice(1, 1)

    load = measure_records(part)

    assert (load.value_bytes, load.timestamps) == (2, ValueStats(1, 20, 20, 20, 20))


def test_timestamp_stats_have_count_sum_min_max_and_last():
    assert timestamp_stats(pa.array([30, 10, 20], pa.int64())) == ValueStats(3, 60, 10, 30, 20)


def test_records_without_a_timestamp_are_left_out():
    assert timestamp_stats(pa.array([-1, 5, None], pa.int64())) == ValueStats(1, 5, 5, 5, 5)
    assert timestamp_stats(pa.array([-1], pa.int64())) == EMPTY


def test_timestamps_whose_sum_exceeds_64_bits_have_a_mean():
    last = 2**63 - 1

    assert timestamp_stats(pa.array([last] * 4, pa.int64())).mean == float(last)
