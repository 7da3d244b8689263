"""Stage a source cluster tick by tick: exactly once, with an error for each skipped record."""

from dataclasses import replace
from itertools import count

import pytest

from deltamirror.control import ACCEPT_GAP, ControlTable
from deltamirror.staging.stager import SourceStager
from resources.delta.records_table import RecordsTable
from resources.delta.table import LakeTable
from schemas.errors.environment import UnreachableError
from schemas.errors.lake import LakeError, LeaseHeldError, StalePlanError
from schemas.errors.source import (
    LogTruncatedError,
    RangeUnfinishedError,
    RecordsExpiredError,
    TopicDeletedError,
    TopicRecreatedError,
)
from schemas.kafka.partition import SourcePartition, TopicPartition
from schemas.kafka.topic import ConfigValue
from schemas.tables import SEGMENTS
from tests.support.fake_cluster import RecordContent
from tests.support.fake_context import FakeContext, InlineWorkers

ORDERS, USERS = TopicPartition("orders", 0), TopicPartition("users", 0)


@pytest.fixture
def context(lake, monkeypatch):
    made = FakeContext(lake, monkeypatch)
    for topic in ("orders", "users"):
        made.source.make(topic)
    return made


@pytest.fixture
def start(context):
    """Return a function that opens a stager as a new process does.

    It releases the lease of the stager before.
    """
    opened = []

    def open_():
        for former in opened:
            former.close()
        opened.append(SourceStager(context, "us-east", InlineWorkers()))
        opened[-1].open()
        return opened[-1]

    yield open_
    opened[-1].close()


def write(context, partition, *values):
    context.source.append(partition, *(RecordContent(value) for value in values))


def staged(context, partition=ORDERS):
    """Return (incarnation, offset, value) of each staged record."""
    rows = context.lake.records("us-east").rows().sort_by([("topic_id", "ascending")]).to_pylist()
    return sorted(
        (r["topic_id"], r["offset"], r["value"])
        for r in rows
        if (r["topic"], r["partition"]) == (partition.topic, partition.partition)
    )


def values(context, partition=ORDERS):
    return [value for _, _, value in staged(context, partition)]


def gaps(context):
    rows = context.lake.segments("us-east").rows().to_pylist()
    return [(r["start"], r["end"], r["gap_cause"]) for r in rows if "accepted" in r["gap_cause"]]


def accept(context, topic=None):
    ControlTable(context.lake.control).add_request(ACCEPT_GAP, "us-east", topic)


def test_records_are_staged_once_and_the_next_tick_continues_after_them(context, start):
    write(context, ORDERS, b"a", b"b")
    staging = start()

    assert sum(s.count for s in staging.tick().segments) == 2
    assert staging.tick().segments == ()
    write(context, ORDERS, b"c")
    assert [s.start for s in staging.tick().segments] == [2]

    assert values(context) == [b"a", b"b", b"c"]
    assert staging.frontier(ORDERS) == 3


def test_the_first_tick_of_a_backlog_is_small_and_each_next_tick_is_twice_as_large(
    context, start, monkeypatch
):
    monkeypatch.setattr("pipeline.staging.plan.INITIAL_TICK_BYTES", 100_000)
    write(context, ORDERS, *[b"x" * 1_000] * 1_000)
    staging = start()

    def tick():
        return sum(segment.count for segment in staging.tick(["orders"]).segments)

    first, *rest = (tick() for _ in range(4))
    write(context, ORDERS, *[b"x" * 1_000] * 200)
    again = tick()

    assert 80 < first < 110
    assert [round(count / first) for count in rest[:2]] == [2, 4]
    assert first + sum(rest) == 1_000
    assert again == first


def test_a_stager_adds_up_the_cpu_time_of_its_ticks_here_and_in_the_workers(
    context, start, monkeypatch
):
    of_workers, here = count(0, 1.0), count(0, 0.25)
    monkeypatch.setattr("deltamirror.worker_tasks.time.process_time", lambda: next(of_workers))
    monkeypatch.setattr("deltamirror.staging.stager.time.thread_time", lambda: next(here))
    staging = start()
    assert staging.cpu_s == 0.0
    for tick in (1, 2):
        write(context, ORDERS, b"%d" % tick)
        staging.tick()
        assert staging.cpu_s == 1.25 * tick
    context.source.is_down = True
    with pytest.raises(UnreachableError):
        staging.tick()
    assert staging.cpu_s == 2.75


