"""Rebuild a lost offset map row by row, at the start of replay or by the command."""

import shutil
from dataclasses import replace

import pytest

from deltamirror.cli.app import Console
from deltamirror.maintenance.maintain import maintain
from deltamirror.maintenance.rebuild_map import rebuild_map
from deltamirror.replay.replayer import FlowReplayer
from deltamirror.staging.stager import SourceStager
from resources.coordination.lease import Lease
from schemas.errors.lake import LeaseHeldError
from schemas.errors.target import MapAmbiguousError, MapDiffersError, ProgressBehindError
from schemas.kafka.partition import TopicPartition
from tests.support.cli import answer, run
from tests.support.fake_cluster import RecordContent
from tests.support.fake_context import FakeContext, InlineWorkers

PARTITIONS = [TopicPartition(topic, i) for topic in ("orders", "users") for i in range(2)]
ORDERS = PARTITIONS[0]
COLUMNS = (
    "topic", "incarnation", "partition", "upstream_start", "target_topic", "target_topic_id",
    "target_partition", "downstream_start", "length",
)  # fmt: skip


def remote(partition):
    return TopicPartition(f"us-east.{partition.topic}", partition.partition)


class Mirror:
    """A flow that is mirrored in rounds, and whose map can be deleted or set back."""

    def __init__(self, lake, monkeypatch):
        self.context = FakeContext(lake, monkeypatch, transaction_records=3)
        self.backup = lake.parent / "map-backup"
        self.values = 0
        for topic in ("orders", "users"):
            self.context.source.make(topic, 2)

    def round(self, records=4):
        """Write records and gaps to the source, stage and replay them."""
        source, target = self.context.source, self.context.target
        for partition in PARTITIONS:
            for i in range(records):
                self.values += 1
                source.append(partition, RecordContent(b"%d" % self.values))
                if i % 3 == 1:
                    source.mark(partition)
                    source.append(partition, RecordContent(b"aborted"), state="aborted")
        self.stage()
        self.replay()
        for partition in PARTITIONS:
            target.append(remote(partition), RecordContent(b"foreign"))
            target.append(remote(partition), RecordContent(b"aborted"), state="aborted")

    def stage(self):
        staging = SourceStager(self.context, "us-east", InlineWorkers())
        staging.open()
        staging.tick()
        staging.close()

    def replay(self):
        replayer = FlowReplayer(self.context, self.context.flow, InlineWorkers())
        replayer.open()
        while not replayer.tick().is_idle:
            pass
        replayer.close()
        return replayer

    def rows(self):
        rows = self.context.lake.offset_map(self.context.flow.flow).rows(COLUMNS).to_pylist()
        return sorted(tuple(row.values()) for row in rows)

    @property
    def path(self):
        return self.context.lake.offset_map(self.context.flow.flow).path

    def back_up(self):
        shutil.rmtree(self.backup, ignore_errors=True)
        shutil.copytree(self.path, self.backup)

    def restore(self):
        self.lose()
        shutil.copytree(self.backup, self.path)

    def lose(self):
        shutil.rmtree(self.path)

    def rebuild(self):
        return rebuild_map(self.context, self.context.flow)


@pytest.fixture
def mirror(lake, monkeypatch):
    return Mirror(lake, monkeypatch)


WAYS = pytest.mark.parametrize("way", ["replay", "rebuild"])


@WAYS
def test_a_map_that_lost_its_last_commits_is_rebuilt_row_by_row(mirror, way):
    mirror.round()
    mirror.back_up()
    mirror.round()
    mirror.round(5)
    known = mirror.rows()
    mirror.restore()
    assert len(mirror.rows()) < len(known)

    getattr(mirror, way)()

    assert mirror.rows() == known


@WAYS
def test_a_completely_lost_map_is_rebuilt_row_by_row(mirror, way):
    for records in (4, 1, 7):
        mirror.round(records)
    known = mirror.rows()
    mirror.lose()

    getattr(mirror, way)()

    assert mirror.rows() == known


