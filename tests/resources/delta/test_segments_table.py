"""Segments are read from their table and from the commits of `records` after it."""

import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deltamirror.staging.segment_index import SegmentIndex
from resources.delta import table_maintenance
from resources.delta.lake import DeltaLake
from resources.delta.table import LakeTable
from resources.delta.transaction_log import LOG_FOLDER
from schemas.errors.lake import StalePlanError, TableDamagedError
from schemas.kafka.partition import SourcePartition, TopicPartition
from schemas.staging.segment import Segment
from schemas.tables import SEGMENTS

ORDERS = SourcePartition("orders", "life1", 0)


class StagedSegments:
    """A lake whose `records` gets commits with segments, but no files."""

    def __init__(self, root):
        self.lake = DeltaLake(root)
        self.records, self.table = self.lake.records("us-east"), self.lake.segments("us-east")
        self.records.refresh()
        self.table.refresh()

    def stage(self, start, end, partition=0):
        source = SourcePartition("orders", "life1", partition)
        segment = Segment(
            "orders", "life1", partition, start, end, end - start, 0, start, end - 1, 1, 1, None,
            0, end, end, "", "", 1, 1,
        )  # fmt: skip
        expected = {source: self.records.frontier(source)}
        return self.records.stage([], [segment], expected)

    def in_table(self):
        """Return the start of each segment in the table itself."""
        table = LakeTable(self.table.path, SEGMENTS)
        return sorted(table.rows(["start"]).column("start").to_pylist())

    def found(self, **options):
        """Return (version, start, end) of each segment that a new reader finds."""
        rows = self.lake.segments("us-east").rows(["version", "start", "end"], **options)
        return sorted(tuple(row.values()) for row in rows.to_pylist())


@pytest.fixture
def staged(lake):
    return StagedSegments(lake)


def test_a_committed_segment_is_found_at_once_and_is_in_the_table_when_it_is_sealed(staged):
    version = staged.stage(0, 5)

    assert staged.found() == [(version, 0, 5)]
    assert staged.in_table() == []
    staged.table.seal()

    assert staged.found() == [(version, 0, 5)]
    assert staged.in_table() == [0]


def test_many_commits_are_sealed_by_one_commit_and_none_twice(staged):
    for start in range(4):
        staged.stage(start, start + 1)
    before = staged.table.version
    staged.table.seal()
    staged.table.seal()

    assert staged.table.version == before + 1
    assert staged.in_table() == [0, 1, 2, 3]
    assert len(list(staged.table.path.glob("*.parquet"))) == 1


def test_a_filter_and_columns_apply_to_sealed_and_unsealed_segments(staged):
    staged.stage(0, 5)
    staged.stage(0, 3, partition=1)
    staged.table.seal()
    staged.stage(5, 9)
    staged.stage(3, 4, partition=1)

    rows = staged.lake.segments("us-east").rows(["end", "topic"], pc.field("partition") == 1)

    assert rows.column_names == ["end", "topic"]
    assert sorted(rows.column("end").to_pylist()) == [3, 4]


def test_a_second_process_that_seals_is_refused(staged, monkeypatch):
    staged.stage(0, 5)
    other, commits_after = staged.lake.segments("us-east"), staged.table.commits_after

    def meanwhile(version):
        other.seal()
        return commits_after(version)

    monkeypatch.setattr(staged.table, "commits_after", meanwhile)
    with pytest.raises(StalePlanError):
        staged.table.seal()

    assert staged.in_table() == [0]


def test_a_missing_lake_has_no_segments_and_is_not_created(lake):
    table = DeltaLake(lake).segments("us-east")

    assert table.rows(["start"]).num_rows == 0
    assert not table.exists()


def test_commits_with_unsealed_segments_survive_the_cleaning_of_the_log(staged, monkeypatch):
    monkeypatch.setattr(table_maintenance, "KEPT_COMMITS", 1)
    for start in range(3):
        staged.stage(start, start + 1)
    staged.table.seal()
    staged.records.checkpoint(1)
    unsealed = []
    for start in range(3, 6):
        unsealed.append(staged.stage(start, start + 1))
        staged.records.checkpoint(1)

    table_maintenance.Vacuum(staged.records).run(0, staged.table.sealed_version)

    assert [start for _, start, _ in staged.found()] == [0, 1, 2, 3, 4, 5]
    log = staged.records.path / LOG_FOLDER
    assert not (log / f"{1:020}.json").exists()
    assert all((log / f"{version:020}.json").exists() for version in unsealed)


def test_lost_commits_with_unsealed_segments_are_an_error(staged):
    versions = [staged.stage(start, start + 1) for start in range(3)]
    for version in range(versions[1] + 1):
        (staged.records.path / LOG_FOLDER / f"{version:020}.json").unlink()

    with pytest.raises(TableDamagedError, match="after version 0 is missing"):
        staged.found()


def emptied(staged, version):
    (staged.records.path / LOG_FOLDER / f"{version:020}.json").write_bytes(b"")


def test_a_commit_that_a_crash_left_empty_before_a_complete_one_is_an_error(staged):
    versions = [staged.stage(start, start + 1) for start in range(3)]
    emptied(staged, versions[1])

    with pytest.raises(TableDamagedError, match=f"version {versions[1]} is empty"):
        staged.found()


def test_an_empty_last_commit_is_no_error_even_after_its_records_are_staged_again(staged):
    staged.stage(0, 1)
    emptied(staged, staged.stage(1, 2))
    assert [start for _, start, _ in staged.found()] == [0]

    again = StagedSegments(staged.lake.root)
    again.table.seal()  # as a process does before it stages
    again.stage(1, 3)

    assert [(start, end) for _, start, end in again.found()] == [(0, 1), (1, 3)]


STEPS = st.lists(st.sampled_from(["stage", "seal", "optimize", "maintain"]), max_size=25)


@given(STEPS, st.sets(st.integers(0, 25)))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_reader_that_follows_finds_each_segment_once_however_they_are_sealed(
    tmp_path_factory, steps, looks
):
    staged = StagedSegments(tmp_path_factory.mktemp("lake"))
    index, end = SegmentIndex(staged.lake.segments("us-east")), 0
    for number, step in enumerate([*steps, "look"]):
        if step == "stage":
            staged.stage(end, end + 1)
            end += 1
        elif step == "seal":
            staged.table.seal()
        elif step == "optimize":
            table_maintenance.optimize(staged.table)
        elif step == "maintain":
            staged.records.commit([], txn_versions={"maintained": number})
        if number in looks or step == "look":
            index.refresh()
            links = index.links(TopicPartition("orders", 0))
            assert [s.link.start for s in links] == list(range(end))
            assert [start for _, start, _ in staged.found()] == list(range(end))
