"""Replay a flow tick by tick: remote topics, transactions and the offset map on a real lake."""

from contextlib import closing

import pytest

from deltamirror.control import PAUSE, RESTART, RESUME, ControlTable
from deltamirror.replay import work_planner
from deltamirror.replay.replayer import FlowReplayer
from deltamirror.staging.stager import SourceStager
from deltamirror.timings import Timings
from schemas.errors.environment import UnreachableError
from schemas.errors.lake import LeaseHeldError, StalePlanError
from schemas.errors.target import (
    FencedError,
    ProgressBehindError,
    RecordRefusedError,
    TargetChangedError,
)
from schemas.kafka.partition import TopicPartition
from schemas.offset_map import OffsetRun
from tests.support.fake_cluster import CrashError, Faults, RecordContent
from tests.support.fake_context import FakeContext, InlineWorkers
from tests.support.runs import expand_runs

ORDERS, USERS = TopicPartition("orders", 0), TopicPartition("users", 0)
SEVEN = [b"%d" % i for i in range(7)]


def remote(partition):
    return TopicPartition(f"us-east.{partition.topic}", partition.partition)


@pytest.fixture
def context(lake, monkeypatch):
    made = FakeContext(lake, monkeypatch, Timings(map_interval_s=0.0), transaction_records=2)
    for topic in ("orders", "users"):
        made.source.make(topic)
    return made


@pytest.fixture
def stage(context):
    """Return a function that writes values to the source and stages them as one segment."""
    staging = SourceStager(context, "us-east", InlineWorkers())
    staging.open()

    def write(partition, *values):
        context.source.append(partition, *(RecordContent(v) for v in values))
        staging._source_topics.refresh_topics()
        staging.tick()

    yield write
    staging.close()


@pytest.fixture
def start(context):
    """Return a function that opens the flow's replayer as a new process does."""
    opened = []

    def open_():
        for former in opened:
            former.close()
        opened.append(FlowReplayer(context, context.flow, InlineWorkers()))
        opened[-1].open()
        return opened[-1]

    yield open_
    opened[-1].close()


def shown(context, partition=ORDERS):
    return [record.value for _, record in context.target.visible(remote(partition))]


def finish(replayer):
    for _ in range(50):
        if replayer.tick().is_idle:
            return
    raise AssertionError("replay did not become idle")


def mapped(context, partition=ORDERS):
    """Return the map's (upstream, downstream) pairs of the current target incarnation."""
    rows = context.lake.offset_map(context.flow.flow).rows().sort_by("downstream_start").to_pylist()
    topic_id = context.target.ids[remote(partition).topic]
    return list(
        expand_runs(
            OffsetRun(r["upstream_start"], r["downstream_start"], r["length"])
            for r in rows
            if (r["topic"], r["target_topic_id"]) == (partition.topic, topic_id)
        )
    )


def assert_exact(context, *values, partition=ORDERS):
    """Assert that the target has *values* once, in order, and that the map has their offsets."""
    assert shown(context, partition) == list(values)
    upstream = {record.value: offset for offset, record in context.source.visible(partition)}
    found = [(upstream[s.value], o) for o, s in context.target.visible(remote(partition))]
    assert mapped(context, partition) == found


def test_staged_records_arrive_in_a_remote_topic_that_replay_creates(context, stage, start):
    stage(ORDERS, b"a", b"b", b"c")
    replayer = start()

    assert [m.records for m in replayer.tick().moves] == [2, 1]
    assert replayer.tick().is_idle

    assert_exact(context, b"a", b"b", b"c")
    assert replayer.progress(ORDERS).next_offset == 3


def test_another_process_continues_at_the_committed_progress(context, stage, start):
    stage(ORDERS, b"a", b"b")
    finish(start())
    stage(ORDERS, b"c")

    finish(start())

    assert_exact(context, b"a", b"b", b"c")


def test_one_process_at_a_time_replays_a_flow(context, start):
    start()

    with pytest.raises(LeaseHeldError):
        FlowReplayer(context, context.flow, InlineWorkers()).open()


def test_a_partition_without_records_causes_no_further_work(context, stage, start):
    stage(ORDERS)
    replayer = start()
    finish(replayer)

    assert replayer.tick().is_idle


