"""Read the offset map while the process that replays has not appended its last runs."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltamirror.groups.checkpoints import translate_offset
from deltamirror.maintenance.maintain import apply_retention
from deltamirror.replay import current_map
from deltamirror.replay.current_map import read_current_map, rows_for
from deltamirror.replay.offset_map import ALL_ENDS_APP_ID, END_PREFIX, UPSTREAM_END_PREFIX
from deltamirror.replay.replayer import FlowReplayer
from deltamirror.staging.stager import SourceStager
from deltamirror.timings import Timings
from pipeline.offset_map.index import MAP_COLUMNS, build_index
from resources.delta.lake import DeltaLake
from schemas.errors.environment import UnreachableError
from schemas.errors.lake import TableDamagedError
from schemas.kafka.partition import TopicPartition
from schemas.offset_map import OffsetRun
from tests.support.fake_cluster import FakeTarget, RecordContent
from tests.support.fake_context import FakeContext, InlineWorkers
from tests.support.lake import FLOW, config
from tests.support.runs import expand_runs
from tests.support.table_files import optimize_files, paths_by_age

ORDERS, REMOTE = TopicPartition("orders", 0), TopicPartition("us-east.orders", 0)
USERS = TopicPartition("users", 1)


@pytest.fixture
def context(lake, monkeypatch):
    made = FakeContext(lake, monkeypatch, Timings(map_interval_s=3600.0))
    made.source.make("orders")
    return made


@pytest.fixture
def replayer(context):
    """Yield a replayer that has replayed "a" and "b" and appended them, and then "c" and "d"."""
    staging = SourceStager(context, "us-east", InlineWorkers())
    staging.open()
    made = FlowReplayer(context, context.flow, InlineWorkers())
    made.open()
    for values in ("ab", "cd"):
        made.flush_map()
        context.source.append(ORDERS, *(RecordContent(value.encode()) for value in values))
        staging.tick()
        made.tick()
    yield made
    made.close()
    staging.close()


@pytest.fixture
def pairing(context, monkeypatch):
    """Let readers pair with the fake target, at once and not after a wait."""
    flow = context.flow.flow
    monkeypatch.setattr(current_map, "APPEND_TIMEOUT_S", 0.0)
    monkeypatch.setattr(
        current_map, "TargetLog", lambda *_: FakeTarget(context.target, flow, ORDERS.slot)
    )


@pytest.fixture
def no_pairing(monkeypatch):
    def fail(*_):
        raise AssertionError("the reader paired records")

    monkeypatch.setattr(current_map, "TargetLog", fail)


def pairs(rows):
    """Return the (upstream, downstream) pairs of the map's *rows*."""
    found = rows.sort_by("downstream_start").to_pylist()
    return list(
        expand_runs(
            OffsetRun(r["upstream_start"], r["downstream_start"], r["length"]) for r in found
        )
    )


def arrived(context):
    """Return the (upstream, downstream) pairs of the records that are visible on the target."""
    upstream = {record.value: offset for offset, record in context.source.visible(ORDERS)}
    return [(upstream[record.value], offset) for offset, record in context.target.visible(REMOTE)]


def read(context):
    return pairs(read_current_map(context, context.flow, MAP_COLUMNS))


def in_table(context):
    return pairs(context.lake.offset_map(context.flow.flow).rows(MAP_COLUMNS))


def test_a_reader_waits_until_the_process_that_replays_has_appended_its_runs(
    context, replayer, no_pairing, monkeypatch
):
    assert len(in_table(context)) == 2
    monkeypatch.setattr(current_map.time, "sleep", lambda _: replayer.flush_map())

    assert read(context) == arrived(context)
    assert len(arrived(context)) == 4


def test_a_map_that_has_all_committed_records_is_read_without_a_wait(
    context, replayer, no_pairing, monkeypatch
):
    replayer.flush_map()
    monkeypatch.setattr(current_map.time, "sleep", lambda _: pytest.fail("the reader waited"))

    assert read(context) == arrived(context)


def test_if_no_append_comes_the_reader_pairs_the_records_and_writes_nothing(
    context, replayer, pairing
):
    assert read(context) == arrived(context)
    assert len(in_table(context)) == 2


def test_a_map_that_was_never_written_is_paired_completely(context, replayer, pairing, lake):
    context.lake.offset_map(context.flow.flow).path.rename(lake / "lost")

    assert read(context) == arrived(context)
    assert not context.lake.offset_map(context.flow.flow).exists()


def test_the_map_is_read_as_it_is_while_the_target_is_down(context, replayer, no_pairing, caplog):
    context.target.is_down = True

    assert read(context) == in_table(context)
    assert "the map is read as it is in the lake" in caplog.text


