"""A source cluster's staging, tick by tick: exactly once, and never a skip in silence."""

import pytest

from deltamirror.control import ACCEPT_GAP, Orders
from deltamirror.staging.stager import Staging
from resources.delta.records_table import Records
from schemas.errors import (
    LakeError,
    LeaseHeldError,
    LogTruncatedError,
    RangeUnfinishedError,
    RecordsExpiredError,
    RecordUnreadableError,
    StalePlanError,
    TopicDeletedError,
    TopicRecreatedError,
    UnreachableError,
)
from schemas.kafka.partition import SourcePartition, TopicPartition
from schemas.kafka.topic import ConfigValue
from tests.support.fake_cluster import Said
from tests.support.fake_context import FakeClusters, Inline

ORDERS, USERS = TopicPartition("orders", 0), TopicPartition("users", 0)


@pytest.fixture
def site(lake, monkeypatch):
    made = FakeClusters(lake, monkeypatch)
    for topic in ("orders", "users"):
        made.source.make(topic)
    return made


@pytest.fixture
def start(site):
    """Open a staging as a new process would: the one before gives its lease back."""
    opened = []

    def open_():
        for former in opened:
            former.close()
        opened.append(Staging(site, "us-east", Inline()))
        opened[-1].open()
        return opened[-1]

    yield open_
    opened[-1].close()


def write(site, partition, *values):
    site.source.append(partition, *(Said(value) for value in values))


def staged(site, partition=ORDERS):
    """Return (incarnation, offset, value) of what is staged."""
    rows = site.lake.records("us-east").rows().sort_by([("topic_id", "ascending")]).to_pylist()
    return sorted(
        (r["topic_id"], r["offset"], r["value"])
        for r in rows
        if (r["topic"], r["partition"]) == (partition.topic, partition.partition)
    )


def values(site, partition=ORDERS):
    return [value for _, _, value in staged(site, partition)]


def gaps(site):
    rows = site.lake.segments("us-east").rows().to_pylist()
    return [(r["start"], r["end"], r["gap_cause"]) for r in rows if "accepted" in r["gap_cause"]]


def accept(site, topic=None):
    Orders(site.lake.control).give(ACCEPT_GAP, "us-east", topic)


def test_what_is_written_is_staged_once_and_the_next_tick_goes_on(site, start):
    write(site, ORDERS, b"a", b"b")
    staging = start()

    assert sum(s.count for s in staging.tick().segments) == 2
    assert staging.tick().segments == ()
    write(site, ORDERS, b"c")
    assert [s.start for s in staging.tick().segments] == [2]

    assert values(site) == [b"a", b"b", b"c"]
    assert staging.frontier(ORDERS) == 3


def test_a_backlog_is_begun_with_a_small_tick_and_the_next_ones_are_twice_as_large(
    site, start, monkeypatch
):
    monkeypatch.setattr("pipeline.staging.plan.FIRST_BYTES", 100_000)
    write(site, ORDERS, *[b"x" * 1_000] * 1_000)
    staging = start()

    def tick():
        return sum(segment.count for segment in staging.tick(["orders"]).segments)

    first, *rest = (tick() for _ in range(4))
    write(site, ORDERS, *[b"x" * 1_000] * 200)
    again = tick()

    assert 80 < first < 110
    assert [round(count / first) for count in rest[:2]] == [2, 4]
    assert first + sum(rest) == 1_000
    assert again == first


def test_another_process_goes_on_where_the_last_one_was(site, start):
    write(site, ORDERS, b"a", b"b")
    start().tick()
    write(site, ORDERS, b"c")

    staging = start()
    assert staging.frontier(ORDERS) == 2
    staging.tick()

    assert values(site) == [b"a", b"b", b"c"]


def test_the_ends_that_were_seen_are_the_last_stable_offsets(site, start):
    write(site, ORDERS, b"a")
    site.source.append(ORDERS, Said(b"open"), state="open")

    seen = start().tick().seen

    assert {p: marks.stable for p, marks in seen.items()} == {ORDERS: 1, USERS: 0}


