"""An offset map that was lost is the same again, row for row, by a start or by the command."""

import shutil
from dataclasses import replace

import pytest

from deltamirror.cli.app import Console
from deltamirror.maintenance.maintain import maintain
from deltamirror.maintenance.rebuild_map import rebuild_map
from deltamirror.replay.replayer import FlowReplayer
from deltamirror.staging.stager import SourceStager
from resources.coordination.lease import Lease
from schemas.errors import (
    LeaseHeldError,
    MapAmbiguousError,
    MapDiffersError,
    ProgressBehindError,
)
from schemas.kafka.partition import TopicPartition
from tests.support.cli import answer, run
from tests.support.fake_cluster import RecordContent
from tests.support.fake_context import FakeContext, InlineWorkers

PARTITIONS = [TopicPartition(topic, i) for topic in ("orders", "users") for i in range(2)]
ORDERS = PARTITIONS[0]
SAME = (
    "topic", "incarnation", "partition", "upstream_start", "target_topic", "target_topic_id",
    "target_partition", "downstream_start", "length",
)  # fmt: skip


def remote(partition):
    return TopicPartition(f"us-east.{partition.topic}", partition.partition)


class Mirror:
    """A flow with a lake, mirrored round by round, whose map can be put back or lost."""

    def __init__(self, lake, monkeypatch):
        self.context = FakeContext(lake, monkeypatch, transaction_records=3)
        self.aside = lake.parent / "map-aside"
        self.values = 0
        for topic in ("orders", "users"):
            self.context.source.make(topic, 2)

    def round(self, records=4):
        """Write to the source, with what leaves gaps, stage it and replay it."""
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
        replaying = FlowReplayer(self.context, self.context.flow, InlineWorkers())
        replaying.open()
        while not replaying.tick().is_idle:
            pass
        replaying.close()
        return replaying

    def rows(self):
        rows = self.context.lake.offset_map(self.context.flow.flow).rows(SAME).to_pylist()
        return sorted(tuple(row.values()) for row in rows)

    @property
    def path(self):
        return self.context.lake.offset_map(self.context.flow.flow).path

    def keep_aside(self):
        shutil.rmtree(self.aside, ignore_errors=True)
        shutil.copytree(self.path, self.aside)

    def put_back(self):
        self.lose()
        shutil.copytree(self.aside, self.path)

    def lose(self):
        shutil.rmtree(self.path)

    def rebuild(self):
        return rebuild_map(self.context, self.context.flow)


@pytest.fixture
def mirror(lake, monkeypatch):
    return Mirror(lake, monkeypatch)


WAYS = pytest.mark.parametrize("way", ["replay", "rebuild"])


@WAYS
def test_a_map_whose_last_commits_are_gone_is_the_same_again_row_for_row(mirror, way):
    mirror.round()
    mirror.keep_aside()
    mirror.round()
    mirror.round(5)
    known = mirror.rows()
    mirror.put_back()
    assert len(mirror.rows()) < len(known)

    getattr(mirror, way)()

    assert mirror.rows() == known


@WAYS
def test_a_map_that_is_gone_is_the_same_again_row_for_row(mirror, way):
    for records in (4, 1, 7):
        mirror.round(records)
    known = mirror.rows()
    mirror.lose()

    getattr(mirror, way)()

    assert mirror.rows() == known


@WAYS
def test_a_map_across_two_incarnations_is_the_same_again_row_for_row(mirror, way):
    mirror.round()
    mirror.context.source.make("orders", 2)
    mirror.round()
    known = mirror.rows()
    mirror.lose()

    getattr(mirror, way)()

    assert mirror.rows() == known


@WAYS
def test_a_map_is_made_again_from_where_the_target_still_holds_the_records(mirror, way, caplog):
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
        told = {(r.topic, r.partition): r.complete_from for r in done.rebuilt}
        assert told == {
            ("orders", 0): first[3] + 1, ("orders", 1): None, ("users", 0): None, ("users", 1): None
        }  # fmt: skip


@WAYS
def test_a_map_is_made_again_from_where_retention_left_the_stage(mirror, way, caplog):
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


def test_after_a_rebuild_a_start_goes_on_without_sending_anything_twice(mirror):
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


