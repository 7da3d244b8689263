"""A source cluster's staging, tick by tick: exactly once, and never a skip in silence."""

import pytest

from deltamirror.control import ACCEPT_GAP, ControlTable
from deltamirror.staging.stager import SourceStager
from resources.delta.records_table import RecordsTable
from schemas.errors import (
    LakeError,
    LeaseHeldError,
    LogTruncatedError,
    RangeUnfinishedError,
    RecordsExpiredError,
    StalePlanError,
    TopicDeletedError,
    TopicRecreatedError,
    UnreachableError,
)
from schemas.kafka.partition import SourcePartition, TopicPartition
from schemas.kafka.topic import ConfigValue
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
    """Open a staging as a new process would: the one before gives its lease back."""
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
    """Return (incarnation, offset, value) of what is staged."""
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


def test_what_is_written_is_staged_once_and_the_next_tick_goes_on(context, start):
    write(context, ORDERS, b"a", b"b")
    staging = start()

    assert sum(s.count for s in staging.tick().segments) == 2
    assert staging.tick().segments == ()
    write(context, ORDERS, b"c")
    assert [s.start for s in staging.tick().segments] == [2]

    assert values(context) == [b"a", b"b", b"c"]
    assert staging.frontier(ORDERS) == 3


def test_a_backlog_is_begun_with_a_small_tick_and_the_next_ones_are_twice_as_large(
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


def test_another_process_goes_on_where_the_last_one_was(context, start):
    write(context, ORDERS, b"a", b"b")
    start().tick()
    write(context, ORDERS, b"c")

    staging = start()
    assert staging.frontier(ORDERS) == 2
    staging.tick()

    assert values(context) == [b"a", b"b", b"c"]


def test_the_ends_that_were_seen_are_the_last_stable_offsets(context, start):
    write(context, ORDERS, b"a")
    context.source.append(ORDERS, RecordContent(b"open"), state="open")

    watermarks = start().tick().watermarks

    assert {p: marks.stable for p, marks in watermarks.items()} == {ORDERS: 1, USERS: 0}


def test_only_the_topics_that_are_asked_for_are_staged(context, start):
    write(context, ORDERS, b"a")
    write(context, USERS, b"x")

    start().tick(["users"])

    assert (values(context), values(context, USERS)) == ([], [b"x"])


def test_one_process_at_a_time_stages_a_cluster(context, start):
    start()

    with pytest.raises(LeaseHeldError):
        SourceStager(context, "us-east", InlineWorkers()).open()


def test_a_source_that_is_down_is_the_ticks_error_and_the_next_one_works(context, start):
    write(context, ORDERS, b"a")
    staging = start()
    context.source.is_down = True
    with pytest.raises(UnreachableError):
        staging.tick()

    context.source.is_down = False
    staging.tick()

    assert values(context) == [b"a"]


def test_a_crash_after_the_commit_and_before_the_seal_is_made_good(context, start, monkeypatch):
    write(context, ORDERS, b"a")
    staging = start()
    staging.tick()
    write(context, ORDERS, b"b")

    def crash(*_):
        raise RuntimeError("killed")

    monkeypatch.setattr(staging._committer, "seal", crash)
    with pytest.raises(RuntimeError):
        staging.tick()

    again = start()
    assert again.frontier(ORDERS) == 2
    again.tick()
    assert values(context) == [b"a", b"b"]
    rows = context.lake.segments("us-east").rows().sort_by("start").to_pylist()
    assert [(r["start"], r["end"]) for r in rows if r["topic"] == "orders"] == [(0, 1), (1, 2)]


def test_sealing_twice_is_sealing_once(context, start):
    write(context, ORDERS, b"a")
    staging = start()
    (segment,) = [s for s in staging.tick().segments if s.topic == "orders"]
    version = context.lake.records("us-east").version
    before = context.lake.segments("us-east").rows().num_rows

    staging._committer.seal(version, [segment])
    start()._committer.seal(version, [segment])

    assert context.lake.segments("us-east").rows().num_rows == before


def test_a_crash_before_the_commit_leaves_nothing_that_is_read(context, start, monkeypatch):
    write(context, ORDERS, b"a")
    with monkeypatch.context() as patch:

        def full(*_, **__):
            raise LakeError("no space")

        patch.setattr(RecordsTable, "stage", full)
        with pytest.raises(LakeError):
            start().tick()

    start().tick()

    assert values(context) == [b"a"]


def test_a_rival_that_staged_the_same_makes_the_plan_stale_and_nothing_is_there_twice(
    context, start
):
    write(context, ORDERS, b"a")
    staging = start()
    staging.tick()
    write(context, ORDERS, b"b")
    rival = SourceStager(context, "us-east", InlineWorkers())
    rival._committer.learn()  # without the lease, as when it failed to exclude
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


def test_an_order_is_carried_out_once_and_not_for_gaps_that_come_later(context, start):
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


def test_a_topic_that_was_made_anew_goes_on_as_another_life_when_it_was_staged(context, start):
    write(context, ORDERS, b"a")
    staging = start()
    staging.tick()
    context.source.make("orders")
    write(context, ORDERS, b"b")
    staging.refresh_topics()

    staging.tick()

    assert [value for *_, value in staged(context)] == [b"a", b"b"]
    assert len({life for life, *_ in staged(context)}) == 2


def test_a_topic_that_was_made_anew_before_it_was_staged_waits_for_the_operator(lake, monkeypatch):
    context = FakeContext(lake, monkeypatch, max_batch_records=1)
    context.source.make("orders")
    write(context, ORDERS, b"a", b"b", b"c")
    staging = SourceStager(context, "us-east", InlineWorkers())
    staging.open()
    staging.tick()
    context.source.make("orders")
    write(context, ORDERS, b"d")
    staging.refresh_topics()

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
    """Do something once, when the next read has ended and nothing of it is committed."""

    def after(happens):
        read = context.reader.read

        def then(*args):
            answer = read(*args)
            context.reader.read = read
            happens()
            return answer

        context.reader.read = then

    return after


def remake(context, *values):
    context.source.make("orders")
    write(context, ORDERS, *values)


def test_a_topic_that_is_made_anew_while_it_is_read_is_not_committed(context, start, after_read):
    write(context, ORDERS, b"a")
    staging = start()
    after_read(lambda: remake(context, b"other"))

    staging.tick()
    staging.tick()
    assert isinstance(staging.partition_errors[ORDERS], TopicRecreatedError)
    assert "[0, 1) of its former life" in str(staging.partition_errors[ORDERS])
    assert values(context) == []

    accept(context)
    staging.tick()
    staging.tick()
    assert values(context) == [b"other"]
    assert gaps(context) == [(0, 1, "re-created before it was staged, accepted")]


def test_what_was_seen_and_not_staged_of_a_former_life_stops_its_partition(
    context, start, after_read
):
    write(context, ORDERS, b"a")
    staging = start()
    staging.tick()
    write(context, ORDERS, b"b", b"c")
    after_read(lambda: remake(context, b"other"))

    staging.tick()
    staging.tick()

    assert "[1, 3) of its former life" in str(staging.partition_errors[ORDERS])
    assert values(context) == [b"a"]


def test_what_was_seen_of_a_former_life_is_still_owed_when_another_process_goes_on(
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
    assert "[0, 2) of its former life" in str(staging.partition_errors[ORDERS])
    assert values(context) == []

    accept(context)
    staging.tick()
    staging.tick()
    assert values(context) == [b"other"]
    assert gaps(context) == [(0, 2, "re-created before it was staged, accepted")]


def test_lives_that_came_and_went_while_one_was_waited_for_are_accepted_one_by_one(
    context, start, after_read
):
    write(context, ORDERS, b"a", b"b")
    staging = start()
    after_read(lambda: remake(context, b"c", b"d", b"e"))
    staging.tick()
    staging.tick()
    remake(context, b"f")
    staging.refresh_topics()
    staging.tick()

    assert "[0, 2) of its former life" in str(staging.partition_errors[ORDERS])
    accept(context)
    staging.tick()
    assert "[0, 3) of its former life" in str(staging.partition_errors[ORDERS])
    accept(context)
    staging.tick()

    assert values(context) == [b"f"]
    assert sorted((start, end) for start, end, _ in gaps(context)) == [(0, 2), (0, 3)]


def test_a_topic_that_was_made_anew_with_more_records_is_not_taken_for_the_former_one(
    context, start
):
    write(context, ORDERS, b"a", b"b")
    staging = start()
    staging.tick()
    reads = len(context.reader.reads)
    remake(context, b"c", b"d", b"e")  # and nobody has listed the topics since

    staging.tick()
    assert len(context.reader.reads) == reads
    staging.tick()

    assert (values(context), staging.partition_errors) == ([b"a", b"b", b"c", b"d", b"e"], {})


def test_what_stood_in_the_way_of_a_former_life_does_not_hold_up_the_next_one(context, start):
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
    assert "[2, 3) of its former life" in str(staging.partition_errors[ORDERS])


def test_a_deleted_topic_that_was_not_staged_to_its_end_is_told_until_that_is_accepted(
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


def test_a_deleted_topic_that_was_staged_to_its_end_is_no_trouble(context, start):
    write(context, ORDERS, b"a")
    staging = start()
    staging.tick()
    context.source.drop("orders")
    staging.refresh_topics()

    staging.tick()

    assert staging.partition_errors == {}


def test_a_partition_that_a_new_life_does_not_have_is_told_if_it_was_not_staged(lake, monkeypatch):
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
    staging.refresh_topics()

    staging.tick()

    assert list(staging.partition_errors) == [second]
    assert "[1, 3) were not staged" in str(staging.partition_errors[second])
    staging.close()


@pytest.mark.parametrize(
    ("policy", "cause"),
    [
        pytest.param("delete", "transaction markers or aborted", id="not compacted"),
        pytest.param("compact,delete", "compacted, transaction markers or aborted", id="compacted"),
        pytest.param(None, "compacted, transaction markers or aborted", id="not told"),
    ],
)
def test_a_gap_has_the_cause_that_the_topics_settings_leave(
    context, start, monkeypatch, policy, cause
):
    setting = ConfigValue(policy, "DYNAMIC_TOPIC_CONFIG", False, False, False)
    told = {"orders": {"cleanup.policy": setting}} if policy else {}
    monkeypatch.setattr(context.source, "topic_configs", lambda names: told)
    write(context, ORDERS, b"a")
    context.source.mark(ORDERS)
    write(context, USERS, b"x")

    segments = start().tick().segments

    assert {s.topic: (s.gaps, s.gap_cause) for s in segments} == {
        "orders": (1, cause),
        "users": (0, ""),
    }


def test_a_cut_log_goes_on_as_a_new_incarnation_once_that_is_accepted(context, start):
    write(context, ORDERS, b"a", b"b", b"c")
    staging = start()
    staging.tick()
    context.source.cut(ORDERS, 1)

    staging.tick()
    assert isinstance(staging.partition_errors[ORDERS], LogTruncatedError)

    accept(context)
    staging.tick()
    life = context.source.ids["orders"]
    assert staged(context)[-1] == (f"{life}+1", 0, b"a")
    assert staging.frontier(ORDERS) == 1


def test_an_order_that_was_given_while_nobody_staged_finds_what_only_reading_shows(context, start):
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


def test_a_partition_that_answers_late_is_tried_again_after_a_while(context, start, monkeypatch):
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


def test_a_new_partition_whose_beginning_expires_while_it_is_read_is_planned_anew(
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


def test_an_expiry_that_only_reading_showed_is_accepted_up_to_where_the_log_begins_then(
    context, start
):
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
