"""Loops of a run: all records arrive, a failing flow stops no other, and runs end as specified."""

import dataclasses
import threading
from contextlib import suppress

import pytest

from deltamirror.control import PAUSE, ControlTable
from deltamirror.listener import Listener
from deltamirror.replay.replayer import FlowReplayer, ReplayTick
from deltamirror.run.catch_up import CatchUpTarget
from deltamirror.run.supervisor import Mirror
from deltamirror.staging.segment_index import SegmentIndex
from deltamirror.staging.stager import SourceStager, StageTick
from resources.delta.lake import DeltaLake
from schemas.config.config import HeartbeatConfig
from schemas.config.flow import Flow
from schemas.errors.base import ConfigError, NotCaughtUpError
from schemas.errors.environment import SparkFailedError, UnreachableError
from schemas.errors.lake import LeaseHeldError
from schemas.errors.source import RangeUnfinishedError, TopicMissingError
from schemas.errors.target import TargetTopicError
from schemas.kafka.partition import TopicPartition
from tests.support.fake_cluster import RecordContent
from tests.support.fake_context import InlinePool, InlineWorkers
from tests.support.loops import looping_context

EU = Flow("us-east", "eu-west")
BACK = Flow("eu-west", "us-east")
AP = Flow("ap-south", "eu-west")

ORDERS = TopicPartition("orders", 0)
REMOTE = TopicPartition("us-east.orders", 0)


class RecordingListener(Listener):
    """A listener that keeps what it received."""

    def __init__(self):
        self.records, self.staged_records, self.errors = 0, 0, []
        self.arrived = threading.Event()

    def staged(self, alias, segments, timestamps=()):
        self.staged_records += sum(segment.count for segment in segments)

    def replayed(self, flow, moves):
        self.records += sum(move.records for move in moves)
        self.arrived.set()

    def tick_failed(self, role, error):
        self.errors.append((role, error))


@pytest.fixture
def context(lake, monkeypatch):
    return looping_context(lake, monkeypatch)


def run(context, *, until_caught_up=True, **options):
    Mirror(context.config, until_caught_up=until_caught_up, **options).run()


def write(context, *values):
    context.source.append(ORDERS, *(RecordContent(value) for value in values))


def shown(context):
    return [record.value for _, record in context.target.visible(REMOTE)]


def test_a_run_until_caught_up_ends_after_all_records_arrived(context):
    write(context, b"a", b"b", b"c")
    recorder = RecordingListener()

    run(context, listeners=[recorder])
    write(context, b"d")
    run(context)

    assert shown(context) == [b"a", b"b", b"c", b"d"]
    assert (recorder.records, recorder.errors) == (3, [])


def test_a_run_until_caught_up_ends_while_a_topic_keeps_getting_records(context, monkeypatch):
    write(context, b"a")
    tick, seen, stop = FlowReplayer.tick, [], threading.Event()

    def restless(self, only=None):
        done = tick(self, only)
        seen.extend(done.moves)
        return ReplayTick(tuple(seen)) if seen else done

    monkeypatch.setattr(FlowReplayer, "tick", restless)
    thread = threading.Thread(target=run, args=(context,), kwargs={"stop": stop}, daemon=True)
    thread.start()
    thread.join(20)
    has_ended = not thread.is_alive()
    stop.set()

    assert has_ended
    assert shown(context) == [b"a"]


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(RangeUnfinishedError("users[0]", at=0, end=1, reason="late"), id="may pass"),
        pytest.param(TargetTopicError("no topic for users[0]"), id="is for a person"),
    ],
)
def test_a_run_until_caught_up_ends_while_one_topic_fails_and_another_keeps_getting_records(
    context, monkeypatch, error
):
    context.timings = dataclasses.replace(context.timings, failure_timeout_s=0.1)
    monkeypatch.setattr(FlowReplayer, "partition_errors", {TopicPartition("users", 0): error})
    write(context, b"a")
    tick, seen, stop, ended = FlowReplayer.tick, [], threading.Event(), []

    def restless(self, only=None):
        done = tick(self, only)
        again = tuple(dataclasses.replace(move, before=move.after) for move in seen)
        seen.extend(done.moves)
        return ReplayTick(again or done.moves, is_idle=not (again or done.moves))

    def run_it():
        try:
            run(context, stop=stop)
        except NotCaughtUpError as not_caught_up:
            ended.append(not_caught_up)

    monkeypatch.setattr(FlowReplayer, "tick", restless)
    thread = threading.Thread(target=run_it, daemon=True)
    thread.start()
    thread.join(20)
    stop.set()

    assert [str(error) in str(each) for each in ended] == [True]
    assert shown(context) == [b"a"]


