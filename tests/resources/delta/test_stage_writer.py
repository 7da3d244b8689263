"""A slot's file is on disk after it is closed, and deleted if it is not closed."""

import json

import pyarrow.parquet as pq
import pytest

from resources.delta import stage_writer as slot_file_module
from resources.delta.file_names import FOREIGN_SEQUENCE, digest_of, file_digest, sequence_of
from resources.delta.stage_writer import RecordsDirectory
from schemas.errors.lake import LakeError
from schemas.kafka.partition import SourcePartition
from tests.support.disk_faults import fill, small_disk
from tests.support.fake_cluster import SCHEMA, RecordContent, rows

ORDERS = SourcePartition("orders", "life1", 0)
USERS = SourcePartition("users", "life1", 3)


@pytest.fixture
def folder(tmp_path):
    return RecordsDirectory(tmp_path)


def files(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def batch(*offsets, partition=ORDERS, value=b"v"):
    return rows(partition, [(offset, RecordContent(value)) for offset in offsets])


def test_rows_are_written_in_order_and_close_returns_the_metadata_for_the_commit(folder, tmp_path):
    with folder.slot_file(5, 12) as file:
        file.write(batch(7, 9))
        file.write(batch(2, 4, partition=USERS))
        staged = file.close()

    found = pq.read_table(tmp_path / staged.path, partitioning=None)
    assert found.schema.equals(SCHEMA)
    assert found["offset"].to_pylist() == [7, 9, 2, 4]
    assert staged.path.startswith("slot=5/part-")
    assert sequence_of(staged.path) == 12
    assert staged.slot == 5
    assert staged.size_bytes == (tmp_path / staged.path).stat().st_size
    assert json.loads(staged.stats_json) == {
        "numRecords": 4,
        "minValues": {"offset": 2},
        "maxValues": {"offset": 9},
    }


def test_large_files_have_row_groups_that_a_reader_can_skip(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(slot_file_module, "ROW_GROUP_ROWS", 3)
    with folder.slot_file(0, 1) as file:
        for i in range(7):
            file.write(batch(i))
        staged = file.close()

    metadata = pq.read_metadata(tmp_path / staged.path)
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [3, 3, 1]


def test_two_files_of_the_same_slot_and_sequence_have_different_names(folder):
    staged = []
    for _ in range(2):
        with folder.slot_file(0, 1) as file:
            file.write(batch(1))
            staged.append(file.close())

    assert staged[0].path != staged[1].path


def test_a_writer_without_rows_leaves_no_file(folder, tmp_path):
    with folder.slot_file(0, 1) as file:
        assert file.close() is None

    assert list(tmp_path.rglob("*.parquet")) == []


def write(folder, *offsets, then=None):
    """Write a row group for each of *offsets*; call *then* before the last one."""
    with folder.slot_file(0, 1) as file:
        for offset in offsets:
            if then is not None and offset == offsets[-1]:
                then()
            file.write(batch(offset))
        file.close()


def test_a_file_that_is_not_closed_is_deleted(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(slot_file_module, "ROW_GROUP_ROWS", 1)

    def stop():
        assert len(files(tmp_path)) == 1
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write(folder, 1, 2, then=stop)

    assert files(tmp_path) == []


@pytest.mark.parametrize("room", [0, 4_096], ids=["before its first row", "in its middle"])
def test_a_full_disk_raises_a_lake_error_and_leaves_no_file(tmp_path, monkeypatch, room):
    monkeypatch.setattr(slot_file_module, "ROW_GROUP_ROWS", 1)

    with small_disk(tmp_path / "disk", 2**18) as disk:
        folder = RecordsDirectory(disk / "records")
        write(folder, 1)
        (before,) = files(disk)
        filler = fill(disk, room)

        with pytest.raises(LakeError, match="No space left"):
            write(folder, *range(1000))

        filler.unlink()
        assert files(disk) == [before]


def test_the_name_of_a_file_has_its_digest(folder, tmp_path):
    with folder.slot_file(0, 1) as file:
        file.write(batch(1))
        path = file.close().path

    assert digest_of(path) == file_digest(tmp_path / path)


def test_a_file_of_another_program_has_neither_sequence_nor_digest():
    path = "slot=0/part-00000-a0a9852b-fe1e-4e2a-a6e6-2d25c78b59c3-c000.zstd.parquet"

    assert (sequence_of(path), digest_of(path)) == (FOREIGN_SEQUENCE, None)


def test_a_folder_that_cannot_be_written_raises_a_lake_error(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(LakeError, match="cannot be written"):
        write(RecordsDirectory(tmp_path / "file"), 1)