def test_only_the_topics_that_are_asked_for_are_staged(site, start):
    write(site, ORDERS, b"a")
    write(site, USERS, b"x")

    start().tick(["users"])

    assert (values(site), values(site, USERS)) == ([], [b"x"])


def test_one_process_at_a_time_stages_a_cluster(site, start):
    start()

    with pytest.raises(LeaseHeldError):
        Staging(site, "us-east", Inline()).open()


def test_a_source_that_is_down_is_the_ticks_error_and_the_next_one_works(site, start):
    write(site, ORDERS, b"a")
    staging = start()
    site.source.is_down = True
    with pytest.raises(UnreachableError):
        staging.tick()

    site.source.is_down = False
    staging.tick()

    assert values(site) == [b"a"]


def test_a_crash_after_the_commit_and_before_the_seal_is_made_good(site, start, monkeypatch):
    write(site, ORDERS, b"a")
    staging = start()
    staging.tick()
    write(site, ORDERS, b"b")

    def crash(*_):
        raise RuntimeError("killed")

    monkeypatch.setattr(staging._committer, "seal", crash)
    with pytest.raises(RuntimeError):
        staging.tick()

    again = start()
    assert again.frontier(ORDERS) == 2
    again.tick()
    assert values(site) == [b"a", b"b"]
    rows = site.lake.segments("us-east").rows().sort_by("start").to_pylist()
    assert [(r["start"], r["end"]) for r in rows if r["topic"] == "orders"] == [(0, 1), (1, 2)]


def test_sealing_twice_is_sealing_once(site, start):
    write(site, ORDERS, b"a")
    staging = start()
    (segment,) = [s for s in staging.tick().segments if s.topic == "orders"]
    version = site.lake.records("us-east").version
    before = site.lake.segments("us-east").rows().num_rows

    staging._committer.seal(version, [segment])
    start()._committer.seal(version, [segment])

    assert site.lake.segments("us-east").rows().num_rows == before


def test_a_crash_before_the_commit_leaves_nothing_that_is_read(site, start, monkeypatch):
    write(site, ORDERS, b"a")
    with monkeypatch.context() as patch:

        def full(*_, **__):
            raise LakeError("no space")

        patch.setattr(Records, "stage", full)
        with pytest.raises(LakeError):
            start().tick()

    start().tick()

    assert values(site) == [b"a"]


def test_a_rival_that_staged_the_same_makes_the_plan_stale_and_nothing_is_there_twice(site, start):
    write(site, ORDERS, b"a")
    staging = start()
    staging.tick()
    write(site, ORDERS, b"b")
    rival = Staging(site, "us-east", Inline())
    rival._committer.learn()  # without the lease, as when it failed to exclude
    rival.tick()

    with pytest.raises(StalePlanError):
        staging.tick()
    staging.tick()

    assert values(site) == [b"a", b"b"]


def test_expired_records_stop_their_partition_until_the_gap_is_accepted(site, start):
    write(site, ORDERS, b"a")
    staging = start()
    staging.tick()
    write(site, ORDERS, b"b", b"c", b"d")
    write(site, USERS, b"x")
    site.source.expire(ORDERS, 3)

    staging.tick()
    assert isinstance(staging.troubles[ORDERS], RecordsExpiredError)
    assert values(site, USERS) == [b"x"]
    assert values(site) == [b"a"]

    accept(site, "orders")
    staging.tick()

    assert staging.troubles == {}
    assert values(site) == [b"a", b"d"]
    assert gaps(site) == [(1, 3, "expired, accepted")]


def test_an_order_is_carried_out_once_and_not_for_gaps_that_come_later(site, start):
    write(site, ORDERS, b"a", b"b")
    staging = start()
    staging.tick()
    accept(site)
    staging.tick()
    write(site, ORDERS, b"c", b"d")
    site.source.expire(ORDERS, 3)

    staging.tick()
    assert isinstance(staging.troubles[ORDERS], RecordsExpiredError)

    assert isinstance(start().tick() and start().troubles.get(ORDERS), type(None))


