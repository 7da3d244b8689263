"""A data file is on disk after it is closed, and deleted if it is not closed."""

import json
import re

import pyarrow.parquet as pq
import pytest

from resources.delta import stage_writer
from resources.delta.file_names import FOREIGN, file_digest, parse_name
from resources.delta.stage_writer import FILE_SCHEMA, RecordsDirectory
from schemas.errors.lake import LakeError
from schemas.kafka.partition import SourcePartition
from tests.support.disk_faults import fill, small_disk
from tests.support.fake_cluster import RecordContent, rows

ORDERS = SourcePartition("orders", "life1", 0)
USERS = SourcePartition("users", "life1", 3)


@pytest.fixture
def folder(tmp_path):
    return RecordsDirectory(tmp_path)


def files(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def batch(*offsets, partition=ORDERS, timestamp_ms=1_000, value=b"v"):
    content = RecordContent(value, timestamp_ms=timestamp_ms)
    return rows(partition, [(offset, content) for offset in offsets])


def test_rows_are_written_in_order_and_close_returns_the_metadata_for_the_commit(folder, tmp_path):
    with folder.records_file(12) as file:
        file.write(5, batch(7, 9))
        file.write(9, batch(2, 4, partition=USERS, timestamp_ms=-1))
        staged = file.close()

    found = pq.read_table(tmp_path / staged.path)
    assert found.schema.equals(FILE_SCHEMA)
    assert found["offset"].to_pylist() == [7, 9, 2, 4]
    assert found["slot"].to_pylist() == [5, 5, 9, 9]
    assert staged.size_bytes == (tmp_path / staged.path).stat().st_size
    low = {"slot": 5, "topic": "orders", "partition": 0, "offset": 2, "timestamp_ms": -1}
    high = {"slot": 9, "topic": "users", "partition": 3, "offset": 9, "timestamp_ms": 1_000}
    stats = {"numRecords": 4, "minValues": low, "maxValues": high}
    assert json.loads(staged.stats_json) == stats


def row_groups(path):
    """Return the smallest and largest slot, and the rows, of each row group."""
    metadata = pq.read_metadata(path)
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    bounds = [group.column(0).statistics for group in groups]
    return [(b.min, b.max, g.num_rows) for b, g in zip(bounds, groups, strict=True)]


def test_the_name_of_a_file_has_exactly_its_slots_and_its_level(folder):
    with folder.records_file(12, level=2) as file:
        for slot in (0, 9, 15):
            file.write(slot, batch(slot))
        path = file.close().path

    assert re.fullmatch(r"part-000000000012-8201-2-\w+-[0-9a-f]{16}\.parquet", path)
    name = parse_name(path)
    assert (name.sequence, name.slots, name.level) == (12, 1 << 0 | 1 << 9 | 1 << 15, 2)


def test_slots_with_few_records_share_a_row_group_and_one_with_many_has_its_own(folder, tmp_path):
    most = stage_writer.SHARED_GROUP_BYTES
    with folder.records_file(1) as file:
        sizes = [0, 0, most, 0, most // 2, most // 2, most // 2, most // 2]
        for slot, size in enumerate(sizes):
            file.write(slot, batch(slot, value=b"x" * size))
        for offset in (20, 21, 22):
            file.write(9, batch(offset, value=b"x" * (most // 2)))
        file.write(10, batch(30))
        path = tmp_path / file.close().path

    assert row_groups(path) == [
        (0, 1, 2), (2, 2, 1), (3, 4, 2), (5, 5, 1), (6, 6, 1), (7, 7, 1), (9, 9, 3), (10, 10, 1)
    ]  # fmt: skip
    assert pq.read_table(path)["slot"].to_pylist() == [*range(8), 9, 9, 9, 10]


@pytest.mark.parametrize(("row_bytes", "groups"), [(50_000, [2] * 5), (250_000, [1] * 10)])
def test_a_batch_that_is_larger_than_a_row_group_is_several(
    folder, tmp_path, monkeypatch, row_bytes, groups
):
    monkeypatch.setattr(stage_writer, "ROW_GROUP_BYTES", 100_000)
    with folder.records_file(1) as file:
        file.write(3, batch(*range(10), value=b"x" * row_bytes))
        path = tmp_path / file.close().path

    assert row_groups(path) == [(3, 3, count) for count in groups]
    assert pq.read_table(path)["offset"].to_pylist() == [*range(10)]


def test_large_files_have_row_groups_that_a_reader_can_skip(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(stage_writer, "ROW_GROUP_ROWS", 3)
    with folder.records_file(1) as file:
        for i in range(7):
            file.write(0, batch(i))
        path = tmp_path / file.close().path

    assert row_groups(path) == [(0, 0, 3), (0, 0, 3), (0, 0, 1)]


def test_two_files_of_the_same_slots_and_sequence_have_different_names(folder):
    staged = []
    for _ in range(2):
        with folder.records_file(1) as file:
            file.write(0, batch(1))
            staged.append(file.close())

    assert staged[0].path != staged[1].path


def test_a_writer_without_rows_leaves_no_file(folder, tmp_path):
    with folder.records_file(1) as file:
        assert file.close() is None

    assert list(tmp_path.rglob("*.parquet")) == []


def write(folder, *offsets, then=None):
    """Write a row group for each of *offsets*; call *then* before the last one."""
    with folder.records_file(1) as file:
        for offset in offsets:
            if then is not None and offset == offsets[-1]:
                then()
            file.write(0, batch(offset))
        file.close()


def test_a_file_that_is_not_closed_is_deleted(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(stage_writer, "ROW_GROUP_ROWS", 1)

    def stop():
        assert len(files(tmp_path)) == 1
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write(folder, 1, 2, then=stop)

    assert files(tmp_path) == []


@pytest.mark.parametrize("room", [0, 4_096], ids=["before its first row", "in its middle"])
def test_a_full_disk_raises_a_lake_error_and_leaves_no_file(tmp_path, monkeypatch, room):
    monkeypatch.setattr(stage_writer, "ROW_GROUP_ROWS", 1)

    with small_disk(tmp_path / "disk", 2**18) as disk:
        folder = RecordsDirectory(disk)
        write(folder, 1)
        (before,) = files(disk)
        filler = fill(disk, room)

        with pytest.raises(LakeError, match="No space left"):
            write(folder, *range(1000))

        filler.unlink()
        assert files(disk) == [before]


def test_the_name_of_a_file_has_its_digest(folder, tmp_path):
    with folder.records_file(1) as file:
        file.write(0, batch(1))
        path = file.close().path

    assert parse_name(path).digest == file_digest(tmp_path / path)


def test_a_file_of_another_program_has_neither_sequence_nor_digest_and_perhaps_every_slot():
    name = parse_name("part-00000-a0a9852b-fe1e-4e2a-a6e6-2d25c78b59c3-c000.zstd.parquet")

    assert name == FOREIGN
    assert (name.slots, name.digest) == (0xFFFF, None)


def test_a_folder_that_cannot_be_written_raises_a_lake_error(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(LakeError, match="cannot be written"):
        write(RecordsDirectory(tmp_path / "file"), 1)
