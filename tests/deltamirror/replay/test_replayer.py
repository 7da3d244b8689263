"""A flow's replay, tick by tick: remote topics, transactions and the offset map on a real lake."""

from contextlib import closing

import pytest

from deltamirror.control import PAUSE, RESTART, RESUME, ControlTable
from deltamirror.replay import work_planner
from deltamirror.replay.replayer import FlowReplayer
from deltamirror.staging.stager import SourceStager
from deltamirror.timings import Timings
from pipeline.offset_map.encode import expand_runs
from schemas.errors import (
    LeaseHeldError,
    ProgressBehindError,
    RecordRefusedError,
    StalePlanError,
    TargetChangedError,
    UnreachableError,
)
from schemas.kafka.partition import TopicPartition
from schemas.offset_map import OffsetRun
from tests.support.fake_cluster import CrashError, Faults, RecordContent
from tests.support.fake_context import FakeContext, InlineWorkers

ORDERS, USERS = TopicPartition("orders", 0), TopicPartition("users", 0)
SEVEN = [b"%d" % i for i in range(7)]


def remote(partition):
    return TopicPartition(f"us-east.{partition.topic}", partition.partition)


@pytest.fixture
def context(lake, monkeypatch):
    made = FakeContext(lake, monkeypatch, transaction_records=2)
    for topic in ("orders", "users"):
        made.source.make(topic)
    return made


@pytest.fixture
def stage(context):
    """Write values to the source and stage them, each call a segment of its own."""
    staging = SourceStager(context, "us-east", InlineWorkers())
    staging.open()

    def write(partition, *values):
        context.source.append(partition, *(RecordContent(v) for v in values))
        staging.refresh_topics()
        staging.tick()

    yield write
    staging.close()


@pytest.fixture
def start(context):
    """Open the flow's replay as a new process would."""
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
    return [said.value for _, said in context.target.visible(remote(partition))]


def finish(replaying):
    for _ in range(50):
        if replaying.tick().is_idle:
            return
    raise AssertionError("it does not end")


def mapped(context, partition=ORDERS):
    """Return the (upstream, downstream) pairs of the offset map's present life, by downstream."""
    rows = context.lake.offset_map(context.flow.flow).rows().sort_by("downstream_start").to_pylist()
    life = context.target.ids[remote(partition).topic]
    return list(
        expand_runs(
            OffsetRun(r["upstream_start"], r["downstream_start"], r["length"])
            for r in rows
            if (r["topic"], r["target_topic_id"]) == (partition.topic, life)
        )
    )


def assert_exact(context, *values, partition=ORDERS):
    """Everything is there once, in order, and the map knows where."""
    assert shown(context, partition) == list(values)
    upstream = {said.value: offset for offset, said in context.source.visible(partition)}
    found = [(upstream[s.value], o) for o, s in context.target.visible(remote(partition))]
    assert mapped(context, partition) == found


def test_what_is_staged_arrives_in_a_topic_that_is_made_for_it(context, stage, start):
    stage(ORDERS, b"a", b"b", b"c")
    replaying = start()

    assert [m.records for m in replaying.tick().moves] == [2, 1]
    assert replaying.tick().is_idle

    assert_exact(context, b"a", b"b", b"c")
    assert replaying.progress(ORDERS).next_offset == 3


def test_another_process_goes_on_where_the_last_one_was(context, stage, start):
    stage(ORDERS, b"a", b"b")
    finish(start())
    stage(ORDERS, b"c")

    finish(start())

    assert_exact(context, b"a", b"b", b"c")


def test_one_process_at_a_time_replays_a_flow(context, start):
    start()

    with pytest.raises(LeaseHeldError):
        FlowReplayer(context, context.flow, InlineWorkers()).open()


def test_partitions_without_records_are_done_once(context, stage, start):
    stage(ORDERS)
    replaying = start()
    finish(replaying)

    assert replaying.tick().is_idle