def test_records_that_cannot_be_paired_are_a_warning(context, replayer, pairing, caplog):
    context.target.logs[REMOTE].pop(-2)  # a record, before the marker of its transaction

    assert read(context) == in_table(context)
    assert "the offset map is read as it is in the lake" in caplog.text


def test_a_lost_map_of_records_that_retention_removed_is_a_warning(
    context, replayer, pairing, lake, caplog
):
    replayer.flush_map()
    context.config = dataclasses.replace(context.config, stage_retention_ms=0)
    assert apply_retention(context, "us-east", context.lake.records("us-east"))
    context.lake.offset_map(context.flow.flow).path.rename(lake / "lost")

    assert read(context) == []
    assert "retention removed the staged records" in caplog.text


def test_a_target_that_fails_while_records_are_paired_is_a_warning(
    context, replayer, pairing, monkeypatch, caplog
):
    def fail(*_):
        raise UnreachableError("eu-west", servers="nowhere:1", reason="it is down")

    monkeypatch.setattr(FakeTarget, "end_offsets", fail)

    assert read(context) == in_table(context)
    assert "the offset map is read as it is in the lake" in caplog.text


def test_progress_of_a_partition_without_records_needs_no_map(context, no_pairing, monkeypatch):
    context.source.make("empty")
    staging = SourceStager(context, "us-east", InlineWorkers())
    staging.open()
    staging.tick()
    replayer = FlowReplayer(context, context.flow, InlineWorkers())
    replayer.open()
    replayer.tick()
    monkeypatch.setattr(current_map.time, "sleep", lambda _: pytest.fail("the reader waited"))

    assert context.target.group_commits(context.flow.flow.progress_group)
    assert read(context) == []
    replayer.close()
    staging.close()


# Rows for some commits


class WrittenMap:
    """A lake with an offset map, and the rows that are not appended yet."""

    INCARNATIONS = ("a", "a+1", "b")

    def __init__(self, root, *, has_ends=False):
        self.has_ends, self.ends = has_ends, {}
        self.config = config(root).flows[0]
        self.table = DeltaLake(root).offset_map(FLOW)
        self.table.refresh()
        self.time_ms = 1
        self.pending, self.missing, self.mapped = [], [], {}
        self.places = {}  # partition -> number of the incarnation and of the target's, next offsets

    def run(self, partition, length, *, gaps=(0, 0), is_missing=False):
        """Write a run of *length* records, *gaps* after the last one on both sides.

        If *is_missing*, it is lost: `rebuild` writes it.
        """
        number, target_number, up, down = self.places.get(partition, (0, 1, 0, 0))
        up, down = up + gaps[0], down + gaps[1]
        self.places[partition] = (number, target_number, up + length, down + length)
        (self.missing if is_missing else self.pending).append(
            {
                "topic": partition.topic, "incarnation": self.INCARNATIONS[number],
                "partition": partition.partition, "upstream_start": up,
                "target_topic": f"us-east.{partition.topic}",
                "target_topic_id": f"target{target_number}",
                "target_partition": partition.partition, "downstream_start": down,
                "length": length, "run_id": "r", "committed_at": self.time_ms,
            }
        )  # fmt: skip

    def recreate_source(self, partition):
        """Begin the next incarnation of the source *partition*, as long as there is one."""
        number, target_number, _, down = self.places.get(partition, (0, 1, 0, 0))
        if number + 1 < len(self.INCARNATIONS):
            self.places[partition] = (number + 1, target_number, 0, down)

    def restart_target(self, partition, number, upstream):
        """Re-create the target's *partition*; replay begins in an incarnation up to the newest."""
        newest, target_number, *_ = self.places.get(partition, (0, 1, 0, 0))
        self.places[partition] = (min(number, newest), target_number + 1, upstream, 0)

    def wait(self):
        self.time_ms += 1

    def append(self, *, is_in_order=True):
        """Append the pending rows as one file."""
        rows, self.pending = self.pending, []
        ends = {ALL_ENDS_APP_ID: 1} if self.has_ends else {}
        for row in rows:
            target = f"{row['target_topic']}/{row['target_topic_id']}/{row['target_partition']}"
            upstream, downstream = (
                row[f"{s}_start"] + row["length"] for s in ("upstream", "downstream")
            )
            mapped = f"{target}/{row['incarnation']}"
            self.mapped[mapped] = ends[mapped] = max(upstream, self.mapped.get(mapped, 0))
            if self.has_ends:
                self.ends[target] = last = max(
                    (downstream, upstream), self.ends.get(target, (0, 0))
                )
                ends[END_PREFIX + target], ends[UPSTREAM_END_PREFIX + target] = last
        self.table.append(rows, txn_versions=ends, is_in_order=is_in_order)
        self.wait()

    def rebuild(self):
        """Append the missing rows, as `maintain --rebuild-map` does."""
        self.append()
        self.pending = [{**row, "committed_at": self.time_ms} for row in self.missing]
        self.missing = []
        self.append(is_in_order=False)

    def rows_for(self, commits):
        return rows_for(self.table, self.config, MAP_COLUMNS, commits)

    def translate(self, rows, partition, topic_id, offsets):
        """Return where groups that committed *offsets* resume, by the *rows* of the map."""
        index = build_index(rows)
        return [translate_offset(index, self.config, partition, o, topic_id) for o in offsets]