def test_a_tick_replays_only_the_requested_topics(context, stage, start):
    stage(ORDERS, b"a")
    stage(USERS, b"x")

    start().tick(["users"])

    assert (shown(context, USERS), shown(context)) == ([b"x"], [])


def test_the_next_process_repairs_the_map_after_a_crash_before_the_map_was_written(
    context, stage, start, monkeypatch
):
    stage(ORDERS, b"a", b"b")
    finish(start())
    for value in (b"c", b"d", b"e", b"f"):
        stage(ORDERS, value)  # one segment and one file each
    replayer = start()

    def killed(moves):
        raise RuntimeError

    monkeypatch.setattr(replayer._map, "add", killed)
    with pytest.raises(RuntimeError):
        replayer.tick()
    assert shown(context) == [b"a", b"b", b"c", b"d", b"e", b"f"]
    stage(ORDERS, b"g")

    finish(start())

    assert_exact(context, b"a", b"b", b"c", b"d", b"e", b"f", b"g")


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_the_next_process_recovers_from_a_crash_at_any_call_of_a_task(lake, monkeypatch, after):
    at, crashed = 0, True
    while crashed:
        context = FakeContext(
            lake / str(at), monkeypatch, Timings(map_interval_s=0.0), transaction_records=2
        )
        context.source.make("orders")
        staging = SourceStager(context, "us-east", InlineWorkers())
        staging.open()
        for value in (b"a", b"b", b"c"):
            context.source.append(ORDERS, RecordContent(value))
            staging.tick()
        staging.close()
        context.faults = Faults(at, after)
        replayer = FlowReplayer(context, context.flow, InlineWorkers())
        replayer.open()
        try:
            finish(replayer)
            crashed = False
        except CrashError:
            pass
        replayer.close()
        context.faults = None

        again = FlowReplayer(context, context.flow, InlineWorkers())
        again.open()
        finish(again)
        again.close()

        assert_exact(context, b"a", b"b", b"c")
        at += 3 if at > 3 else 1
    assert at > 9


def test_a_completely_lost_map_is_rebuilt(context, stage, start, lake, monkeypatch):
    monkeypatch.setattr(work_planner, "BATCHES_PER_TICK", 1)
    values = [b"%d" % i for i in range(12)]
    for value in values[:-1]:
        stage(ORDERS, value)
    finish(start())
    known = mapped(context)
    path = context.lake.offset_map(context.flow.flow).path
    path.rename(lake / "lost")
    stage(ORDERS, values[-1])

    finish(start())

    assert mapped(context)[: len(known)] == known
    assert_exact(context, *values)


@pytest.fixture
def new_lake(context, stage, start, lake, monkeypatch):
    """Yield a context with an empty lake, a stager and a replayer, after SEVEN were replayed.

    A tick stages two records.
    """
    stage(ORDERS, *SEVEN)
    finish(start())
    timings = Timings(map_interval_s=0.0)
    rebuilt = FakeContext(
        lake / "new", monkeypatch, timings, transaction_records=2, max_batch_records=2
    )
    rebuilt._clusters, rebuilt.reader = context._clusters, context.reader
    rebuilt.source, rebuilt.target = context.source, context.target
    staging, replayer = (
        SourceStager(rebuilt, "us-east", InlineWorkers()),
        FlowReplayer(rebuilt, rebuilt.flow, InlineWorkers()),
    )
    with closing(staging), closing(replayer):
        staging.open()
        replayer.open()
        yield rebuilt, staging, replayer


def test_replay_waits_until_a_lost_lake_is_staged_again_up_to_progress(new_lake):
    rebuilt, staging, replayer = new_lake
    while staging.tick().segments:
        replayer.tick()
        assert replayer.partition_errors == {}
    rebuilt.source.append(ORDERS, RecordContent(b"new"))
    staging.tick()

    finish(replayer)

    assert_exact(rebuilt, *SEVEN, b"new")


def test_progress_is_unknown_until_it_is_staged_and_mapped(new_lake):
    _, staging, replayer = new_lake
    staging.tick()
    replayer.tick()
    early = replayer.progress(ORDERS)
    while staging.tick().segments:
        pass

    finish(replayer)

    assert early is None
    assert replayer.progress(ORDERS).next_offset == len(SEVEN)


def test_lost_progress_is_recovered_from_the_target_log(context, stage, start):
    stage(ORDERS, b"a", b"b", b"c")
    finish(start())
    context.target.groups.clear()
    stage(ORDERS, b"d")

    finish(start())

    assert_exact(context, b"a", b"b", b"c", b"d")


