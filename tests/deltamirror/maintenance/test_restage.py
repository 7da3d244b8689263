"""A damaged stage is refused where it matters, and `maintain --restage` makes it whole again."""

import shutil
from operator import itemgetter

import pytest
from deltalake import DeltaTable

from deltamirror.maintenance import restage as restaging_module
from deltamirror.maintenance.maintain import compact
from deltamirror.maintenance.restage import restage
from deltamirror.staging.stager import SourceStager
from resources.delta.stage_reader import StageReader
from schemas.errors import CommitsGoneError, SegmentLostError, StagedFileError, TableDamagedError
from schemas.kafka.partition import TopicPartition
from tests.support.fake_cluster import RecordContent, contents_of
from tests.support.fake_context import FakeContext, InlineWorkers

ORDERS, OTHERS = TopicPartition("orders", 0), TopicPartition("orders", 16)
"""Two partitions of one slot, and so in the same files."""


@pytest.fixture
def context(lake, monkeypatch):
    """A site whose stage holds five commits of two partitions."""
    made = FakeContext(lake, monkeypatch)
    monkeypatch.setattr("deltamirror.maintenance.restage.RangeReader", lambda settings: made.reader)
    made.source.make("orders", 17)
    for turn in range(5):
        made.source.append(ORDERS, *(RecordContent(b"%d-%d" % (turn, i)) for i in range(3)))
        made.source.append(ORDERS, RecordContent(None, b"", (("a", b"1"), (b"\xff", None)), -1))
        made.source.mark(ORDERS)
        made.source.append(OTHERS, RecordContent(b"other %d" % turn))
        stage(made)
    return made


def stage(context):
    """Stage what there is, as a new process."""
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
    """Return (partition, offset, what it says) of what is staged, read as replay reads it."""
    records = records_of(context)
    files = [file.path for file in records.files()]
    log = StageReader(records.path)
    wanted = {s: 0 for s, _ in log.all_rows(files)}
    found = (
        (source.partition, offset, said)
        for source, rows in log.rows(files, wanted)
        for offset, said in zip(rows.column("offset").to_pylist(), contents_of(rows), strict=True)
    )
    return sorted(found, key=itemgetter(0, 1))


def log_of(context):
    return records_of(context).path / "_delta_log"


def data_file(context, number=2):
    records = records_of(context)
    return records.path / [f for f in records.files() if f.slot == ORDERS.slot][number].path


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
def test_a_damaged_file_is_read_from_the_source_again(context, damage, is_compacted):
    if is_compacted:
        assert list(compact(records_of(context))) == [5]
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


def test_staging_goes_on_behind_what_was_put_back(context):
    cut(data_file(context, 4))
    restage(context, "us-east")
    context.source.append(ORDERS, RecordContent(b"later"))

    stage(context)

    assert held(context)[-6:-5] == [(0, 25, RecordContent(b"later"))]


def test_what_the_source_no_longer_holds_is_named_and_nothing_is_changed(context):
    file = data_file(context)
    before = paths(context), file.read_bytes()
    context.source.expire(ORDERS, 12)
    cut(file)

    (lost,) = restage(context, "us-east").lost

    assert isinstance(lost, SegmentLostError)
    assert "4 records staged in [10, 15)" in str(lost)
    assert "expired" in str(lost)
    assert paths(context) == before[0]
    assert {f.name for f in file.parent.iterdir()} == {p.split("/")[1] for p in before[0]}
    file.write_bytes(before[1])  # from a copy of the lake
    assert restage(context, "us-east").files == 0


def test_other_records_at_the_same_offsets_are_not_taken_for_the_lost_ones(context):
    cut(data_file(context))
    context.source.make("orders", 17)
    for i in range(30):
        context.source.append(ORDERS, RecordContent(b"another life %d" % i))
        context.source.append(OTHERS, RecordContent(b"another life %d" % i))

    lost = restage(context, "us-east").lost

    assert [str(each).endswith("the source holds other ones") for each in lost] == [True, True]