@pytest.fixture
def written(lake):
    """Return a map in which each file has a run of five records of orders and one of users."""
    made = WrittenMap(lake)
    for _ in range(4):
        made.run(ORDERS, 5)
        made.run(USERS, 1)
        made.append()
    return made


def starts(rows, partition=ORDERS):
    """Return the upstream start of each of the *rows* of *partition*."""
    return sorted(
        row["upstream_start"]
        for row in rows.to_pylist()
        if (row["topic"], row["partition"]) == (partition.topic, partition.partition)
    )


def test_rows_for_a_commit_begin_at_the_file_with_its_run(written):
    assert starts(written.rows_for({ORDERS: {"a": 12}})) == [10, 15]
    assert starts(written.rows_for({ORDERS: {"a": 15}})) == [15]
    assert starts(written.rows_for({ORDERS: {"a": 99}})) == [15]
    assert starts(written.rows_for({ORDERS: {"a": 0}})) == [0, 5, 10, 15]


def test_rows_of_partitions_without_a_commit_are_left_out(written):
    rows = written.rows_for({ORDERS: {"a": 16}})

    assert starts(rows, USERS) == []
    assert rows.num_rows == 1


def test_files_before_the_commits_are_not_read(written):
    oldest, second, *_ = paths_by_age(written.table)
    oldest.unlink()
    second.unlink()

    rows = written.rows_for({ORDERS: {"a": 13}, USERS: {"a": 3}})

    (at,) = written.translate(rows, ORDERS, "a", [13])
    assert at.downstream_offset == 13
    with pytest.raises(TableDamagedError):
        written.rows_for({ORDERS: {"a": 13}, USERS: {"a": 1}})
    with pytest.raises(TableDamagedError):
        written.table.rows(MAP_COLUMNS)


def test_commits_after_the_last_record_of_a_partition_need_no_file(lake):
    written = WrittenMap(lake, has_ends=True)
    for _ in range(3):
        written.run(ORDERS, 5, gaps=(0, 1))
        written.append()
    for path in paths_by_age(written.table):
        path.unlink()

    rows = written.rows_for({ORDERS: {"a": 15}})

    translated = written.translate(rows, ORDERS, "a", [15, 16])
    assert [each.downstream_offset for each in translated] == [18, 18]
    with pytest.raises(TableDamagedError):
        written.rows_for({ORDERS: {"a": 14}})


def test_a_commit_is_translated_in_the_incarnation_after_a_truncated_log(lake):
    written = WrittenMap(lake, has_ends=True)
    written.recreate_source(ORDERS)
    for _ in range(2):
        written.run(ORDERS, 5)
        written.append()

    for committed in (3, 10):
        rows = written.rows_for({ORDERS: {"a": committed}})
        assert set(rows["incarnation"].to_pylist()) == {"a+1"}
        (at,) = written.translate(rows, ORDERS, "a", [committed])
        assert at.downstream_offset == committed


def test_commits_after_the_last_record_of_a_re_created_topic_are_translated_as_by_all_rows(lake):
    written = WrittenMap(lake, has_ends=True)
    written.run(ORDERS, 20)
    written.append()
    written.recreate_source(ORDERS)
    written.recreate_source(ORDERS)
    written.run(ORDERS, 5)
    written.append()

    rows = written.rows_for({ORDERS: {"a": 20, "b": 5}})

    assert [t.downstream_offset for t in written.translate(rows, ORDERS, "a", [20])] == [20]
    assert [t.downstream_offset for t in written.translate(rows, ORDERS, "b", [5])] == [25]


def test_a_commit_in_a_topic_id_that_has_not_arrived_needs_no_file(written):
    for path in paths_by_age(written.table):
        path.unlink()

    rows = written.rows_for({ORDERS: {"c": 5}, TopicPartition("orders", 7): {"a": 5}})

    assert rows.num_rows == 0
    assert set(MAP_COLUMNS) <= set(rows.column_names)