def test_a_topic_that_was_made_anew_goes_on_as_another_life_when_it_was_staged(site, start):
    write(site, ORDERS, b"a")
    staging = start()
    staging.tick()
    site.source.make("orders")
    write(site, ORDERS, b"b")
    staging.refresh_topics()

    staging.tick()

    assert [value for *_, value in staged(site)] == [b"a", b"b"]
    assert len({life for life, *_ in staged(site)}) == 2


def test_a_topic_that_was_made_anew_before_it_was_staged_waits_for_the_operator(lake, monkeypatch):
    site = FakeClusters(lake, monkeypatch, max_batch_records=1)
    site.source.make("orders")
    write(site, ORDERS, b"a", b"b", b"c")
    staging = Staging(site, "us-east", Inline())
    staging.open()
    staging.tick()
    site.source.make("orders")
    write(site, ORDERS, b"d")
    staging.refresh_topics()

    staging.tick()
    assert isinstance(staging.troubles[ORDERS], TopicRecreatedError)
    assert "[1, 3)" in str(staging.troubles[ORDERS])

    accept(site)
    staging.tick()
    assert [value for *_, value in staged(site)] == [b"a", b"d"]
    assert gaps(site) == [(1, 3, "re-created before it was staged, accepted")]
    staging.close()


@pytest.fixture
def after_read(site):
    """Do something once, when the next read has ended and nothing of it is committed."""

    def after(happens):
        read = site.reader.read

        def then(*args):
            answer = read(*args)
            site.reader.read = read
            happens()
            return answer

        site.reader.read = then

    return after


def remake(site, *values):
    site.source.make("orders")
    write(site, ORDERS, *values)


def test_a_topic_that_is_made_anew_while_it_is_read_is_not_committed(site, start, after_read):
    write(site, ORDERS, b"a")
    staging = start()
    after_read(lambda: remake(site, b"other"))

    staging.tick()
    staging.tick()
    assert isinstance(staging.troubles[ORDERS], TopicRecreatedError)
    assert "[0, 1) of its former life" in str(staging.troubles[ORDERS])
    assert values(site) == []

    accept(site)
    staging.tick()
    staging.tick()
    assert values(site) == [b"other"]
    assert gaps(site) == [(0, 1, "re-created before it was staged, accepted")]


def test_what_was_seen_and_not_staged_of_a_former_life_stops_its_partition(site, start, after_read):
    write(site, ORDERS, b"a")
    staging = start()
    staging.tick()
    write(site, ORDERS, b"b", b"c")
    after_read(lambda: remake(site, b"other"))

    staging.tick()
    staging.tick()

    assert "[1, 3) of its former life" in str(staging.troubles[ORDERS])
    assert values(site) == [b"a"]


def test_what_was_seen_of_a_former_life_is_still_owed_when_another_process_goes_on(
    site, start, after_read
):
    write(site, ORDERS, b"a", b"b")
    staging = start()
    after_read(lambda: remake(site, b"other"))
    staging.tick()
    staging.tick()
    commits = site.lake.records("us-east").version
    staging.tick()
    assert site.lake.records("us-east").version == commits

    staging = start()
    staging.tick()
    assert "[0, 2) of its former life" in str(staging.troubles[ORDERS])
    assert values(site) == []

    accept(site)
    staging.tick()
    staging.tick()
    assert values(site) == [b"other"]
    assert gaps(site) == [(0, 2, "re-created before it was staged, accepted")]