def test_only_the_topics_that_are_asked_for_are_replayed(context, stage, start):
    stage(ORDERS, b"a")
    stage(USERS, b"x")

    start().tick(["users"])

    assert (shown(context, USERS), shown(context)) == ([b"x"], [])


def test_a_crash_before_the_map_is_written_is_made_good_by_the_next_process(
    context, stage, start, monkeypatch
):
    stage(ORDERS, b"a", b"b")
    finish(start())
    for value in (b"c", b"d", b"e", b"f"):
        stage(ORDERS, value)  # segments, and so files, of their own
    replaying = start()

    def killed(moves):
        raise RuntimeError

    monkeypatch.setattr(replaying._map, "write", killed)
    with pytest.raises(RuntimeError):
        replaying.tick()
    assert shown(context) == [b"a", b"b", b"c", b"d", b"e", b"f"]
    stage(ORDERS, b"g")

    finish(start())

    assert_exact(context, b"a", b"b", b"c", b"d", b"e", b"f", b"g")


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_crash_at_any_call_of_a_task_is_made_good(lake, monkeypatch, after):
    at, crashed = 0, True
    while crashed:
        context = FakeContext(lake / str(at), monkeypatch, transaction_records=2)
        context.source.make("orders")
        staging = SourceStager(context, "us-east", InlineWorkers())
        staging.open()
        for value in (b"a", b"b", b"c"):
            context.source.append(ORDERS, RecordContent(value))
            staging.tick()
        staging.close()
        context.faults = Faults(at, after)
        replaying = FlowReplayer(context, context.flow, InlineWorkers())
        replaying.open()
        try:
            finish(replaying)
            crashed = False
        except CrashError:
            pass
        replaying.close()
        context.faults = None

        again = FlowReplayer(context, context.flow, InlineWorkers())
        again.open()
        finish(again)
        again.close()

        assert_exact(context, b"a", b"b", b"c")
        at += 3 if at > 3 else 1
    assert at > 9


def test_a_map_that_is_lost_whole_is_rebuilt(context, stage, start, lake, monkeypatch):
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
def anew(context, stage, start, lake, monkeypatch):
    """Loops over a new lake, of a flow that had replayed SEVEN; a tick stages two records."""
    stage(ORDERS, *SEVEN)
    finish(start())
    there = FakeContext(lake / "anew", monkeypatch, transaction_records=2, max_batch_records=2)
    there._clusters, there.reader = context._clusters, context.reader
    there.source, there.target = context.source, context.target
    staging, replaying = (
        SourceStager(there, "us-east", InlineWorkers()),
        FlowReplayer(there, there.flow, InlineWorkers()),
    )
    with closing(staging), closing(replaying):
        staging.open()
        replaying.open()
        yield there, staging, replaying


def test_what_the_target_has_is_waited_for_while_a_lost_stage_is_made_anew(anew):
    there, staging, replaying = anew
    while staging.tick().segments:
        replaying.tick()
        assert replaying.partition_errors == {}
    there.source.append(ORDERS, RecordContent(b"new"))
    staging.tick()

    finish(replaying)

    assert_exact(there, *SEVEN, b"new")


def test_progress_does_not_count_before_it_is_staged_and_mapped(anew):
    _, staging, replaying = anew
    staging.tick()
    replaying.tick()
    early = replaying.progress(ORDERS)
    while staging.tick().segments:
        pass

    finish(replaying)

    assert early is None
    assert replaying.progress(ORDERS).next_offset == len(SEVEN)


def test_progress_that_is_lost_is_found_again(context, stage, start):
    stage(ORDERS, b"a", b"b", b"c")
    finish(start())
    context.target.groups.clear()
    stage(ORDERS, b"d")

    finish(start())

    assert_exact(context, b"a", b"b", b"c", b"d")