@pytest.mark.parametrize(
    ("chosen", "pairs"),
    [
        pytest.param({}, [EU, BACK, AP], id="all pairs"),
        pytest.param({"targets": ["eu-west"]}, [EU, AP], id="those into the clusters named"),
        pytest.param({"flows": ["us-east->eu-west"]}, [EU], id="the flows named"),
    ],
)
def test_heartbeats_are_emitted_for_the_chosen_pairs_only(context, chosen, pairs):
    hearts = tuple(HeartbeatConfig(pair, "heartbeats", 1.0, 1) for pair in (EU, BACK, AP))

    made = Mirror(dataclasses.replace(context.config, heartbeats=hearts), **chosen)

    assert [each.flow for each in made._background._heartbeats] == pairs


def test_a_run_until_caught_up_ends_if_a_topic_is_re_created_meanwhile(context):
    write(context, b"a", b"b")
    goal = CatchUpTarget({ORDERS: (context.source.ids["orders"], 2)})
    ledger = SegmentIndex(context.lake.segments("us-east"))
    staging = SourceStager(context, "us-east", InlineWorkers())
    staging.open()
    assert not goal.is_staged(ledger, ())
    staging.tick()
    context.source.make("orders")
    staging._source_topics.refresh_topics()
    staging.tick()
    staging.close()

    ledger.refresh()

    assert goal.is_staged(ledger, ())


def test_a_run_continues_until_it_is_stopped_and_releases_its_leases(context):
    write(context, b"a")
    recorder, stop = RecordingListener(), threading.Event()
    options = {"until_caught_up": False, "listeners": [recorder], "stop": stop}
    thread = threading.Thread(target=run, args=(context,), kwargs=options)
    thread.start()
    assert recorder.arrived.wait(20)
    assert thread.is_alive()

    stop.set()
    thread.join(20)

    assert not thread.is_alive()
    run(context)


def test_a_flow_that_another_process_replays_is_refused(context):
    context.lake.ensure_exists()
    other = Mirror(context.config, until_caught_up=True)
    other.replay_loops[0].replayer.open()

    with pytest.raises(LeaseHeldError):
        run(context)

    other.replay_loops[0].replayer.close()


def test_a_target_that_is_down_is_reported_and_staged_records_arrive_when_it_is_back(
    context, monkeypatch
):
    write(context, b"a")
    recorder = RecordingListener()
    down = threading.Event()
    tick_failed = recorder.tick_failed

    def back(role, error):
        tick_failed(role, error)
        if role.startswith("replay"):
            context.target.is_down = False
            down.set()

    recorder.tick_failed = back
    stop = threading.Event()
    context.target.is_down = True
    options = {"until_caught_up": False, "listeners": [recorder], "stop": stop}
    thread = threading.Thread(target=run, args=(context,), kwargs=options)
    thread.start()
    assert down.wait(20)
    assert recorder.arrived.wait(20)
    stop.set()
    thread.join(20)

    assert shown(context) == [b"a"]


def test_loops_report_that_spark_does_not_start_and_try_again(context, monkeypatch):
    write(context, b"a")
    recorder, run_jobs, starts = RecordingListener(), InlinePool.run, iter(range(100))

    def start(self, count):
        raise SparkFailedError("Spark did not start: its JVM ended")

    def later(self, jobs):
        if next(starts) == 0:
            self.start(1)
        return run_jobs(self, jobs)

    monkeypatch.setattr(InlinePool, "start", start)
    monkeypatch.setattr(InlinePool, "run", later)

    run(context, listeners=[recorder])

    assert shown(context) == [b"a"]
    assert [str(error) for _, error in recorder.errors] == ["Spark did not start: its JVM ended"]


def test_a_run_does_not_give_up_while_an_attempt_is_running(context, monkeypatch):
    context.timings = dataclasses.replace(context.timings, failure_timeout_s=0)
    write(context, b"a")
    stage, replay, failed, idle = SourceStager.tick, FlowReplayer.tick, threading.Event(), []
    has_looked = threading.Event()

    def fails_once(self, only=None):
        if not failed.is_set():
            failed.set()
            raise UnreachableError("us-east", servers="", reason="it is down")
        assert has_looked.wait(20)
        return stage(self, only)

    def counted(self, only=None):
        if failed.is_set():
            idle.append(True)
        if len(idle) == 3:
            has_looked.set()
        return replay(self, only)

    monkeypatch.setattr(SourceStager, "tick", fails_once)
    monkeypatch.setattr(FlowReplayer, "tick", counted)
    run(context)

    assert shown(context) == [b"a"]


def test_a_partition_whose_end_is_unknown_at_the_start_is_mirrored_before_the_run_ends(
    context, monkeypatch
):
    write(context, b"a")
    ask, resolve_ends = context.source.watermarks, []

    def silent_at_first(partitions, known=None):
        resolve_ends.append(partitions)
        silent = UnreachableError("us-east", servers=str(ORDERS), reason="no offset returned")
        return {ORDERS: silent} if len(resolve_ends) == 1 else ask(partitions, known)

    monkeypatch.setattr(context.source, "watermarks", silent_at_first)
    run(context)

    assert shown(context) == [b"a"]