def test_a_map_that_is_whole_is_only_compared(mirror):
    mirror.round()
    version = mirror.context.lake.offset_map(mirror.context.flow.flow).refresh()

    done = mirror.rebuild()

    assert done.errors == ()
    assert [each.written_runs for each in done.rebuilt] == [0, 0, 0, 0]
    assert all(each.records == 4 for each in done.rebuilt)
    assert mirror.context.lake.offset_map(mirror.context.flow.flow).refresh() == version


def test_what_the_target_does_not_hold_any_more_stays_in_the_map(mirror):
    mirror.round()
    known = mirror.rows()
    mirror.context.target.expire(remote(ORDERS), len(mirror.context.target.logs[remote(ORDERS)]))

    done = mirror.rebuild()

    assert done.errors == ()
    assert mirror.rows() == known


def test_a_compacted_topics_map_has_what_is_left_of_it(mirror):
    mirror.round()
    known = mirror.rows()
    (first,) = [row for row in known if row[0] == "orders" and row[2] == 0][:1]
    mirror.context.target.clean(remote(ORDERS), first[7])
    mirror.lose()

    done = mirror.rebuild()

    (told,) = [r for r in done.rebuilt if (r.topic, r.partition) == ("orders", 0)]
    assert (told.complete_from, told.records) == (first[3] + 1, 3)


def test_a_row_that_says_something_else_is_an_error_and_the_other_partitions_are_rebuilt(mirror):
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


def test_identical_records_of_another_producer_are_an_error_and_no_guess(mirror):
    mirror.round()
    said = mirror.context.target.visible(remote(ORDERS))[0][1]
    mirror.context.target.logs[remote(ORDERS)].insert(
        0, mirror.context.target.logs[remote(ORDERS)][0]
    )
    assert mirror.context.target.visible(remote(ORDERS))[0][1] == said
    mirror.lose()

    (error,) = mirror.rebuild().errors

    assert isinstance(error, MapAmbiguousError)


def test_progress_behind_the_map_is_an_error_of_its_partition(mirror):
    mirror.round()
    held = mirror.context.target.groups[mirror.context.flow.flow.progress_group]
    at = held[remote(ORDERS)]
    held[remote(ORDERS)] = type(at)(1, at.incarnation, at.target_topic_id)

    (error,) = mirror.rebuild().errors

    assert isinstance(error, ProgressBehindError)


def test_where_progress_is_gone_the_map_is_compared_as_far_as_it_goes(mirror):
    mirror.round()
    mirror.context.target.groups.clear()

    done = mirror.rebuild()

    assert done.errors == ()
    assert [each.records for each in done.rebuilt] == [4, 4, 4, 4]


def test_while_another_process_replays_the_flow_the_rebuild_says_so(mirror, lake):
    with (
        Lease(lake, f"replay {mirror.context.flow.flow.name}"),
        pytest.raises(LeaseHeldError, match="replay us-east->eu-west"),
    ):
        mirror.rebuild()


def test_two_targets_have_maps_that_name_the_same_upstream_offsets(lake, monkeypatch):
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
def asked(mirror, monkeypatch):
    monkeypatch.setattr(Console, "config", lambda self: mirror.context.config)
    monkeypatch.setattr("deltamirror.context.MirrorContext", lambda _: mirror.context)
    monkeypatch.setattr(mirror.context, "close", lambda: None)
    return mirror


def test_the_command_says_what_was_written_and_from_where_it_is_complete(asked):
    asked.round()
    known = asked.rows()
    asked.lose()

    data = answer("maintain", "--rebuild-map", "--flow", "us-east->eu-west")

    assert asked.rows() == known
    assert data["errors"] == []
    assert [p["written_records"] for p in data["partitions"]] == [4, 4, 4, 4]
    text = run("maintain", "--rebuild-map").stdout
    assert "from the beginning" in text


def test_the_command_ends_with_1_where_the_map_differs(asked):
    asked.round()
    del asked.context.target.logs[remote(ORDERS)][0]

    data = answer("maintain", "--rebuild-map", "--flow", "us-east->eu-west", code=1)

    assert [error["type"] for error in data["errors"]] == ["MapUnpairedError"]


def test_a_flow_without_rebuild_map_is_bad_usage(asked):
    assert answer("maintain", "--flow", "us-east->eu-west", code=2)["error"]["type"] == "UsageError"
