"""The staged log is read in offset order, from given offsets on."""

import pytest

from resources.delta import stage_writer
from resources.delta.stage_reader import StageReader
from resources.delta.stage_writer import RecordsDirectory
from schemas.errors.lake import LakeError, StagedFileError
from schemas.kafka.partition import SourcePartition
from tests.support.fake_cluster import RecordContent, contents_of, rows

ORDERS, ORDERS_1 = (SourcePartition("orders", "life1", i) for i in (0, 1))
LATER = SourcePartition("orders", "life2", 0)  # in the slot of ORDERS, unlike ORDERS_1
ODD = [
    RecordContent(None, None, (), -1),
    RecordContent(b"", b"", (("", b""), ("", None)), 9_300_000_000_000_000),
    RecordContent(b"\0\xff", b"\xfe", (("a", b"1"), ("b", b"2"), ("a", b"1")), 0),
]


class StagedLogHarness:
    """Writes files of the staged log and reads them."""

    def __init__(self, path):
        self._folder, self._files = RecordsDirectory(path), []
        self.log = StageReader(path)

    def write(self, *parts):
        """Write a file with *parts*, each a partition and its offsets."""
        with self._folder.records_file(len(self._files)) as file:
            for partition, offsets in parts:
                shown = [(o, RecordContent(b"%d" % o)) for o in offsets]
                file.write(partition.slot, rows(partition, shown))
            self._files.append(file.close().path)

    def read(self, wanted, files=None, on_damage=None):
        return self._offsets(self.log.rows(files or self._files, wanted, on_damage))

    def slot(self, slot):
        return self._offsets(self.log.all_rows(self._files, slot))

    def sources(self, slot):
        return self.log.sources(self._files, slot)

    def memory_bytes(self, slot):
        return self.log.measure(self._files, slot)[1]

    def _offsets(self, found):
        return [(source, batch.column("offset").to_pylist()) for source, batch in found]

    def count(self, source, edges, total, later_files=()):
        return self.log.count([*self._files, *later_files], source, edges, total)


@pytest.fixture
def staged(tmp_path):
    return StagedLogHarness(tmp_path)


def test_records_are_read_in_order_across_files_and_by_partition(staged):
    staged.write((ORDERS, [0, 1]), (ORDERS_1, [5]))
    staged.write((ORDERS, [4]), (ORDERS_1, [6, 9]))

    found = staged.read({ORDERS: 0, ORDERS_1: 0})

    assert found == [(ORDERS, [0, 1]), (ORDERS_1, [5]), (ORDERS, [4]), (ORDERS_1, [6, 9])]


def test_only_wanted_partitions_are_read_from_their_offsets_on(staged):
    staged.write((ORDERS, [0, 1, 4]), (ORDERS_1, [5]))

    assert staged.read({ORDERS: 1}) == [(ORDERS, [1, 4])]
    assert staged.read({ORDERS: 5}) == []
    assert staged.read({}) == []


def test_incarnations_of_a_topic_are_read_separately(staged):
    staged.write((ORDERS, [0, 1]), (LATER, [0, 3]))

    assert staged.read({LATER: 0}) == [(LATER, [0, 3])]
    assert staged.read({ORDERS: 0, LATER: 1}) == [(ORDERS, [0, 1]), (LATER, [3])]


def test_a_record_in_two_files_is_returned_once(staged):
    staged.write((ORDERS, [0, 1, 2]))
    staged.write((ORDERS, [1, 2, 3]))

    assert staged.read({ORDERS: 0}) == [(ORDERS, [0, 1, 2]), (ORDERS, [3])]


def test_an_audit_gets_a_record_in_two_files_twice_and_continues_after_a_damaged_file(
    staged, tmp_path
):
    damage = []
    staged.write((ORDERS, [0, 1]))
    (damaged,) = tmp_path.glob("*.parquet")
    damaged.write_bytes(damaged.read_bytes()[:-1])
    staged.write((ORDERS, [2, 3]))
    staged.write((ORDERS, [5, 4]))
    staged.write((ORDERS, [3, 6]))

    found = staged.read({ORDERS: 0}, on_damage=damage.append)

    assert found == [(ORDERS, [2, 3]), (ORDERS, [3, 6])]
    texts = [str(error) for error in damage]
    assert damaged.name in texts[0]
    assert "do not increase" in texts[1]
    assert len(texts) == 2