def test_a_topic_that_is_deleted_before_its_end_is_known_does_not_block_the_end_of_a_run(context):
    goal = CatchUpTarget({ORDERS: (context.source.ids["orders"], None), REMOTE: ("id", 3)})

    context.source.drop("orders")

    assert goal.resolve_ends(context.source).ends == {REMOTE: ("id", 3)}


def test_a_run_waits_for_a_listed_topic_that_one_broker_does_not_know_yet(context, monkeypatch):
    goal = CatchUpTarget({ORDERS: (context.source.ids["orders"], None)})
    late = {ORDERS: TopicMissingError(str(ORDERS), location="on us-east")}
    monkeypatch.setattr(context.source, "watermarks", lambda partitions: late)

    assert goal.resolve_ends(context.source) == goal


@pytest.mark.parametrize("passes", [True, False])
def test_a_run_until_caught_up_waits_for_transient_errors(context, monkeypatch, passes):
    write(context, b"a")
    stage, replay, idle = SourceStager.tick, FlowReplayer.tick, []
    has_looked = threading.Event()

    def in_trouble(self, only=None):
        if passes and has_looked.is_set():
            return stage(self, only)
        self.partition_errors = {
            ORDERS: RangeUnfinishedError(ORDERS, at=0, end=1, reason="no leader")
        }
        return StageTick()

    def counted(self, only=None):
        idle.append(True)
        if len(idle) == 3:
            has_looked.set()
        return replay(self, only)

    monkeypatch.setattr(SourceStager, "tick", in_trouble)
    monkeypatch.setattr(FlowReplayer, "tick", counted)
    if passes:  # three ticks may take long on a busy machine
        context.timings = dataclasses.replace(context.timings, failure_timeout_s=30.0)
    if not passes:
        with pytest.raises(NotCaughtUpError, match="no leader"):
            run(context)
    else:
        run(context)
        assert shown(context) == [b"a"]


def test_a_run_until_caught_up_ends_if_the_source_stays_unreachable(context, monkeypatch):
    def fails(self, only=None):
        raise UnreachableError("us-east", servers="", reason="it is down")

    monkeypatch.setattr(SourceStager, "tick", fails)

    with pytest.raises(NotCaughtUpError, match="it is down"):
        run(context)


def test_a_partition_that_needs_an_operator_is_reported_at_the_end(context):
    write(context, b"a")
    run(context)
    write(context, b"b", b"c")
    context.source.expire(ORDERS, 2)

    with pytest.raises(NotCaughtUpError, match=r"orders\[0\]: records \[1, 2\) expired"):
        run(context)

    assert shown(context) == [b"a"]


def test_a_paused_topic_is_reported_at_the_end(context):
    write(context, b"a")
    ControlTable(DeltaLake(context.config.lake).control).add_request(PAUSE, context.flow.flow.name)

    with pytest.raises(NotCaughtUpError, match=r"orders\[0\] is paused"):
        run(context)


def test_a_file_without_an_enabled_flow_is_a_configuration_error(context):
    with pytest.raises(ConfigError, match="no flow is enabled"):
        Mirror(dataclasses.replace(context.config, flows=()))


@pytest.mark.parametrize("failing", [SourceStager, FlowReplayer])
def test_records_that_a_failed_tick_has_committed_are_counted_once(context, monkeypatch, failing):
    write(context, b"a", b"b")
    recorder, tick, failed = RecordingListener(), failing.tick, []

    def fails_after_its_commit(self, only=None):
        found = tick(self, only)
        if any(self.committed) and len(failed) < 2:
            failed.append(True)
            raise UnreachableError("eu-west", servers="localhost:1", reason="a slot failed")
        return found

    monkeypatch.setattr(failing, "tick", fails_after_its_commit)
    with suppress(NotCaughtUpError):  # staging may not have recovered when replay is done
        run(context, listeners=[recorder])

    assert failed
    assert (recorder.staged_records, recorder.records) == (2, 2)
    assert shown(context) == [b"a", b"b"]


@pytest.mark.parametrize("failing", [SourceStager, FlowReplayer])
def test_an_unexpected_error_is_reported_and_does_not_end_a_loop(context, monkeypatch, failing):
    write(context, b"a")
    recorder, tick, failed = RecordingListener(), failing.tick, []

    def fails_once(self, only=None):
        if not failed:
            failed.append(True)
            raise KeyError("not thought of")
        return tick(self, only)

    monkeypatch.setattr(failing, "tick", fails_once)
    run(context, listeners=[recorder])

    ((_, error),) = recorder.errors
    assert str(error) == "KeyError: 'not thought of'"
    assert shown(context) == [b"a"]