def test_lives_that_came_and_went_while_one_was_waited_for_are_accepted_one_by_one(
    site, start, after_read
):
    write(site, ORDERS, b"a", b"b")
    staging = start()
    after_read(lambda: remake(site, b"c", b"d", b"e"))
    staging.tick()
    staging.tick()
    remake(site, b"f")
    staging.refresh_topics()
    staging.tick()

    assert "[0, 2) of its former life" in str(staging.troubles[ORDERS])
    accept(site)
    staging.tick()
    assert "[0, 3) of its former life" in str(staging.troubles[ORDERS])
    accept(site)
    staging.tick()

    assert values(site) == [b"f"]
    assert sorted((start, end) for start, end, _ in gaps(site)) == [(0, 2), (0, 3)]


def test_a_topic_that_was_made_anew_with_more_records_is_not_taken_for_the_former_one(site, start):
    write(site, ORDERS, b"a", b"b")
    staging = start()
    staging.tick()
    reads = len(site.reader.reads)
    remake(site, b"c", b"d", b"e")  # and nobody has listed the topics since

    staging.tick()
    assert len(site.reader.reads) == reads
    staging.tick()

    assert (values(site), staging.troubles) == ([b"a", b"b", b"c", b"d", b"e"], {})


def test_what_stood_in_the_way_of_a_former_life_does_not_hold_up_the_next_one(site, start):
    write(site, ORDERS, b"a", b"b")
    staging = start()
    staging.tick()
    write(site, ORDERS, b"c")
    former = SourcePartition("orders", site.source.ids["orders"], 0)
    site.reader.fails[former] = LogTruncatedError(ORDERS, staged=2, end=1)
    staging.tick()
    assert isinstance(staging.troubles[ORDERS], LogTruncatedError)

    remake(site, b"d")
    staging.tick()

    assert isinstance(staging.troubles[ORDERS], TopicRecreatedError)
    assert "[2, 3) of its former life" in str(staging.troubles[ORDERS])


def test_a_deleted_topic_that_was_not_staged_to_its_end_is_told_until_that_is_accepted(
    site, start, after_read
):
    write(site, ORDERS, b"a")
    staging = start()
    staging.tick()
    write(site, ORDERS, b"b", b"c")
    write(site, USERS, b"x")
    after_read(lambda: site.source.drop("orders"))

    staging.tick()
    staging.tick()
    assert isinstance(staging.troubles[ORDERS], TopicDeletedError)
    assert "[1, 3) were not staged" in str(staging.troubles[ORDERS])
    assert values(site, USERS) == [b"x"]

    accept(site, "orders")
    staging.tick()
    assert staging.troubles == {}
    assert gaps(site) == [(1, 3, "deleted before it was staged, accepted")]


def test_a_deleted_topic_that_was_staged_to_its_end_is_no_trouble(site, start):
    write(site, ORDERS, b"a")
    staging = start()
    staging.tick()
    site.source.drop("orders")
    staging.refresh_topics()

    staging.tick()

    assert staging.troubles == {}


def test_a_partition_that_a_new_life_does_not_have_is_told_if_it_was_not_staged(lake, monkeypatch):
    site = FakeClusters(lake, monkeypatch, max_batch_records=2)
    site.source.make("orders", partitions=2)
    second = TopicPartition("orders", 1)
    write(site, ORDERS, b"a")
    write(site, second, b"x", b"y", b"z")
    staging = Staging(site, "us-east", Inline())
    staging.open()
    staging.tick()
    del site.source.logs[second]
    site.source.make("orders")
    staging.refresh_topics()

    staging.tick()

    assert list(staging.troubles) == [second]
    assert "[1, 3) were not staged" in str(staging.troubles[second])
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
    site, start, monkeypatch, policy, cause
):
    setting = ConfigValue(policy, "DYNAMIC_TOPIC_CONFIG", False, False, False)
    told = {"orders": {"cleanup.policy": setting}} if policy else {}
    monkeypatch.setattr(site.source, "topic_configs", lambda names: told)
    write(site, ORDERS, b"a")
    site.source.mark(ORDERS)
    write(site, USERS, b"x")

    segments = start().tick().segments

    assert {s.topic: (s.gaps, s.gap_cause) for s in segments} == {
        "orders": (1, cause),
        "users": (0, ""),
    }


