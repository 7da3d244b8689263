"""An offset map is looked up by partition; a topic's newest incarnation is the default."""

import time

import numpy as np
import pyarrow as pa
import pytest

from pipeline.offset_map.index import MAP_COLUMNS, build_index
from pipeline.offset_map.translate import translate
from schemas.kafka.partition import TopicPartition

ORDERS = TopicPartition("orders", 0)


def row(
    upstream,
    downstream,
    length,
    *,
    source_incarnation="life1",
    target_incarnation="t1",
    at=1,
    partition=0,
):
    source = ("orders", partition, source_incarnation)
    target = ("us.orders", target_incarnation, partition)
    return (*source, *target, upstream, downstream, length, at)


def offset_map(*rows):
    source = [pa.string(), pa.int32(), pa.string()]
    target = [pa.string(), pa.string(), pa.int32()]
    types = [*source, *target, *[pa.int64()] * 4]
    columns = [list(column) for column in zip(*rows, strict=True)] or [[]] * len(types)
    arrays = [pa.array(column, type_) for column, type_ in zip(columns, types, strict=True)]
    return pa.table(dict(zip(MAP_COLUMNS, arrays, strict=True)))


def test_rows_of_a_partition_can_be_in_any_order():
    map_index = build_index(
        offset_map(row(14, 6, 2, at=2), row(10, 3, 2), row(0, 0, 5, partition=1))
    )

    source_incarnation = map_index.mapped_incarnation(ORDERS)

    assert (source_incarnation.target_topic, source_incarnation.target_partition) == (
        "us.orders",
        0,
    )
    assert translate(12, source_incarnation.runs) == 6
    assert translate(99, map_index.mapped_incarnation(TopicPartition("orders", 1)).runs) == 5


def test_a_partition_that_is_not_mirrored_has_no_map():
    assert build_index(offset_map()).mapped_incarnation(ORDERS) is None
    assert (
        build_index(offset_map(row(0, 0, 1))).mapped_incarnation(ORDERS, "another incarnation")
        is None
    )


def test_a_re_created_topic_has_the_map_of_its_newest_incarnation_by_default():
    map_index = build_index(
        offset_map(row(0, 0, 9, at=1), row(0, 9, 4, source_incarnation="life2", at=2))
    )

    assert map_index.mapped_incarnation(ORDERS).incarnation == "life2"
    assert map_index.mapped_incarnation(ORDERS, "life1").incarnation == "life1"


def test_incarnations_are_in_order_in_a_map_that_was_rebuilt_in_one_commit():
    map_index = build_index(
        offset_map(
            row(0, 9, 4, source_incarnation="life2", at=5),
            row(0, 0, 9, source_incarnation="life1", at=5),
        )
    )

    assert map_index.mapped_incarnation(ORDERS).incarnation == "life2"


def test_a_topic_id_means_its_newest_incarnation_after_a_log_truncation():
    map_index = build_index(
        offset_map(row(0, 0, 9, at=1), row(5, 9, 4, source_incarnation="life1+1", at=2))
    )

    assert map_index.mapped_incarnation(ORDERS, "life1").incarnation == "life1+1"
    assert map_index.mapped_incarnation(ORDERS, "life1+1").incarnation == "life1+1"


def test_offsets_of_a_previous_target_topic_are_not_used():
    map_index = build_index(
        offset_map(row(0, 0, 9, at=1), row(0, 0, 4, target_incarnation="t2", at=2))
    )

    assert map_index.mapped_incarnation(ORDERS).runs.upstream_end == 4


def test_the_source_of_a_target_partition_is_found():
    map_index = build_index(offset_map(row(0, 0, 1)))

    assert map_index.source_of(TopicPartition("us.orders", 0)) == ORDERS
    assert map_index.source_of(TopicPartition("us.orders", 1)) is None


def test_overlapping_runs_are_an_error_that_names_the_partition():
    with pytest.raises(ValueError, match=r"orders\[0\]: offset runs overlap"):
        build_index(offset_map(row(0, 0, 9), row(5, 9, 9)))


def test_a_million_runs_are_indexed_in_seconds_and_translated_in_microseconds():
    runs = np.arange(1_000_000, dtype=np.int64)
    one = offset_map(row(0, 0, 1))
    table = pa.table(
        {
            name: runs * 2 if name in ("upstream_start", "downstream_start")
            else pa.array(np.repeat(one[name].to_numpy(), len(runs)), one[name].type)
            for name in MAP_COLUMNS
        }
    )  # fmt: skip

    started = time.perf_counter()
    source_incarnation = build_index(table).mapped_incarnation(ORDERS)
    took_s = time.perf_counter() - started

    assert translate(1_999_997, source_incarnation.runs) == 1_999_998
    assert took_s < 10
