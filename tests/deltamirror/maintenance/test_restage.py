"""Refuse damaged tables of staged records, and repair them with `maintain --restage`."""

import shutil
from operator import itemgetter

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from deltamirror.maintenance import restage as restaging_module
from deltamirror.maintenance.maintain import compact
from deltamirror.maintenance.restage import restage
from deltamirror.staging.stager import SourceStager
from resources.delta.stage_reader import StageReader
from resources.delta.stage_writer import RecordsDirectory, cast_to_row_schema
from schemas.errors.lake import (
    CommitsGoneError,
    SegmentLostError,
    StagedFileError,
    TableDamagedError,
)
from schemas.kafka.partition import TopicPartition
from tests.support.fake_cluster import RecordContent, contents_of
from tests.support.fake_context import FakeContext, InlineWorkers

ORDERS, OTHERS = TopicPartition("orders", 0), TopicPartition("orders", 16)
"""Two partitions of one slot, and so in the same files."""


@pytest.fixture
def context(lake, monkeypatch):
    """Return a context whose lake holds five commits of two partitions."""
    made = FakeContext(lake, monkeypatch)
    monkeypatch.setattr("deltamirror.maintenance.restage.RangeReader", lambda settings: made.reader)
    made.source.make("orders", 17)
    for commit in range(5):
        made.source.append(ORDERS, *(RecordContent(b"%d-%d" % (commit, i)) for i in range(3)))
        made.source.append(ORDERS, RecordContent(None, b"", (("a", b"1"), (b"\xff", None)), -1))
        made.source.mark(ORDERS)
        made.source.append(OTHERS, RecordContent(b"other %d" % commit))
        stage(made)
    return made


def stage(context):
    """Stage one tick, as a new process."""
    staging = SourceStager(context, "us-east", InlineWorkers())
    try:
        staging.open()
        return staging.tick()
    finally:
        staging.close()


def records_of(context):
    records = context.lake.records("us-east")
    records.refresh()
    return records


def held(context):
    """Return (partition, offset, content) of each staged record, read as replay reads it."""
    records = records_of(context)
    files = [file.path for file in records.files()]
    log = StageReader(records.path)
    wanted = {s: 0 for s, _ in log.all_rows(files)}
    found = (
        (source.partition, offset, content)
        for source, rows in log.rows(files, wanted)
        for offset, content in zip(
            rows.column("offset").to_pylist(), contents_of(rows), strict=True
        )
    )
    return sorted(found, key=itemgetter(0, 1))


def log_of(context):
    return records_of(context).path / "_delta_log"


def data_file(context, number=2):
    records = records_of(context)
    return records.path / [f for f in records.files() if f.has_slot(ORDERS.slot)][number].path


def delete_replaced_files(context):
    """Delete the files that are not in the table, as vacuum does later."""
    records = records_of(context)
    for path in RecordsDirectory(records.path).unlisted_files(records.live):
        (records.path / path).unlink()


def delete(file):
    file.unlink()


def empty(file):
    file.write_bytes(b"")


def cut(file):
    file.write_bytes(file.read_bytes()[:-100])