def test_a_cut_log_goes_on_as_a_new_incarnation_once_that_is_accepted(site, start):
    write(site, ORDERS, b"a", b"b", b"c")
    staging = start()
    staging.tick()
    site.source.cut(ORDERS, 1)

    staging.tick()
    assert isinstance(staging.troubles[ORDERS], LogTruncatedError)

    accept(site)
    staging.tick()
    life = site.source.ids["orders"]
    assert staged(site)[-1] == (f"{life}+1", 0, b"a")
    assert staging.frontier(ORDERS) == 1


def unreadable(site, offset):
    source = SourcePartition("orders", site.source.ids["orders"], 0)
    site.reader.fails[source] = RecordUnreadableError(ORDERS, offset, "a header key is not UTF-8")


def test_a_record_that_cannot_be_carried_is_left_out_once_that_is_accepted(site, start):
    write(site, ORDERS, b"bad", b"b")
    unreadable(site, 0)
    staging = start()
    staging.tick()
    assert isinstance(staging.troubles[ORDERS], RecordUnreadableError)

    site.reader.fails.clear()
    accept(site)
    staging.tick()

    assert values(site) == [b"b"]
    assert gaps(site) == [(0, 1, "cannot be carried, accepted")]


def test_an_order_that_was_given_while_nobody_staged_finds_what_only_reading_shows(site, start):
    write(site, ORDERS, b"bad", b"b")
    unreadable(site, 0)
    start().tick()
    accept(site)

    staging = start()
    staging.tick()
    site.reader.fails.clear()
    staging.tick()

    assert values(site) == [b"b"]
    assert gaps(site) == [(0, 1, "cannot be carried, accepted")]


def test_a_partition_that_answers_late_is_tried_again_after_a_while(site, start, monkeypatch):
    now = [1_000.0]
    monkeypatch.setattr("deltamirror.staging.stager.time.monotonic", lambda: now[0])
    write(site, ORDERS, b"a")
    write(site, USERS, b"x")
    source = SourcePartition("orders", site.source.ids["orders"], 0)
    site.reader.fails[source] = RangeUnfinishedError(ORDERS, at=0, end=1, why="slow")
    staging = start()
    staging.tick()
    site.reader.fails.clear()
    reads = len(site.reader.reads)

    staging.tick()
    assert len(site.reader.reads) == reads
    assert list(staging.troubles) == [ORDERS]

    now[0] += 10
    staging.tick()
    assert (values(site), staging.troubles) == ([b"a"], {})


def test_a_new_partition_whose_beginning_expires_while_it_is_read_is_planned_anew(
    site, start, monkeypatch
):
    now = [1_000.0]
    monkeypatch.setattr("deltamirror.staging.stager.time.monotonic", lambda: now[0])
    write(site, ORDERS, b"a", b"b")
    source = SourcePartition("orders", site.source.ids["orders"], 0)
    site.reader.fails[source] = RecordsExpiredError(ORDERS, wanted=0, low=1)
    staging = start()
    staging.tick()
    site.reader.fails.clear()
    site.source.expire(ORDERS, 1)
    accept(site)

    now[0] += 10
    staging.tick()

    assert values(site) == [b"b"]
    assert staging.troubles == {}


def test_an_expiry_that_only_reading_showed_is_accepted_up_to_where_the_log_begins_then(
    site, start
):
    write(site, ORDERS, b"a")
    start().tick()
    write(site, ORDERS, b"b", b"c")
    source = SourcePartition("orders", site.source.ids["orders"], 0)
    site.reader.fails[source] = RecordsExpiredError(ORDERS, wanted=1, low=2)
    accept(site)

    staging = start()
    staging.tick()
    site.reader.fails.clear()
    staging.tick()

    assert gaps(site) == [(1, 2, "expired, accepted")]
    assert values(site) == [b"a", b"c"]
