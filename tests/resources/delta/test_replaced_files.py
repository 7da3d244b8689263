"""A reader whose files were compacted and deleted reads the same records from the new files."""

import pytest

from resources.delta.records_table import RecordsTable
from resources.delta.stage_reader import StageReader
from resources.delta.stage_writer import RecordsDirectory
from schemas.errors.lake import StagedFileError
from schemas.kafka.partition import SourcePartition
from tests.support.fake_cluster import RecordContent, rows

ORDERS, USERS = SourcePartition("orders", "life1", 0), SourcePartition("users", "life1", 0)
FILES = 5


class CompactedLog:
    """A staged log of FILES files, each with two records of ORDERS and one of USERS."""

    def __init__(self, path):
        self.table = RecordsTable(path)
        self._held = {}  # the records of each file: (source partition, offset)
        self.listed = [self._stage(i) for i in range(FILES)]
        self.log = StageReader(path)

    def _stage(self, i):
        file = self._write(
            self.table.version + 1, [(USERS, i), (ORDERS, 2 * i), (ORDERS, 2 * i + 1)]
        )
        self.table.stage([file], [], {})
        return file.path

    def _write(self, sequence, held):
        with RecordsDirectory(self.table.path).records_file(sequence) as out:
            for source, offset in held:
                out.write(source.slot, rows(source, [(offset, RecordContent(b"%d" % offset))]))
            file = out.close()
        self._held[file.path] = held
        return file

    def compact(self, paths):
        """Replace the files at *paths* with one for each slot, delete them; return the new."""
        self.table.refresh()
        old = [file for file in self.table.files() if file.path in paths]
        held = [each for file in old for each in self._held[file.path]]
        new = [
            self._write(old[-1].sequence, [each for each in held if each[0] == source])
            for source in (USERS, ORDERS)
        ]
        self.table.replace(old, new)
        for file in old:
            self.delete(file.path)
        return [file.path for file in new]

    def delete(self, path):
        (self.table.path / path).unlink()

    def rows(self, on_damage=None, listed=None):
        """Yield partition and offset of each record of the listed files."""
        wanted = {ORDERS: 1, USERS: 0}
        for source, batch in self.log.rows(listed or self.listed, wanted, on_damage):
            for offset in batch.column("offset").to_pylist():
                yield source, offset

    def has_all(self, found):
        """Return whether *found* are all records from the wanted offsets on, once and in order."""
        by_source = {source: [o for s, o in found if s == source] for source in (ORDERS, USERS)}
        return by_source == {ORDERS: list(range(1, 2 * FILES)), USERS: list(range(FILES))}


@pytest.fixture
def staged(tmp_path):
    return CompactedLog(tmp_path / "records")


def stop(error):
    raise AssertionError(error)


RUNS = [slice(0, FILES), slice(0, 2), slice(1, 4), slice(3, FILES)]


@pytest.mark.parametrize("on_damage", [None, stop], ids=["replay", "audit"])
@pytest.mark.parametrize("run", RUNS, ids=["all", "first", "middle", "last"])
@pytest.mark.parametrize("read", [0, 1, 4, 9])
def test_records_of_replaced_files_are_read_once_whenever_they_are_replaced(
    staged, run, read, on_damage
):
    reading = staged.rows(on_damage)
    found = [next(reading) for _ in range(read)]

    staged.compact(staged.listed[run])

    found += reading
    assert staged.has_all(found)


@pytest.mark.parametrize("run", RUNS, ids=["all", "first", "middle", "last"])
def test_records_of_replaced_files_are_counted_once(staged, run):
    staged.compact(staged.listed[run])

    counts = staged.log.count(staged.listed, ORDERS, (0, 3, 4, 2 * FILES), total=2 * FILES)

    assert counts == [3, 1, 2 * FILES - 4]


@pytest.mark.parametrize("on_damage", [None, stop], ids=["replay", "audit"])
def test_a_file_that_replaced_others_may_be_replaced_while_it_is_read(staged, on_damage):
    joined = staged.compact(staged.listed[:2])
    reading = staged.rows(on_damage)
    found = [next(reading)]
    joined = staged.compact([*joined, staged.listed[2]])
    found += [next(reading), next(reading)]
    staged.compact([*joined, *staged.listed[3:]])

    found += reading
    assert staged.has_all(found)


def test_a_file_that_was_replaced_twice_is_read_from_the_last_one(staged):
    staged.compact([*staged.compact(staged.listed[:3]), staged.listed[3]])

    assert staged.has_all(list(staged.rows()))


def test_files_after_the_listed_ones_are_not_read_instead(staged):
    listed = staged.listed[:2]
    staged.compact(listed)

    found = list(staged.rows(listed=listed))

    assert sorted(found) == [(ORDERS, 1), (ORDERS, 2), (ORDERS, 3), (USERS, 0), (USERS, 1)]


def test_a_missing_file_that_is_live_raises_an_error(staged):
    staged.delete(staged.listed[2])

    with pytest.raises(StagedFileError, match=rf"{staged.listed[2]} cannot be read: it is missing"):
        list(staged.rows())


def test_an_audit_continues_after_a_missing_file_that_is_live(staged):
    staged.delete(staged.listed[2])
    damage = []

    found = list(staged.rows(damage.append))

    assert [type(error) for error in damage] == [StagedFileError]
    assert [offset for source, offset in found if source == ORDERS] == [1, 2, 3, 6, 7, 8, 9]


def test_a_replaced_file_whose_new_file_is_damaged_raises_an_error(staged):
    for path in staged.compact(staged.listed[:3]):
        file = staged.table.path / path
        file.write_bytes(file.read_bytes()[:-1])

    with pytest.raises(StagedFileError, match="does not match its digest"):
        list(staged.rows())