def test_a_small_tick_is_one_file_and_a_large_one_is_a_file_for_each_worker(
    context, start, monkeypatch
):
    assert {ORDERS.slot % 2, USERS.slot % 2} == {0, 1}, "they are of two workers"
    staging = start()
    for bound, files in ((2**20, 1), (0, 1 + 2)):
        monkeypatch.setattr("pipeline.staging.plan.SMALL_TICK_BYTES", bound)
        write(context, ORDERS, b"a")
        write(context, USERS, b"b")
        staging.tick()

        records = context.lake.records("us-east")
        records.refresh()
        assert len(records.files()) == files
    assert (values(context, ORDERS), values(context, USERS)) == ([b"a"] * 2, [b"b"] * 2)


def test_another_process_continues_at_the_committed_frontiers(context, start):
    write(context, ORDERS, b"a", b"b")
    start().tick()
    write(context, ORDERS, b"c")

    staging = start()
    assert staging.frontier(ORDERS) == 2
    staging.tick()

    assert values(context) == [b"a", b"b", b"c"]


def test_a_tick_reports_the_last_stable_offsets_of_the_source(context, start):
    write(context, ORDERS, b"a")
    context.source.append(ORDERS, RecordContent(b"open"), state="open")

    watermarks = start().tick().watermarks

    assert {p: marks.stable for p, marks in watermarks.items()} == {ORDERS: 1, USERS: 0}


def test_a_tick_stages_only_the_requested_topics(context, start):
    write(context, ORDERS, b"a")
    write(context, USERS, b"x")

    start().tick(["users"])

    assert (values(context), values(context, USERS)) == ([], [b"x"])


def test_one_process_at_a_time_stages_a_cluster(context, start):
    start()

    with pytest.raises(LeaseHeldError):
        SourceStager(context, "us-east", InlineWorkers()).open()


def test_a_tick_fails_while_the_source_is_down_and_the_next_tick_works(context, start):
    write(context, ORDERS, b"a")
    staging = start()
    context.source.is_down = True
    with pytest.raises(UnreachableError):
        staging.tick()

    context.source.is_down = False
    staging.tick()

    assert values(context) == [b"a"]


def segment_spans(context, *, in_table=False):
    """Return the segments of `orders` that a reader finds, or that the table itself has."""
    table = context.lake.segments("us-east")
    rows = (LakeTable(table.path, SEGMENTS) if in_table else table).rows().sort_by("start")
    return [(r["start"], r["end"]) for r in rows.to_pylist() if r["topic"] == "orders"]


def test_segments_of_a_killed_process_are_found_and_the_next_process_seals_them(context, start):
    staging = start()
    for value in (b"a", b"b"):
        write(context, ORDERS, value)
        staging.tick()
    staging.lease.release()  # killed: it does not close

    assert segment_spans(context) == [(0, 1), (1, 2)]
    assert segment_spans(context, in_table=True) == []
    staging.close()
    again = start()
    assert again.frontier(ORDERS) == 2
    again.tick()
    assert values(context) == [b"a", b"b"]
    assert segment_spans(context) == segment_spans(context, in_table=True) == [(0, 1), (1, 2)]


def test_a_stager_seals_its_segments_when_it_is_closed(context, start):
    staging = start()
    write(context, ORDERS, b"a")
    staging.tick()
    assert segment_spans(context, in_table=True) == []

    staging.close()

    assert segment_spans(context, in_table=True) == [(0, 1)]


def test_a_stager_seals_its_segments_once_in_an_interval_even_when_it_is_idle(context, start):
    context.timings = replace(context.timings, seal_interval_s=0.0)
    staging = start()
    write(context, ORDERS, b"a")
    staging.tick()

    staging.tick()

    assert segment_spans(context, in_table=True) == [(0, 1)]


def test_a_failure_before_the_commit_leaves_no_visible_records(context, start, monkeypatch):
    write(context, ORDERS, b"a")
    with monkeypatch.context() as patch:

        def full(*_, **__):
            raise LakeError("no space")

        patch.setattr(RecordsTable, "stage", full)
        with pytest.raises(LakeError):
            start().tick()

    start().tick()

    assert values(context) == [b"a"]


