"""Compaction joins small files and keeps order, content and sequence."""

import pytest

from pipeline.maintenance.compaction import (
    GROUP_MEMORY_BYTES,
    SMALL_FILE_BYTES,
    CompactionInput,
    check_unchanged,
    collect_stats,
    select_groups,
    sort_by_partition,
)
from schemas.errors.lake import LakeError
from tests.support.staged_lake import batch_of, in_one_slot, row

MIB = 2**20
A, B = in_one_slot(2)
RECREATED_A = in_one_slot(1, topic_id="life2")[0]


def parts(*sizes):
    return [CompactionInput(f"f{i}", i, size, 2 * size) for i, size in enumerate(sizes)]


def names(groups):
    return [[part.path for part in group] for group in groups]


def rows(source, *offsets):
    return source, batch_of(row(source, offset) for offset in offsets)


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [
        pytest.param(
            [1, 1, 1, 1, 1], [["f0", "f1", "f2", "f3", "f4"]], id="adjacent files are joined"
        ),
        pytest.param([1, 1, 1], [], id="too few files"),
        pytest.param(
            [1, 1, 1, 1, SMALL_FILE_BYTES, 1, 1, 1, 1],
            [["f0", "f1", "f2", "f3"], ["f5", "f6", "f7", "f8"]],
            id="not across a large file",
        ),
        pytest.param(
            [20 * MIB] * 12,
            [[f"f{i}" for i in range(6)], [f"f{i}" for i in range(6, 12)]],
            id="as many as fit into memory",
        ),
    ],
)
def test_adjacent_small_files_are_grouped_within_the_memory_bound(sizes, groups):
    assert names(select_groups(parts(*sizes))) == groups


def test_a_file_larger_than_the_memory_bound_is_not_compacted():
    huge = CompactionInput("huge", 2, 10 * MIB, GROUP_MEMORY_BYTES + 1)
    small = parts(1, 1, 1, 1)

    assert names(select_groups([*small[:2], huge, *small[2:]])) == []


def test_rows_are_sorted_by_topic_and_partition_and_partitions_keep_their_order():
    along_the_files = [rows(A, 0, 1), rows(B, 5), rows(A, 2), rows(B, 6, 7), rows(RECREATED_A, 0)]

    found = [
        (source, batch["offset"].to_pylist())
        for source, batch in sort_by_partition(along_the_files)
    ]

    assert found == [(A, [0, 1]), (A, [2]), (RECREATED_A, [0]), (B, [5]), (B, [6, 7])]


def test_sorting_by_partition_does_not_change_the_stats():
    first = [rows(A, 0, 1), rows(B, 5), rows(A, 2)]

    check_unchanged(collect_stats(first), collect_stats(sort_by_partition(first)))


@pytest.mark.parametrize(
    "after",
    [
        pytest.param([rows(A, 0, 1)], id="one less"),
        pytest.param([rows(A, 0, 1, 3)], id="another offset"),
        pytest.param([(A, batch_of([row(A, 0), row(A, 1), row(B, 2)]))], id="another value"),
        pytest.param([rows(A, 0, 1, 2), rows(B, 0)], id="another partition"),
    ],
)
def test_a_joined_file_with_different_records_is_an_error(after):
    with pytest.raises(LakeError, match="nothing was committed"):
        check_unchanged(collect_stats([rows(A, 0, 1, 2)]), collect_stats(after))


def test_offsets_that_do_not_increase_are_an_error():
    with pytest.raises(LakeError, match="do not increase"):
        collect_stats([rows(A, 2), rows(A, 1)])