def test_files_that_somebody_optimized_are_put_in_order_without_the_source(context):
    before = held(context)
    DeltaTable(str(records_of(context).path)).optimize.compact()
    assert len(paths(context)) == 1
    context.source.make("orders", 17)  # nothing of it is there any more

    done = restage(context, "us-east")

    assert (done.files, done.from_source, done.lost) == (1, 0, [])
    assert held(context) == before


def test_files_optimized_between_others_keep_the_order_of_staging(context):
    DeltaTable(str(records_of(context).path)).optimize.compact()
    context.source.append(ORDERS, RecordContent(b"later"))
    stage(context)

    restage(context, "us-east")

    assert [offset for number, offset, _ in held(context) if number == 0][-2:] == [23, 25]


def test_records_that_somebody_deleted_come_back_from_the_source(context):
    before = held(context)
    DeltaTable(str(records_of(context).path)).delete("offset >= 7 AND offset < 12")

    done = restage(context, "us-east")

    assert done.lost == []
    assert 0 < done.from_source < done.records
    assert held(context) == before


def lose_last_commit(log):
    sorted(log.glob("*.json"))[-1].unlink()


def lose_last_commits(log):
    for file in sorted(log.glob("*.json"))[-3:]:
        file.unlink()


def empty_last_commit(log):
    sorted(log.glob("*.json"))[-1].write_bytes(b"")


@pytest.mark.parametrize("lose", [lose_last_commit, lose_last_commits, empty_last_commit])
def test_a_log_that_lost_its_last_commits_is_refused_and_made_whole(context, lose):
    before = held(context)
    lose(log_of(context))
    context.source.append(ORDERS, RecordContent(b"later"))
    staging = SourceStager(context, "us-east", InlineWorkers())
    with pytest.raises(CommitsGoneError):
        staging.open()
    assert not staging.lease.is_held, "it would be ticked without knowing where it is"

    done = restage(context, "us-east")
    stage(context)

    assert done.lost == []
    assert held(context) == sorted(
        [*before, (0, 25, RecordContent(b"later"))], key=itemgetter(0, 1)
    )
    stage(context)


def test_a_commit_in_the_middle_that_is_empty_is_found_and_made_good(context):
    before = held(context)
    sorted(log_of(context).glob("*.json"))[3].write_bytes(b"")
    assert len(held(context)) < len(before)

    assert restage(context, "us-east").lost == []

    assert held(context) == before


def test_a_ledger_that_lost_what_is_staged_is_refused(context):
    segments = context.lake.segments("us-east").path
    for file in sorted((segments / "_delta_log").glob("*.json"))[-2:]:
        file.write_bytes(b"")
    for file in sorted((log_of(context)).glob("*.json"))[-2:]:  # and is not told again
        text = file.read_text().replace("deltamirror.segments", "somebody.else")
        file.write_text(text)

    with pytest.raises(TableDamagedError, match=r"segments has segments of orders\[0\] up to 15"):
        stage(context)


def test_a_ledger_that_knows_nothing_of_what_is_staged_is_refused(context):
    shutil.rmtree(context.lake.segments("us-east").path)
    for file in log_of(context).glob("*.json"):  # the log goes back for 14 days only
        file.write_text(file.read_text().replace("deltamirror.segments", "somebody.else"))
    before = {*records_of(context).path.rglob("*.parquet")}

    with pytest.raises(TableDamagedError, match=r"segments has no segment of orders\[0\]"):
        stage(context)

    assert {*records_of(context).path.rglob("*.parquet")} == before


def test_a_file_that_was_not_written_as_it_was_staged_is_not_committed(context, monkeypatch):
    cut(data_file(context))
    before = paths(context)
    monkeypatch.setattr(restaging_module, "sort_for_file", lambda group: group[:-1])

    with pytest.raises(Exception, match="not written as it was staged"):
        restage(context, "us-east")

    assert paths(context) == before