def test_a_second_stager_makes_the_plan_stale_and_no_record_is_staged_twice(context, start):
    write(context, ORDERS, b"a")
    staging = start()
    staging.tick()
    write(context, ORDERS, b"b")
    rival = SourceStager(context, "us-east", InlineWorkers())
    rival._committer.load()  # without the lease, as when it failed to exclude
    rival.tick()

    with pytest.raises(StalePlanError):
        staging.tick()
    staging.tick()

    assert values(context) == [b"a", b"b"]


def test_expired_records_stop_their_partition_until_the_gap_is_accepted(context, start):
    write(context, ORDERS, b"a")
    staging = start()
    staging.tick()
    write(context, ORDERS, b"b", b"c", b"d")
    write(context, USERS, b"x")
    context.source.expire(ORDERS, 3)

    staging.tick()
    assert isinstance(staging.partition_errors[ORDERS], RecordsExpiredError)
    assert values(context, USERS) == [b"x"]
    assert values(context) == [b"a"]

    accept(context, "orders")
    staging.tick()

    assert staging.partition_errors == {}
    assert values(context) == [b"a", b"d"]
    assert gaps(context) == [(1, 3, "expired, accepted")]


def test_an_accept_gap_request_is_applied_once_and_not_to_later_gaps(context, start):
    write(context, ORDERS, b"a", b"b")
    staging = start()
    staging.tick()
    accept(context)
    staging.tick()
    write(context, ORDERS, b"c", b"d")
    context.source.expire(ORDERS, 3)

    staging.tick()
    assert isinstance(staging.partition_errors[ORDERS], RecordsExpiredError)

    assert isinstance(start().tick() and start().partition_errors.get(ORDERS), type(None))


def test_a_re_created_topic_continues_as_a_new_incarnation_if_it_was_fully_staged(context, start):
    write(context, ORDERS, b"a")
    staging = start()
    staging.tick()
    context.source.make("orders")
    write(context, ORDERS, b"b")
    staging._source_topics.refresh_topics()

    staging.tick()

    assert [value for *_, value in staged(context)] == [b"a", b"b"]
    assert len({incarnation for incarnation, *_ in staged(context)}) == 2


def test_a_topic_re_created_before_it_was_staged_waits_for_the_operator(lake, monkeypatch):
    context = FakeContext(lake, monkeypatch, max_batch_records=1)
    context.source.make("orders")
    write(context, ORDERS, b"a", b"b", b"c")
    staging = SourceStager(context, "us-east", InlineWorkers())
    staging.open()
    staging.tick()
    context.source.make("orders")
    write(context, ORDERS, b"d")
    staging._source_topics.refresh_topics()

    staging.tick()
    assert isinstance(staging.partition_errors[ORDERS], TopicRecreatedError)
    assert "[1, 3)" in str(staging.partition_errors[ORDERS])

    accept(context)
    staging.tick()
    assert [value for *_, value in staged(context)] == [b"a", b"d"]
    assert gaps(context) == [(1, 3, "re-created before it was staged, accepted")]
    staging.close()


@pytest.fixture
def after_read(context):
    """Return a function that runs an action once, after the next read and before its commit."""

    def after(action):
        read = context.reader.read

        def then(*args):
            answer = read(*args)
            context.reader.read = read
            action()
            return answer

        context.reader.read = then

    return after


def remake(context, *values):
    context.source.make("orders")
    write(context, ORDERS, *values)


def test_a_topic_that_is_re_created_while_it_is_read_is_not_committed(context, start, after_read):
    write(context, ORDERS, b"a")
    staging = start()
    after_read(lambda: remake(context, b"other"))

    staging.tick()
    staging.tick()
    assert isinstance(staging.partition_errors[ORDERS], TopicRecreatedError)
    assert "[0, 1)" in str(staging.partition_errors[ORDERS])
    assert values(context) == []

    accept(context)
    staging.tick()
    staging.tick()
    assert values(context) == [b"other"]
    assert gaps(context) == [(0, 1, "re-created before it was staged, accepted")]


def test_unstaged_records_of_an_earlier_incarnation_stop_the_partition(context, start, after_read):
    write(context, ORDERS, b"a")
    staging = start()
    staging.tick()
    write(context, ORDERS, b"b", b"c")
    after_read(lambda: remake(context, b"other"))

    staging.tick()
    staging.tick()

    assert "[1, 3)" in str(staging.partition_errors[ORDERS])
    assert values(context) == [b"a"]