@WAYS
def test_a_map_of_two_incarnations_is_rebuilt_row_by_row(mirror, way):
    mirror.round()
    mirror.context.source.make("orders", 2)
    mirror.round()
    known = mirror.rows()
    mirror.lose()

    getattr(mirror, way)()

    assert mirror.rows() == known


@WAYS
def test_a_map_is_rebuilt_for_the_records_that_the_target_still_holds(mirror, way, caplog):
    mirror.round()
    mirror.round()
    known = mirror.rows()
    (first, second) = [row for row in known if row[0] == "orders" and row[2] == 0][1:3]
    mirror.context.target.expire(remote(ORDERS), second[7])
    mirror.lose()

    done = getattr(mirror, way)()

    gone = [r for r in known if (r[0], r[2]) == ("orders", 0) and r[7] < second[7]]
    assert mirror.rows() == [row for row in known if row not in gone]
    if way == "replay":
        assert f"us-east.orders[0] was rebuilt from upstream offset {first[3] + 1} on" in (
            caplog.text
        )
    else:
        complete_from = {(r.topic, r.partition): r.complete_from for r in done.rebuilt}
        assert complete_from == {
            ("orders", 0): first[3] + 1, ("orders", 1): None, ("users", 0): None, ("users", 1): None
        }  # fmt: skip


@WAYS
def test_a_map_is_rebuilt_for_the_records_that_retention_left_in_the_lake(mirror, way, caplog):
    mirror.round()
    config = mirror.context.config
    mirror.context.config = replace(config, stage_retention_ms=0)
    maintain(mirror.context)
    mirror.context.config = config
    mirror.round()
    known = mirror.rows()
    mirror.lose()

    done = getattr(mirror, way)()

    assert mirror.rows() == [row for row in known if row[3] >= 6]
    if way == "replay":
        assert "us-east.orders[0] was rebuilt from upstream offset 6 on" in caplog.text
    else:
        assert {each.complete_from for each in done.rebuilt} == {6}


def test_replay_after_a_rebuild_sends_no_record_twice(mirror):
    mirror.round()
    mirror.lose()
    mirror.rebuild()
    ends = {p: len(log) for p, log in mirror.context.target.logs.items()}

    mirror.replay()
    assert {p: len(log) for p, log in mirror.context.target.logs.items()} == ends
    mirror.round()
    known = mirror.rows()
    mirror.lose()
    mirror.rebuild()
    assert mirror.rows() == known


def test_a_complete_map_is_compared_and_not_written(mirror):
    mirror.round()
    version = mirror.context.lake.offset_map(mirror.context.flow.flow).refresh()

    done = mirror.rebuild()

    assert done.errors == ()
    assert [each.written_runs for each in done.rebuilt] == [0, 0, 0, 0]
    assert all(each.records == 4 for each in done.rebuilt)
    assert mirror.context.lake.offset_map(mirror.context.flow.flow).refresh() == version


def test_runs_of_records_that_expired_on_the_target_stay_in_the_map(mirror):
    mirror.round()
    known = mirror.rows()
    mirror.context.target.expire(remote(ORDERS), len(mirror.context.target.logs[remote(ORDERS)]))

    done = mirror.rebuild()

    assert done.errors == ()
    assert mirror.rows() == known


def test_the_rebuilt_map_of_a_compacted_topic_has_the_remaining_records(mirror):
    mirror.round()
    known = mirror.rows()
    (first,) = [row for row in known if row[0] == "orders" and row[2] == 0][:1]
    mirror.context.target.clean(remote(ORDERS), first[7])
    mirror.lose()

    done = mirror.rebuild()

    (rebuilt,) = [r for r in done.rebuilt if (r.topic, r.partition) == ("orders", 0)]
    assert (rebuilt.complete_from, rebuilt.records) == (first[3] + 1, 3)