def test_a_commit_in_an_earlier_incarnation_has_the_rows_back_to_it(written):
    written.recreate_source(ORDERS)
    written.recreate_source(ORDERS)
    for _ in range(2):
        written.run(ORDERS, 5)
        written.append()
    paths_by_age(written.table)[0].unlink()

    rows = written.rows_for({ORDERS: {"a": 11, "b": 2}})

    assert [each.downstream_offset for each in written.translate(rows, ORDERS, "a", [11])] == [11]
    assert [each.downstream_offset for each in written.translate(rows, ORDERS, "b", [2])] == [22]


def test_runs_of_an_earlier_target_topic_are_not_read(written):
    written.restart_target(ORDERS, 0, 0)
    for _ in range(3):
        written.run(ORDERS, 2, gaps=(0, 1))
        written.append()

    rows = written.rows_for({ORDERS: {"a": 3}})

    (at,) = written.translate(rows, ORDERS, "a", [3])
    assert at.downstream_offset == 5
    assert rows["target_topic_id"].to_pylist() == ["target2", "target2"]


def test_missing_runs_that_were_written_late_do_not_end_the_reading(lake):
    written = WrittenMap(lake)
    for number in range(4):
        written.run(ORDERS, 5, is_missing=number == 0)
        written.append()
    written.rebuild()

    rows = written.rows_for({ORDERS: {"a": 12}})

    assert starts(rows) == [0, 10, 15]


def test_runs_of_an_earlier_target_topic_that_were_written_late_need_the_whole_map(lake):
    written = WrittenMap(lake)
    for number in range(4):
        written.run(ORDERS, 5, is_missing=number == 1)
        written.append()
    written.restart_target(ORDERS, 0, 0)
    written.run(ORDERS, 5)
    written.append()
    written.rebuild()

    rows = written.rows_for({ORDERS: {"a": 3}})

    assert rows.num_rows == written.table.rows(MAP_COLUMNS).num_rows
    (at,) = written.translate(rows, ORDERS, "a", [3])
    assert at.downstream_offset == 3


def test_rows_for_commits_of_a_missing_map_are_empty_and_do_not_create_it(lake):
    table = DeltaLake(lake).offset_map(FLOW)

    assert rows_for(table, config(lake).flows[0], MAP_COLUMNS, {ORDERS: {"a": 1}}).num_rows == 0
    assert not table.exists()


PARTITIONS = st.sampled_from([ORDERS, USERS])
RUN = st.tuples(
    st.just("run"),
    PARTITIONS,
    st.integers(1, 4),
    st.tuples(st.integers(0, 2), st.integers(0, 2)),
    st.sampled_from([False, False, False, True]),
)
STEPS = st.lists(
    st.one_of(
        RUN,
        RUN,
        RUN,
        st.tuples(st.sampled_from(["append", "append", "append", "wait"])),
        st.tuples(st.just("optimize"), st.integers(1, 8)),
        st.tuples(st.just("recreate source"), PARTITIONS),
        st.tuples(st.just("restart target"), PARTITIONS, st.integers(0, 2), st.integers(0, 3)),
    ),
    min_size=8,
    max_size=30,
)
COMMITTED = st.none() | st.integers(0, 25)
COMMITS = st.fixed_dictionaries(
    {
        partition: st.fixed_dictionaries({"a": COMMITTED, "b": COMMITTED, "c": COMMITTED})
        for partition in (ORDERS, USERS)
    }
)
HIGHEST = 60


@given(STEPS, st.none() | st.integers(0, 30), COMMITS, st.booleans())
@settings(max_examples=30)
def test_rows_for_commits_translate_these_and_higher_offsets_as_all_rows_do(
    tmp_path_factory, steps, rebuilt_after, commits, has_ends
):
    written = WrittenMap(tmp_path_factory.mktemp("lake"), has_ends=has_ends)
    commits = {
        p: {topic_id: at for topic_id, at in by_id.items() if at is not None}
        for p, by_id in commits.items()
    }
    for number, (step, *how) in enumerate([*steps, ("append",)]):
        if step == "run":
            partition, length, gaps, is_missing = how
            written.run(partition, length, gaps=gaps, is_missing=is_missing)
        elif step == "optimize":
            optimize_files(written.table, *how)
        elif step == "recreate source":
            written.recreate_source(*how)
        elif step == "restart target":
            written.restart_target(*how)
        elif step == "append":
            written.append()
        else:
            written.wait()
        if number == rebuilt_after:
            written.rebuild()

    rows, all_rows = written.rows_for(commits), written.table.rows(MAP_COLUMNS)

    for partition, by_id in commits.items():
        for topic_id, committed in by_id.items():
            offsets = range(committed, HIGHEST)
            translated = written.translate(rows, partition, topic_id, offsets)
            assert translated == written.translate(all_rows, partition, topic_id, offsets)