def test_a_new_process_still_reports_unstaged_records_of_an_earlier_incarnation(
    context, start, after_read
):
    write(context, ORDERS, b"a", b"b")
    staging = start()
    after_read(lambda: remake(context, b"other"))
    staging.tick()
    staging.tick()
    commits = context.lake.records("us-east").version
    staging.tick()
    assert context.lake.records("us-east").version == commits

    staging = start()
    staging.tick()
    assert "[0, 2)" in str(staging.partition_errors[ORDERS])
    assert values(context) == []

    accept(context)
    staging.tick()
    staging.tick()
    assert values(context) == [b"other"]
    assert gaps(context) == [(0, 2, "re-created before it was staged, accepted")]


def test_several_unstaged_incarnations_are_accepted_one_by_one(context, start, after_read):
    write(context, ORDERS, b"a", b"b")
    staging = start()
    after_read(lambda: remake(context, b"c", b"d", b"e"))
    staging.tick()
    staging.tick()
    remake(context, b"f")
    staging._source_topics.refresh_topics()
    staging.tick()

    assert "[0, 2)" in str(staging.partition_errors[ORDERS])
    accept(context)
    staging.tick()
    assert "[0, 3)" in str(staging.partition_errors[ORDERS])
    accept(context)
    staging.tick()

    assert values(context) == [b"f"]
    assert sorted((start, end) for start, end, _ in gaps(context)) == [(0, 2), (0, 3)]


def test_a_re_created_topic_with_more_records_is_not_mistaken_for_the_old_one(context, start):
    write(context, ORDERS, b"a", b"b")
    staging = start()
    staging.tick()
    reads = len(context.reader.reads)
    remake(context, b"c", b"d", b"e")  # without refresh_topics()

    staging.tick()
    assert len(context.reader.reads) == reads
    staging.tick()

    assert (values(context), staging.partition_errors) == ([b"a", b"b", b"c", b"d", b"e"], {})


def test_an_error_of_an_earlier_incarnation_does_not_block_the_next_one(context, start):
    write(context, ORDERS, b"a", b"b")
    staging = start()
    staging.tick()
    write(context, ORDERS, b"c")
    former = SourcePartition("orders", context.source.ids["orders"], 0)
    context.reader.fails[former] = LogTruncatedError(ORDERS, staged=2, end=1)
    staging.tick()
    assert isinstance(staging.partition_errors[ORDERS], LogTruncatedError)

    remake(context, b"d")
    staging.tick()

    assert isinstance(staging.partition_errors[ORDERS], TopicRecreatedError)
    assert "[2, 3)" in str(staging.partition_errors[ORDERS])


def test_a_deleted_topic_that_was_not_fully_staged_is_an_error_until_it_is_accepted(
    context, start, after_read
):
    write(context, ORDERS, b"a")
    staging = start()
    staging.tick()
    write(context, ORDERS, b"b", b"c")
    write(context, USERS, b"x")
    after_read(lambda: context.source.drop("orders"))

    staging.tick()
    staging.tick()
    assert isinstance(staging.partition_errors[ORDERS], TopicDeletedError)
    assert "[1, 3) were not staged" in str(staging.partition_errors[ORDERS])
    assert values(context, USERS) == [b"x"]

    accept(context, "orders")
    staging.tick()
    assert staging.partition_errors == {}
    assert gaps(context) == [(1, 3, "deleted before it was staged, accepted")]


def test_a_deleted_topic_that_was_fully_staged_is_no_error(context, start):
    write(context, ORDERS, b"a")
    staging = start()
    staging.tick()
    context.source.drop("orders")
    staging._source_topics.refresh_topics()

    staging.tick()

    assert staging.partition_errors == {}


def test_an_unstaged_partition_that_the_re_created_topic_lacks_is_an_error(lake, monkeypatch):
    context = FakeContext(lake, monkeypatch, max_batch_records=2)
    context.source.make("orders", partitions=2)
    second = TopicPartition("orders", 1)
    write(context, ORDERS, b"a")
    write(context, second, b"x", b"y", b"z")
    staging = SourceStager(context, "us-east", InlineWorkers())
    staging.open()
    staging.tick()
    del context.source.logs[second]
    context.source.make("orders")
    staging._source_topics.refresh_topics()

    staging.tick()

    assert list(staging.partition_errors) == [second]
    assert "[1, 3) were not staged" in str(staging.partition_errors[second])
    staging.close()