def flip(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


DAMAGES = [delete, empty, cut, flip]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("is_compacted", [False, True])
def test_records_of_a_damaged_file_are_read_from_the_source_again(context, damage, is_compacted):
    if is_compacted:
        assert compact(records_of(context), min_sequences=2) == (5, 1)
        delete_replaced_files(context)
    before = held(context)
    frontier = {p.app_id: records_of(context).frontier(p) for p in sources(context)}
    damage(data_file(context, 0))
    with pytest.raises(StagedFileError):
        held(context)

    done = restage(context, "us-east")

    assert (done.files, done.lost) == (1, [])
    assert done.from_source == done.records > 0
    assert held(context) == before
    assert {p.app_id: records_of(context).frontier(p) for p in sources(context)} == frontier
    assert restage(context, "us-east").files == 0


def sources(context):
    return {s for s, _ in StageReader(records_of(context).path).all_rows(paths(context))}


def paths(context):
    return [file.path for file in records_of(context).files()]


def test_staging_continues_after_a_restage(context):
    cut(data_file(context, 4))
    restage(context, "us-east")
    context.source.append(ORDERS, RecordContent(b"later"))

    stage(context)

    assert held(context)[-6:-5] == [(0, 25, RecordContent(b"later"))]


def damaged_folder(context):
    return records_of(context).path / "_damaged"


def test_lost_records_are_reported_and_the_others_of_their_file_are_restored(context):
    file, before, content = data_file(context), held(context), data_file(context).read_bytes()
    context.source.expire(ORDERS, 12)
    cut(file)

    done = restage(context, "us-east")

    (lost,) = done.lost
    assert isinstance(lost, SegmentLostError)
    assert "4 records staged in [10, 15)" in str(lost)
    assert "expired" in str(lost)
    assert (done.files, done.segments, done.records) == (1, 1, 1)
    assert held(context) == [r for r in before if r[0] != 0 or not 10 <= r[1] < 15]
    assert (damaged_folder(context) / file.name).read_bytes() == content[:-100]
    again = restage(context, "us-east")
    assert [str(error) for error in again.lost] == [str(lost)]
    assert (again.files, again.segments) == (0, 0)


@pytest.mark.parametrize("is_between", [False, True], ids=["alone", "between restored ones"])
@pytest.mark.parametrize("folder", ["records", "_damaged"])
def test_lost_records_are_restored_from_a_copy_of_their_file(context, folder, is_between):
    file, before, content = data_file(context), held(context), data_file(context).read_bytes()
    neighbours = [data_file(context, n) for n in (1, 3)] if is_between else []
    context.source.expire(ORDERS, 25)
    damaged_folder(context).mkdir()
    for each in neighbours:
        shutil.copy(each, damaged_folder(context))
        cut(each)
    cut(file)
    assert len(restage(context, "us-east").lost) == 1
    if is_between:  # one file has records before and after the lost ones
        assert [f.sequence for f in records_of(context).files() if f.level] == [4]
    if folder == "records":
        shutil.rmtree(damaged_folder(context))
        file.write_bytes(content)
    else:
        (damaged_folder(context) / file.name).write_bytes(content)

    done = restage(context, "us-east")

    assert (done.lost, done.from_source) == ([], 0)
    assert held(context) == before
    assert not damaged_folder(context).exists()
    again = restage(context, "us-east")
    assert (again.files, again.segments) == (0, 0)


def test_a_file_of_which_no_record_can_be_restored_stays_in_its_place(context):
    file, before, content = data_file(context), held(context), data_file(context).read_bytes()
    context.source.expire(ORDERS, 25)
    context.source.expire(OTHERS, 5)
    cut(file)

    done = restage(context, "us-east")

    assert (done.files, len(done.lost)) == (0, 2)
    assert file.name in paths(context)
    file.write_bytes(content)
    assert held(context) == before
    assert restage(context, "us-east").files == 0


def test_records_of_lost_commits_are_restored_from_their_files(context):
    before = held(context)
    lose_last_commits(log_of(context))
    context.source.expire(ORDERS, 25)
    context.source.expire(OTHERS, 5)

    done = restage(context, "us-east")

    assert (done.lost, done.from_source) == ([], 0)
    assert held(context) == before


def test_other_records_at_the_same_offsets_do_not_replace_lost_ones(context):
    cut(data_file(context))
    context.source.make("orders", 17)
    for i in range(30):
        context.source.append(ORDERS, RecordContent(b"new %d" % i))
        context.source.append(OTHERS, RecordContent(b"new %d" % i))

    lost = restage(context, "us-east").lost

    assert [str(each).endswith("the source holds other records") for each in lost] == [True, True]


def test_files_that_another_program_optimized_are_sorted_without_the_source(context):
    before = held(context)
    DeltaTable(str(records_of(context).path)).optimize.compact()
    assert len(paths(context)) == 1
    context.source.make("orders", 17)  # re-created, so its records are gone

    done = restage(context, "us-east")

    assert (done.files, done.from_source, done.lost) == (1, 0, [])
    assert held(context) == before


def test_segments_of_optimized_files_keep_the_order_of_staging(context):
    DeltaTable(str(records_of(context).path)).optimize.compact()
    context.source.append(ORDERS, RecordContent(b"later"))
    stage(context)

    restage(context, "us-east")

    assert [offset for number, offset, _ in held(context) if number == 0][-2:] == [23, 25]


def test_records_that_another_program_deleted_are_read_from_the_source_again(context):
    before = held(context)
    DeltaTable(str(records_of(context).path)).delete("offset >= 7 AND offset < 12")
    delete_replaced_files(context)

    done = restage(context, "us-east")

    assert done.lost == []
    assert 0 < done.from_source < done.records
    assert held(context) == before


@pytest.mark.parametrize("is_altered", [False, True], ids=["records missing", "a record altered"])
def test_intact_segments_of_a_readable_damaged_file_are_taken_from_it(context, is_altered):
    before, records = held(context), records_of(context)
    (old,) = [file for file in records.files() if file.path == data_file(context).name]
    with RecordsDirectory(records.path).records_file(old.sequence) as out:
        for source, batch in StageReader(records.path).all_rows([old.path]):
            of = cast_to_row_schema(batch)
            if source.topic_partition == ORDERS:
                of = altered(of) if is_altered else of[: of.num_rows - 1]
            out.write(source.slot, of)
        records.replace([old], [out.close()])
    delete_replaced_files(context)
    assert held(context) != before
    context.source.expire(OTHERS, 5)  # the source has lost all of its records

    done = restage(context, "us-east")

    assert (done.files, done.segments, done.records, done.from_source) == (1, 2, 5, 4)
    assert done.lost == []
    assert held(context) == before


def altered(rows):
    at = rows.schema.get_field_index("value")
    values = [b"altered", *rows.column(at).to_pylist()[1:]]
    return rows.set_column(at, rows.schema.field(at), pa.array(values, rows.schema.field(at).type))


def lose_last_commit(log):
    sorted(log.glob("*.json"))[-1].unlink()


def lose_last_commits(log):
    for file in sorted(log.glob("*.json"))[-3:]:
        file.unlink()


def empty_last_commit(log):
    sorted(log.glob("*.json"))[-1].write_bytes(b"")


@pytest.mark.parametrize("lose", [lose_last_commit, lose_last_commits, empty_last_commit])
def test_a_log_that_lost_its_last_commits_is_refused_and_repaired(context, lose):
    before = held(context)
    lose(log_of(context))
    context.source.append(ORDERS, RecordContent(b"later"))
    staging = SourceStager(context, "us-east", InlineWorkers())
    with pytest.raises(CommitsGoneError):
        staging.open()
    assert not staging.lease.is_held, "it would stage from frontiers that are not loaded"

    done = restage(context, "us-east")
    stage(context)

    assert done.lost == []
    assert held(context) == sorted(
        [*before, (0, 25, RecordContent(b"later"))], key=itemgetter(0, 1)
    )
    stage(context)


def test_an_empty_commit_in_the_middle_of_the_log_is_found_and_repaired(context):
    before = held(context)
    sorted(log_of(context).glob("*.json"))[3].write_bytes(b"")
    assert len(held(context)) < len(before)

    assert restage(context, "us-east").lost == []

    assert held(context) == before


def test_a_segments_table_that_lost_staged_ranges_is_refused(context):
    segments = context.lake.segments("us-east").path
    for file in sorted((segments / "_delta_log").glob("*.json"))[-2:]:
        file.write_bytes(b"")
    # Without its segments in the log of `records`, the commit is not sealed again.
    for file in sorted((log_of(context)).glob("*.json"))[-2:]:
        text = file.read_text().replace("deltamirror.segments", "other.key")
        file.write_text(text)

    with pytest.raises(TableDamagedError, match=r"segments .*orders\[0\] up to 15"):
        stage(context)


def test_a_lost_segments_table_is_refused_if_the_log_cannot_restore_it(context):
    shutil.rmtree(context.lake.segments("us-east").path)
    for file in log_of(context).glob("*.json"):  # as after 14 days, when old log files are deleted
        file.write_text(file.read_text().replace("deltamirror.segments", "other.key"))
    before = {*records_of(context).path.rglob("*.parquet")}

    with pytest.raises(TableDamagedError, match=r"segments has no segment of orders\["):
        stage(context)

    assert {*records_of(context).path.rglob("*.parquet")} == before


def test_a_restaged_file_that_differs_from_its_segments_is_not_committed(context, monkeypatch):
    cut(data_file(context))
    before = paths(context)
    monkeypatch.setattr(restaging_module, "sort_for_file", lambda group: [*group][:-1])

    with pytest.raises(Exception, match="differs from its segments"):
        restage(context, "us-east")

    assert paths(context) == before


THREE = [TopicPartition("payments", i) for i in range(3)]
FOURTH = TopicPartition("payments", 3)


@pytest.fixture
def shared(context):
    """Return a context with a file that three slots share, and a file of a fourth slot."""
    context.source.make("payments", 4)
    for partition in THREE:
        context.source.append(partition, *(RecordContent(b"%d" % i) for i in range(4)))
    stage(context)
    context.source.append(FOURTH, RecordContent(b"alone"))
    stage(context)
    assert [f.slots.bit_count() for f in records_of(context).files()[-2:]] == [3, 1]
    return context


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_broken_file_that_three_slots_share_is_restored_for_all_of_them(shared, damage):
    before, untouched = held(shared), paths(shared)
    shared_file = untouched.pop(-2)
    damage(records_of(shared).path / shared_file)

    done = restage(shared, "us-east")

    assert (done.files, done.segments, done.records, done.lost) == (1, 3, 12, [])
    assert held(shared) == before
    files = records_of(shared).files()
    new = [f for f in files if f.path not in untouched]
    assert {f.path for f in files} >= set(untouched)
    assert sorted(f.slots for f in new) == sorted(1 << p.slot for p in THREE)
    assert restage(shared, "us-east").files == 0


def test_if_a_segment_of_a_shared_file_is_lost_the_others_are_restored(shared):
    before, table, staged = paths(shared), records_of(shared).path, held(shared)
    broken, alone = before[-2:]
    cut(table / broken)
    cut(table / alone)
    shared.source.expire(THREE[1], 2)

    done = restage(shared, "us-east")

    (lost,) = done.lost
    assert lost.partition.topic_partition == THREE[1]
    assert (done.files, done.segments, done.records) == (2, 3, 9)
    after = paths(shared)
    assert not {broken, alone} & set(after)
    assert set(after) >= set(before[:-2])
    restored = held(shared)
    assert len(restored) == len(staged) - 4
    assert set(restored) <= set(staged)
    assert [f.name for f in damaged_folder(shared).iterdir()] == [broken]


def test_slots_that_share_broken_files_only_indirectly_are_restored_in_one_commit(shared):
    for partition in (THREE[2], FOURTH):
        shared.source.append(partition, RecordContent(b"later"))
    stage(shared)
    before, version = held(shared), records_of(shared).version
    for broken in (paths(shared)[-3], paths(shared)[-1]):
        cut(records_of(shared).path / broken)

    assert restage(shared, "us-east").lost == []

    assert records_of(shared).version == version + 1
    assert held(shared) == before