def test_a_partition_whose_progress_was_set_back_is_excluded(context, stage, start):
    stage(ORDERS, b"a", b"b", b"c")
    stage(USERS, b"x")
    finish(start())
    group = context.target.groups[context.flow.flow.progress_group]
    committed = group[remote(ORDERS)]
    group[remote(ORDERS)] = type(committed)(1, committed.incarnation, committed.target_topic_id)
    stage(USERS, b"y")

    replayer = start()
    finish(replayer)

    assert isinstance(replayer.partition_errors[ORDERS], ProgressBehindError)
    assert shown(context) == [b"a", b"b", b"c"]
    assert shown(context, USERS) == [b"x", b"y"]


def test_a_re_created_target_topic_waits_for_a_restart_request_and_then_gets_all_records(
    context, stage, start
):
    context.timings = Timings(topics_max_age_s=0.0, map_interval_s=0.0)
    for value in (b"a", b"b", b"c"):
        stage(ORDERS, value)
    replayer = start()
    finish(replayer)
    context.target.make("us-east.orders")
    stage(ORDERS, b"d")

    finish(replayer)
    assert isinstance(replayer.partition_errors[ORDERS], TargetChangedError)
    assert shown(context) == []

    ControlTable(context.lake.control).add_request(RESTART, context.flow.flow.name, "orders")
    finish(replayer)
    assert_exact(context, b"a", b"b", b"c", b"d")


def test_a_re_created_source_topic_is_replayed_after_its_earlier_incarnation(context, stage, start):
    stage(ORDERS, b"a", b"b")
    replayer = start()
    finish(replayer)
    context.source.make("orders")
    stage(ORDERS, b"c", b"d")

    finish(replayer)

    assert shown(context) == [b"a", b"b", b"c", b"d"]
    assert replayer.progress(ORDERS).incarnation == context.source.ids["orders"]
    assert start().tick().is_idle


def test_a_partition_whose_record_is_refused_is_excluded_until_a_resume(context, stage, start):
    stage(ORDERS, b"a")
    stage(USERS, b"x")
    replayer = start()
    finish(replayer)
    context.target.refused[remote(ORDERS)] = b"bad"
    stage(ORDERS, b"bad")
    stage(USERS, b"y")

    finish(replayer)
    assert isinstance(replayer.partition_errors[ORDERS], RecordRefusedError)
    assert shown(context, USERS) == [b"x", b"y"]

    context.target.refused.clear()
    assert replayer.tick().is_idle
    ControlTable(context.lake.control).add_request(RESUME, context.flow.flow.name)
    finish(replayer)
    assert replayer.partition_errors == {}
    assert_exact(context, b"a", b"bad")


def test_a_paused_topic_waits_while_other_topics_continue(context, stage, start):
    ControlTable(context.lake.control).add_request(PAUSE, context.flow.flow.name, "orders")
    stage(ORDERS, b"a")
    stage(USERS, b"x")
    replayer = start()

    finish(replayer)
    assert replayer.paused == {ORDERS}
    assert (shown(context), shown(context, USERS)) == ([], [b"x"])

    ControlTable(context.lake.control).add_request(RESUME, context.flow.flow.name, "orders")
    finish(replayer)
    assert shown(context) == [b"a"]


def test_a_tick_fails_while_the_target_is_down_and_the_next_tick_works(context, stage, start):
    stage(ORDERS, b"a")
    replayer = start()
    context.target.is_down = True
    with pytest.raises(UnreachableError):
        replayer.tick()

    context.target.is_down = False
    finish(replayer)

    assert_exact(context, b"a")


def test_only_one_of_two_concurrent_replayers_writes_the_map(context, stage, start):
    stage(ORDERS, b"a")
    replayer = start()
    finish(replayer)
    stage(ORDERS, b"b")
    rival = FlowReplayer(context, context.flow, InlineWorkers())
    rival.load_ends()  # without the lease, as when it failed to exclude
    finish(rival)
    stage(ORDERS, b"c")

    for _ in range(3):
        try:
            finish(replayer)
        except (FencedError, StalePlanError):
            replayer.load_ends()

    assert replayer.partition_errors == {}
    assert_exact(context, b"a", b"b", b"c")