def test_reading_a_slot_returns_only_its_records_of_a_file_with_several_slots(staged):
    staged.write((ORDERS, [0, 1]), (LATER, [7]), (ORDERS_1, [5]))
    staged.write((ORDERS_1, [6]))

    assert staged.slot(ORDERS.slot) == [(ORDERS, [0, 1]), (LATER, [7])]
    assert staged.slot(ORDERS_1.slot) == [(ORDERS_1, [5]), (ORDERS_1, [6])]
    assert staged.slot(None) == [
        (ORDERS, [0, 1]),
        (LATER, [7]),
        (ORDERS_1, [5]),
        (ORDERS_1, [6]),
    ]
    assert staged.sources(ORDERS.slot) == [ORDERS, LATER]
    assert staged.sources(ORDERS_1.slot) == [ORDERS_1]
    assert staged.memory_bytes(ORDERS.slot) > 0 == staged.memory_bytes(0)


def test_a_file_is_opened_and_compared_with_its_digest_once_for_all_slots(staged, tmp_path):
    staged.write((ORDERS, [0]), (ORDERS_1, [5]))
    assert staged.read({ORDERS: 0}) == [(ORDERS, [0])]

    (file,) = tmp_path.glob("*.parquet")
    file.unlink()

    assert staged.read({ORDERS_1: 0}) == [(ORDERS_1, [5])]
    assert staged.slot(ORDERS.slot) == [(ORDERS, [0])]


def test_records_between_offsets_are_counted_across_files(staged):
    staged.write((ORDERS, [0, 1, 4]), (ORDERS_1, [5]))
    staged.write((ORDERS, [6, 9]), (LATER, [1]))
    staged.write((ORDERS, [20]))

    assert staged.count(ORDERS, (0, 1, 5, 9, 10), total=5) == [1, 2, 1, 1]
    assert staged.count(ORDERS, (4, 5), total=9) == [1]
    assert staged.count(ORDERS_1, (0, 5), total=1) == [0]


def test_counting_ends_at_the_file_with_the_last_record(staged):
    staged.write((ORDERS, [0, 1]))

    assert staged.count(ORDERS, (0, 2), total=2, later_files=("gone.parquet",)) == [2]
    with pytest.raises(StagedFileError, match="gone"):
        staged.count(ORDERS, (0, 2), total=3, later_files=("gone.parquet",))


def test_row_groups_without_wanted_records_are_skipped(tmp_path, monkeypatch):
    monkeypatch.setattr(stage_writer, "ROW_GROUP_ROWS", 2)
    staged = StagedLogHarness(tmp_path)
    staged.write((ORDERS, [0, 1]), (ORDERS, [2, 3]), (ORDERS_1, [0, 1]))

    assert staged.read({ORDERS: 2}) == [(ORDERS, [2, 3])]
    assert staged.read({ORDERS_1: 0}) == [(ORDERS_1, [0, 1])]


def test_every_field_is_read_back_as_it_was_written(tmp_path):
    with RecordsDirectory(tmp_path).records_file(1) as file:
        file.write(ORDERS.slot, rows(ORDERS, list(enumerate(ODD))))
        path = file.close().path

    ((_, batch),) = StageReader(tmp_path).rows([path], {ORDERS: 0})

    assert contents_of(batch) == ODD


def test_a_missing_file_raises_an_error_with_its_name(staged):
    staged.write((ORDERS, [0]))

    with pytest.raises(LakeError, match=r"/gone\.parquet cannot be read"):
        staged.read({ORDERS: 0}, ["gone.parquet"])


def test_a_truncated_file_raises_an_error(staged, tmp_path):
    staged.write((ORDERS, [0]))
    (file,) = tmp_path.rglob("*.parquet")
    file.write_bytes(file.read_bytes()[:-20])

    with pytest.raises(LakeError, match="cannot be read"):
        staged.read({ORDERS: 0})


def test_a_flipped_bit_at_any_byte_of_a_file_is_detected(staged, tmp_path):
    staged.write((ORDERS, list(range(20))))
    (file,) = tmp_path.rglob("*.parquet")
    whole = file.read_bytes()

    for at in range(len(whole)):
        content = bytearray(whole)
        content[at] ^= 1 << at % 8
        file.write_bytes(content)
        with pytest.raises(StagedFileError, match="does not match its digest"):
            staged.read({ORDERS: 0})


def test_an_altered_file_returns_no_record_at_all(tmp_path, monkeypatch):
    monkeypatch.setattr(stage_writer, "ROW_GROUP_ROWS", 2)
    staged = StagedLogHarness(tmp_path)
    staged.write((ORDERS, [0, 1]), (ORDERS, [2, 3]), (ORDERS, [4, 5]))
    (file,) = tmp_path.rglob("*.parquet")
    content = bytearray(file.read_bytes())
    content[-200] ^= 1  # in the footer, after all rows
    file.write_bytes(content)

    read = staged.log.all_rows([file.relative_to(tmp_path).as_posix()])
    with pytest.raises(StagedFileError):
        next(read)


def test_offsets_that_do_not_increase_raise_an_error(staged):
    staged.write((ORDERS, [0, 3, 2]))

    with pytest.raises(LakeError, match="do not increase"):
        staged.read({ORDERS: 0})