def test_progress_that_was_set_back_leaves_its_partition_out(context, stage, start):
    stage(ORDERS, b"a", b"b", b"c")
    stage(USERS, b"x")
    finish(start())
    group = context.target.groups[context.flow.flow.progress_group]
    held = group[remote(ORDERS)]
    group[remote(ORDERS)] = type(held)(1, held.incarnation, held.target_topic_id)
    stage(USERS, b"y")

    replaying = start()
    finish(replaying)

    assert isinstance(replaying.partition_errors[ORDERS], ProgressBehindError)
    assert shown(context) == [b"a", b"b", b"c"]
    assert shown(context, USERS) == [b"x", b"y"]


def test_a_target_topic_that_was_made_anew_waits_for_an_order_and_then_has_everything(
    context, stage, start
):
    context.timings = Timings(topics_max_age_s=0.0)
    for value in (b"a", b"b", b"c"):
        stage(ORDERS, value)
    replaying = start()
    finish(replaying)
    context.target.make("us-east.orders")
    stage(ORDERS, b"d")

    finish(replaying)
    assert isinstance(replaying.partition_errors[ORDERS], TargetChangedError)
    assert shown(context) == []

    ControlTable(context.lake.control).add_request(RESTART, context.flow.flow.name, "orders")
    finish(replaying)
    assert_exact(context, b"a", b"b", b"c", b"d")


def test_a_source_topic_that_was_made_anew_follows_its_former_life(context, stage, start):
    stage(ORDERS, b"a", b"b")
    replaying = start()
    finish(replaying)
    context.source.make("orders")
    stage(ORDERS, b"c", b"d")

    finish(replaying)

    assert shown(context) == [b"a", b"b", b"c", b"d"]
    assert replaying.progress(ORDERS).incarnation == context.source.ids["orders"]
    assert start().tick().is_idle


def test_a_partition_that_is_refused_is_left_out_until_it_is_resumed(context, stage, start):
    stage(ORDERS, b"a")
    stage(USERS, b"x")
    replaying = start()
    finish(replaying)
    context.target.refused[remote(ORDERS)] = b"bad"
    stage(ORDERS, b"bad")
    stage(USERS, b"y")

    finish(replaying)
    assert isinstance(replaying.partition_errors[ORDERS], RecordRefusedError)
    assert shown(context, USERS) == [b"x", b"y"]

    context.target.refused.clear()
    assert replaying.tick().is_idle
    ControlTable(context.lake.control).add_request(RESUME, context.flow.flow.name)
    finish(replaying)
    assert replaying.partition_errors == {}
    assert_exact(context, b"a", b"bad")


def test_a_paused_topic_waits_and_the_others_go_on(context, stage, start):
    ControlTable(context.lake.control).add_request(PAUSE, context.flow.flow.name, "orders")
    stage(ORDERS, b"a")
    stage(USERS, b"x")
    replaying = start()

    finish(replaying)
    assert replaying.paused == {ORDERS}
    assert (shown(context), shown(context, USERS)) == ([], [b"x"])

    ControlTable(context.lake.control).add_request(RESUME, context.flow.flow.name, "orders")
    finish(replaying)
    assert shown(context) == [b"a"]


def test_a_target_that_is_down_is_the_ticks_error_and_the_next_one_works(context, stage, start):
    stage(ORDERS, b"a")
    replaying = start()
    context.target.is_down = True
    with pytest.raises(UnreachableError):
        replaying.tick()

    context.target.is_down = False
    finish(replaying)

    assert_exact(context, b"a")


def test_of_two_processes_that_replay_at_once_one_writes_the_map(context, stage, start):
    stage(ORDERS, b"a")
    replaying = start()
    finish(replaying)
    stage(ORDERS, b"b")
    rival = FlowReplayer(context, context.flow, InlineWorkers())
    rival.load_ends()  # without the lease, as when it failed to exclude
    finish(rival)
    stage(ORDERS, b"c")

    for _ in range(3):
        try:
            finish(replaying)
        except StalePlanError:
            replaying.load_ends()

    assert replaying.partition_errors == {}
    assert_exact(context, b"a", b"b", b"c")