@pytest.mark.parametrize(
    ("policy", "cause"),
    [
        pytest.param("delete", "transaction markers or aborted", id="not compacted"),
        pytest.param("compact,delete", "compacted, transaction markers or aborted", id="compacted"),
        pytest.param(
            None, "compacted, transaction markers or aborted", id="cleanup.policy unknown"
        ),
    ],
)
def test_a_gap_has_the_causes_that_the_topics_cleanup_policy_allows(
    context, start, monkeypatch, policy, cause
):
    setting = ConfigValue(policy, "DYNAMIC_TOPIC_CONFIG", False, False, False)
    configs = {"orders": {"cleanup.policy": setting}} if policy else {}
    monkeypatch.setattr(context.source, "topic_configs", lambda names: configs)
    write(context, ORDERS, b"a")
    context.source.mark(ORDERS)
    write(context, USERS, b"x")

    segments = start().tick().segments

    assert {s.topic: (s.gaps, s.gap_cause) for s in segments} == {
        "orders": (1, cause),
        "users": (0, ""),
    }


def test_a_truncated_log_continues_as_a_new_incarnation_after_it_is_accepted(context, start):
    write(context, ORDERS, b"a", b"b", b"c")
    staging = start()
    staging.tick()
    context.source.cut(ORDERS, 1)

    staging.tick()
    assert isinstance(staging.partition_errors[ORDERS], LogTruncatedError)

    accept(context)
    staging.tick()
    topic_id = context.source.ids["orders"]
    assert staged(context)[-1] == (f"{topic_id}+1", 0, b"a")
    assert staging.frontier(ORDERS) == 1


def test_a_request_made_while_no_process_staged_applies_to_an_error_found_by_reading(
    context, start
):
    write(context, ORDERS, b"a")
    start().tick()
    write(context, ORDERS, b"gone", b"b")
    source = SourcePartition("orders", context.source.ids["orders"], 0)
    context.reader.fails[source] = RecordsExpiredError(ORDERS, wanted=1, low=2)
    start().tick()
    accept(context)

    staging = start()
    staging.tick()
    context.reader.fails.clear()
    staging.tick()

    assert values(context) == [b"a", b"b"]
    assert gaps(context) == [(1, 2, "expired, accepted")]


def test_a_partition_whose_read_timed_out_is_tried_again_after_the_retry_interval(
    context, start, monkeypatch
):
    now = [1_000.0]
    monkeypatch.setattr("deltamirror.staging.stager.time.monotonic", lambda: now[0])
    write(context, ORDERS, b"a")
    write(context, USERS, b"x")
    source = SourcePartition("orders", context.source.ids["orders"], 0)
    context.reader.fails[source] = RangeUnfinishedError(ORDERS, at=0, end=1, reason="slow")
    staging = start()
    staging.tick()
    context.reader.fails.clear()
    reads = len(context.reader.reads)

    staging.tick()
    assert len(context.reader.reads) == reads
    assert list(staging.partition_errors) == [ORDERS]

    now[0] += 10
    staging.tick()
    assert (values(context), staging.partition_errors) == ([b"a"], {})


def test_a_new_partition_whose_first_records_expire_during_the_read_is_planned_again(
    context, start, monkeypatch
):
    now = [1_000.0]
    monkeypatch.setattr("deltamirror.staging.stager.time.monotonic", lambda: now[0])
    write(context, ORDERS, b"a", b"b")
    source = SourcePartition("orders", context.source.ids["orders"], 0)
    context.reader.fails[source] = RecordsExpiredError(ORDERS, wanted=0, low=1)
    staging = start()
    staging.tick()
    context.reader.fails.clear()
    context.source.expire(ORDERS, 1)
    accept(context)

    now[0] += 10
    staging.tick()

    assert values(context) == [b"b"]
    assert staging.partition_errors == {}


def test_an_expiry_found_by_reading_is_accepted_up_to_the_current_log_start(context, start):
    write(context, ORDERS, b"a")
    start().tick()
    write(context, ORDERS, b"b", b"c")
    source = SourcePartition("orders", context.source.ids["orders"], 0)
    context.reader.fails[source] = RecordsExpiredError(ORDERS, wanted=1, low=2)
    accept(context)

    staging = start()
    staging.tick()
    context.reader.fails.clear()
    staging.tick()

    assert gaps(context) == [(1, 2, "expired, accepted")]
    assert values(context) == [b"a", b"c"]