def test_a_wrong_row_of_the_map_is_an_error_and_the_other_partitions_are_rebuilt(mirror):
    mirror.round()
    known = mirror.rows()
    table = mirror.context.lake.offset_map(mirror.context.flow.flow)
    wrong = table.rows().to_pylist()
    mirror.lose()
    (row,) = [r for r in wrong if (r["topic"], r["partition"]) == ("orders", 0)][:1]
    row["downstream_start"] += 100
    mirror.context.lake.offset_map(mirror.context.flow.flow).append([row])

    done = mirror.rebuild()

    (error,) = done.errors
    assert isinstance(error, MapDiffersError)
    assert "us-east.orders[0]" in str(error)
    others = [r for r in known if (r[0], r[2]) != ("orders", 0)]
    assert [r for r in mirror.rows() if (r[0], r[2]) != ("orders", 0)] == others


def test_identical_records_of_another_producer_are_an_error(mirror):
    mirror.round()
    record = mirror.context.target.visible(remote(ORDERS))[0][1]
    mirror.context.target.logs[remote(ORDERS)].insert(
        0, mirror.context.target.logs[remote(ORDERS)][0]
    )
    assert mirror.context.target.visible(remote(ORDERS))[0][1] == record
    mirror.lose()

    (error,) = mirror.rebuild().errors

    assert isinstance(error, MapAmbiguousError)


def test_progress_behind_the_map_is_an_error_of_its_partition(mirror):
    mirror.round()
    progress = mirror.context.target.groups[mirror.context.flow.flow.progress_group]
    at = progress[remote(ORDERS)]
    progress[remote(ORDERS)] = type(at)(1, at.incarnation, at.target_topic_id)

    (error,) = mirror.rebuild().errors

    assert isinstance(error, ProgressBehindError)


def test_without_progress_the_map_is_compared_up_to_its_end(mirror):
    mirror.round()
    mirror.context.target.groups.clear()

    done = mirror.rebuild()

    assert done.errors == ()
    assert [each.records for each in done.rebuilt] == [4, 4, 4, 4]


def test_a_rebuild_fails_while_another_process_replays_the_flow(mirror, lake):
    with (
        Lease(lake, f"replay {mirror.context.flow.flow.name}"),
        pytest.raises(LeaseHeldError, match="replay us-east->eu-west"),
    ):
        mirror.rebuild()


def test_the_maps_of_two_targets_have_the_same_upstream_offsets(lake, monkeypatch):
    offsets = []
    for transaction_records in (2, 5):
        mirror = Mirror(lake / str(transaction_records), monkeypatch)
        mirror.context.config = replace(
            mirror.context.config, transaction_records=transaction_records
        )
        mirror.round(7)
        mirror.round(3)
        offsets.append(
            [(row[0], row[2], row[3] + i) for row in mirror.rows() for i in range(row[8])]
        )

    assert offsets[0] == offsets[1]
    assert len(offsets[0]) == 40


@pytest.fixture
def command_mirror(mirror, monkeypatch):
    monkeypatch.setattr(Console, "config", lambda self: mirror.context.config)
    monkeypatch.setattr("deltamirror.context.MirrorContext", lambda _: mirror.context)
    monkeypatch.setattr(mirror.context, "close", lambda: None)
    return mirror


def test_the_command_reports_written_records_and_from_where_the_map_is_complete(command_mirror):
    command_mirror.round()
    known = command_mirror.rows()
    command_mirror.lose()

    data = answer("maintain", "--rebuild-map", "--flow", "us-east->eu-west")

    assert command_mirror.rows() == known
    assert data["errors"] == []
    assert [p["written_records"] for p in data["partitions"]] == [4, 4, 4, 4]
    text = run("maintain", "--rebuild-map").stdout
    assert "from the beginning" in text


def test_the_command_exits_with_1_if_the_map_differs(command_mirror):
    command_mirror.round()
    del command_mirror.context.target.logs[remote(ORDERS)][0]

    data = answer("maintain", "--rebuild-map", "--flow", "us-east->eu-west", code=1)

    assert [error["type"] for error in data["errors"]] == ["MapUnpairedError"]


def test_a_flow_without_rebuild_map_is_a_usage_error(command_mirror):
    assert answer("maintain", "--flow", "us-east->eu-west", code=2)["error"]["type"] == "UsageError"
