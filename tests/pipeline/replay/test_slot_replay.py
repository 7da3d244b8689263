"""A slot's staged records arrive once and in order, after any failure at any call."""

from itertools import count

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pipeline.offset_map.encode import encode_runs
from pipeline.replay.slot_replay import replay_slot
from schemas.config.flow import Flow
from schemas.errors.lake import StageIncompleteError
from schemas.errors.target import (
    BatchRejectedError,
    CommitUnknownError,
    FencedError,
    MapAmbiguousError,
    ProgressBehindError,
    RecordRefusedError,
    TargetChangedError,
    ThrottledError,
)
from schemas.kafka.partition import SourcePartition, TopicPartition
from schemas.offset_map import OffsetRun
from schemas.replay.slot_work import ChainLink, MapEnd, PartitionWork, Progress, SlotWork
from tests.support.fake_cluster import (
    CrashError,
    FakeCluster,
    FakeStageReader,
    FakeTarget,
    Faults,
    RecordContent,
)
from tests.support.runs import expand_runs

FLOW = Flow("us-east", "eu-west")
TOPICS = ("orders", "users", "views")
MANY = 10_000_000


def partition(topic):
    return TopicPartition(topic, 0)


def remote(topic):
    return TopicPartition(f"us-east.{topic}", 0)


class SlotWorld:
    """A stage, a target and the offset map between them, as `FlowReplayer` joins them."""

    def __init__(self, topics=TOPICS, transaction_records=3, max_records=MANY):
        self.topics, self._chunk, self._max = topics, transaction_records, max_records
        self.cluster = FakeCluster("eu-west")
        for topic in topics:
            self.cluster.make(f"us-east.{topic}")
        self.staged, self.files = FakeStageReader(), []
        self.links = {topic: [] for topic in topics}
        self.contents = {topic: [] for topic in topics}  # (incarnation, offset, record), as staged
        self.runs = {topic: [] for topic in topics}
        self.marks = {topic: {} for topic in topics}  # incarnation -> next offset

    def stage(self, topic, log, incarnation="life1"):
        """Stage a segment: a letter is a record, `.` an offset without one."""
        of_incarnation = [link for link in self.links[topic] if link.incarnation == incarnation]
        start = of_incarnation[-1].end if of_incarnation else 0
        shown = [(i, RecordContent(c)) for i, c in enumerate(log, start) if c != "."]
        self.links[topic].append(ChainLink(incarnation, start, start + len(log), len(shown)))
        self.contents[topic] += [(incarnation, offset, contents) for offset, contents in shown]
        if shown:
            path = f"{len(self.files):03}"
            self.files.append(path)
            self.staged.keep(path, SourcePartition(topic, incarnation, 0), shown)

    def mapped(self, topic):
        incarnations = list(dict.fromkeys(link.incarnation for link in self.links[topic]))
        for incarnation in reversed(incarnations):
            if incarnation in self.marks[topic]:
                progress = Progress(self.marks[topic][incarnation], incarnation, self.id(topic))
                end = max((run.downstream_end for run in self.runs[topic]), default=0)
                return MapEnd(progress, end)
        return None

    def id(self, topic):
        return self.cluster.ids[f"us-east.{topic}"]

    def work(self):
        works = [
            PartitionWork(
                partition(topic), remote(topic), self.id(topic), tuple(links), self.mapped(topic)
            )
            for topic, links in self.links.items()
            if links
        ]
        return SlotWork(
            FLOW, 5, tuple(works), tuple(self.files), self._chunk, MANY, self._max, MANY
        )

    def tick(self, faults=None, writes_map=True):
        """Replay once, as a new process would; return the result."""
        target = FakeTarget(self.cluster, FLOW, 5, faults)
        replayed = replay_slot(self.work(), self.staged, target)
        if writes_map:
            self.write(replayed.batches)
        return replayed

    def write(self, batches):
        """Append *batches* as the offset map does: each must begin at the current mark."""
        for batch in batches:
            marks = self.marks[batch.partition.topic]
            incarnation, before = batch.after.incarnation, batch.before
            is_same = before is not None and before.incarnation == incarnation
            assert marks.get(incarnation) == (before.next_offset if is_same else None)
            marks[incarnation] = batch.after.next_offset
            self.runs[batch.partition.topic] += batch.runs

    def crash(self, at, *, after=False):
        """Replay until call number *at* and do not write the map; return whether it crashed."""
        try:
            self.tick(Faults(at, after))
        except CrashError:
            return True
        return False

    def shown(self, topic):
        return [(o, s) for o, s in self.cluster.visible(remote(topic)) if s.key != b"foreign"]

    def foreign(self, topic, value):
        self.cluster.append(remote(topic), RecordContent(value, b"foreign"))

    def progress(self, topic):
        return self.cluster.groups.get(FLOW.progress_group, {}).get(remote(topic))

    def finish(self):
        """Replay without faults until everything has arrived."""
        for _ in range(200):
            replayed = self.tick()
            assert replayed.failure is None
            assert replayed.errors == ()
            if all(self.is_done(topic) for topic in self.topics if self.links[topic]):
                return
        raise AssertionError("it does not end")

    def is_done(self, topic):
        last, at = self.links[topic][-1], self.progress(topic)
        return at == Progress(last.end, last.incarnation, self.id(topic))

    def assert_exact(self):
        for topic, links in self.links.items():
            shown = self.shown(topic)
            assert [s for _, s in shown] == [s for _, _, s in self.contents[topic]]
            assert [down for _, down in expand_runs(self.runs[topic])] == [o for o, _ in shown]
            assert [up for up, _ in expand_runs(self.runs[topic])] == [
                o for _, o, _ in self.contents[topic]
            ]
            assert self.runs[topic] == self.rows(topic)
            if links:
                assert self.marks[topic].get(links[-1].incarnation, 0) == links[-1].end

    def rows(self, topic):
        """Return the expected rows of the map."""
        incarnations = dict.fromkeys(incarnation for incarnation, _, _ in self.contents[topic])
        downstream = [offset for offset, _ in self.shown(topic)]
        sent = [
            (incarnation, up, down)
            for (incarnation, up, _), down in zip(self.contents[topic], downstream, strict=True)
        ]
        of_incarnation = [
            np.array([s[1:] for s in sent if s[0] == incarnation], np.int64)
            for incarnation in incarnations
        ]
        return [run for pairs in of_incarnation for run in encode_runs(pairs[:, 0], pairs[:, 1])]


@pytest.fixture
def world():
    return SlotWorld()


def letters(*text):
    return [c.encode() if c != "." else c for c in "".join(text)]


# Without failures


def test_records_arrive_once_in_order_with_progress_and_map(world):
    world.stage("orders", letters("abc..de"))
    world.stage("orders", letters(".fg."))
    world.stage("users", letters("xy"))

    replayed = world.tick()

    assert (replayed.errors, replayed.failure) == ((), None)
    world.assert_exact()
    assert world.progress("orders").next_offset == 11
    assert world.progress("users").next_offset == 2
    assert replayed.batches[0].before is None
    assert replayed.batches[0].runs == (OffsetRun(0, 0, 3),)


def test_progress_reaches_the_end_of_a_segment_with_only_markers(world):
    world.stage("orders", letters("ab"))
    world.tick()
    world.stage("orders", ["."] * 4)

    (batch,) = world.tick().batches

    assert (batch.after.next_offset, batch.runs, batch.records) == (6, (), 0)
    world.assert_exact()


def test_progress_of_a_partition_without_records_is_committed_and_then_moved(world):
    world.stage("orders", ["."] * 3)

    world.tick()

    assert world.progress("orders").next_offset == 3
    world.assert_exact()


def test_a_second_replay_of_the_same_records_sends_nothing(world):
    world.stage("orders", letters("abcd"))
    world.tick()
    ends = len(world.cluster.logs[remote("orders")])

    assert world.tick().batches == ()
    assert len(world.cluster.logs[remote("orders")]) == ends


def test_a_slot_ends_its_tick_at_its_bound_and_resumes_in_the_next_one():
    world = SlotWorld(transaction_records=2, max_records=4)
    world.stage("orders", letters("abcdefghi"))

    assert sum(batch.records for batch in world.tick().batches) == 4
    assert world.progress("orders").next_offset == 4
    world.finish()
    world.assert_exact()


def test_a_transaction_holds_at_most_its_bound_of_records():
    world = SlotWorld(transaction_records=2)
    world.stage("orders", letters("abc"))
    world.stage("users", letters("xyz"))

    world.tick()

    log = world.cluster.logs[remote("orders")]
    assert [e.content.value if e.content else None for e in log] == [b"a", b"b", None, b"c", None]
    world.assert_exact()


def test_foreign_records_on_the_target_are_gaps_between_the_maps_runs(world):
    world.foreign("orders", b"f1")
    world.stage("orders", letters("ab"))
    world.tick()
    world.foreign("orders", b"f2")
    world.stage("orders", letters("cd"))
    world.tick()

    world.assert_exact()


def test_two_incarnations_are_replayed_one_after_another(world):
    world.stage("orders", letters("abcd."))
    world.stage("orders", letters("ef"), incarnation="life2")
    world.stage("orders", letters("g."), incarnation="life2")

    world.finish()

    world.assert_exact()
    assert world.progress("orders") == Progress(4, "life2", world.id("orders"))


def test_progress_reaches_a_new_incarnation_without_records(world):
    world.stage("orders", letters("ab"))
    world.tick()
    world.stage("orders", [], incarnation="life2")

    world.finish()

    assert world.progress("orders").incarnation == "life2"
    world.assert_exact()


# Crashes


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_replay_is_exactly_once_after_a_crash_at_any_call(after):
    crashed, at = True, 0
    while crashed:
        world = SlotWorld(TOPICS[:2], transaction_records=2)
        world.stage("orders", letters("abc.d"))
        world.tick()
        world.foreign("orders", b"f")
        world.stage("orders", letters("ef."))
        world.stage("users", letters("xyz"))
        crashed = world.crash(at, after=after)
        world.foreign("orders", b"g")

        world.finish()

        world.assert_exact()
        at += 1
    assert at > 12  # one run for each call, and the last one without a crash


def test_a_map_that_was_never_written_is_rebuilt_by_pairing(world):
    world.stage("orders", letters("abc.defg"))
    world.tick()
    known, world.runs["orders"], world.marks["orders"] = world.runs["orders"], [], {}

    world.stage("orders", letters("h"))
    (rebuilt, _) = world.tick().batches

    assert rebuilt.rebuilt
    assert list(expand_runs(rebuilt.runs)) == list(expand_runs(known))
    world.assert_exact()


def test_a_fenced_producer_writes_nothing_that_is_visible(world):
    world.stage("orders", letters("abc"))
    zombie = FakeTarget(world.cluster, FLOW, 5)
    zombie.fence()
    world.tick()

    with pytest.raises(FencedError):
        zombie.begin()

    world.assert_exact()


class LateFencing(FakeTarget):
    """Another process fences this one at its second commit."""

    commits = 0

    def commit(self, progress):
        self.commits += 1
        if self.commits == 2:
            FakeTarget(self._cluster, FLOW, 5).fence()
        super().commit(progress)


def test_a_fenced_writer_returns_the_batches_that_it_had_committed(world):
    world.stage("orders", letters("abcdefg"))

    replayed = replay_slot(world.work(), world.staged, LateFencing(world.cluster, FLOW, 5))

    assert isinstance(replayed.failure, FencedError)
    assert [batch.after.next_offset for batch in replayed.batches] == [3]
    world.write(replayed.batches)
    world.finish()
    world.assert_exact()


class NoAnswer(FakeTarget):
    """Its first commit succeeds, and the response is lost."""

    def commit(self, progress):
        super().commit(progress)
        raise CommitUnknownError(self._id, reason="timed out")


def test_a_commit_without_a_response_is_resolved_by_the_next_replay(world):
    world.stage("orders", letters("abcde"))

    replayed = replay_slot(world.work(), world.staged, NoAnswer(world.cluster, FLOW, 5))

    assert isinstance(replayed.failure, CommitUnknownError)
    assert replayed.batches == ()
    world.finish()
    world.assert_exact()


# A failing partition


@pytest.mark.parametrize("is_named", [True, False], ids=["partition named", "not named"])
def test_a_partition_that_the_target_rejects_is_excluded_and_the_others_continue(world, is_named):
    world.cluster.tells_what_it_refused = is_named
    for topic in TOPICS:
        world.stage(topic, letters("ab"))
        world.tick()
    world.cluster.refused[remote("users")] = b"bad"
    world.stage("orders", letters("cdefg"))
    world.stage("users", [b"c", b"bad", b"d"])
    world.stage("views", letters("cd."))

    replayed = world.tick()

    ((failing, error),) = replayed.errors
    assert replayed.failure is None
    assert failing == partition("users")
    assert isinstance(error, RecordRefusedError)
    assert "us-east.users[0]" in str(error)
    assert world.is_done("orders")
    assert world.is_done("views")
    assert [s.value for _, s in world.shown("users")][2:] in ([], [b"c"])


def test_a_rejected_partition_resumes_where_it_was_when_the_target_accepts_it_again(world):
    world.cluster.refused[remote("users")] = b"bad"
    world.stage("orders", letters("abcd"))
    world.stage("users", [b"x", b"bad", b"y"])
    world.tick()
    world.cluster.refused.clear()

    world.finish()

    world.assert_exact()


def test_two_partitions_rejected_without_a_report_are_both_excluded(world):
    world.cluster.tells_what_it_refused = False
    for topic in ("orders", "users"):
        world.cluster.refused[remote(topic)] = b"bad"
        world.stage(topic, [b"a", b"bad"])
    world.stage("views", letters("ab"))

    replayed = world.tick()

    assert {failing.topic for failing, _ in replayed.errors} == {"orders", "users"}
    assert world.is_done("views")


class Refuser(FakeTarget):
    """Rejects every transaction before any record is sent."""

    def begin(self):
        raise BatchRejectedError("no", partitions={})


def test_a_target_that_rejects_everything_is_a_failure_of_the_slot(world):
    world.stage("orders", letters("a"))
    world.stage("users", letters("b"))

    replayed = replay_slot(world.work(), world.staged, Refuser(world.cluster, FLOW, 5))

    assert replayed.batches == ()
    assert isinstance(replayed.failure, BatchRejectedError) or len(replayed.errors) == 2


def test_a_missing_file_stops_its_partition_and_no_record_is_skipped(world):
    world.stage("orders", letters("abc"))
    world.stage("orders", letters("def"))
    world.stage("orders", letters("ghi"))
    world.stage("users", letters("xy"))
    del world.files[1]

    replayed = world.tick()

    ((failing, error),) = replayed.errors
    assert failing == partition("orders")
    assert isinstance(error, StageIncompleteError)
    assert [s.value for _, s in world.shown("orders")] == [b"a", b"b", b"c"]
    assert world.progress("orders").next_offset == 3
    assert world.is_done("users")


def test_a_partly_replayed_segment_whose_file_is_gone_stops_its_partition():
    world = SlotWorld(transaction_records=2, max_records=2)
    world.stage("orders", letters("abcde"))
    world.tick()
    shown = world.shown("orders")
    assert [offset for offset, _ in shown] == [0, 1]
    world.files.clear()

    ((_, error),) = world.tick().errors

    assert isinstance(error, StageIncompleteError)
    assert world.shown("orders") == shown


def test_a_missing_segment_stops_its_partition_before_anything_is_sent(world):
    world.stage("orders", letters("abc"))
    world.stage("orders", letters("def"))
    world.stage("orders", letters("ghi"))
    del world.links["orders"][1]

    ((_, error),) = world.tick().errors

    assert isinstance(error, StageIncompleteError)
    assert world.shown("orders") == []


def test_a_re_created_target_topic_stops_its_partition(world):
    for topic in ("orders", "users"):
        world.stage(topic, letters("abc"))
    mapped = world.tick().batches[0].after
    world.stage("users", letters("d"))
    former = MapEnd(mapped, 3)
    world.cluster.make("us-east.orders")

    work = world.work()
    works = [
        PartitionWork(w.partition, w.target, w.target_topic_id, w.links, former)
        if w.partition == partition("orders")
        else w
        for w in work.partitions
    ]
    replayed = replay_slot(
        SlotWork(FLOW, 5, tuple(works), work.files, 3, MANY, MANY, MANY),
        world.staged,
        FakeTarget(world.cluster, FLOW, 5),
    )

    ((failing, error),) = replayed.errors
    assert (failing, type(error)) == (partition("orders"), TargetChangedError)
    assert world.shown("orders") == []
    assert world.is_done("users")


def test_progress_that_was_set_back_stops_its_partition(world):
    world.stage("orders", letters("abc"))
    world.tick()
    held = world.cluster.groups[FLOW.progress_group]
    held[remote("orders")] = Progress(1, "life1", world.id("orders"))

    ((_, error),) = world.tick().errors

    assert isinstance(error, ProgressBehindError)
    assert len(world.shown("orders")) == 3


def test_deleted_progress_is_recovered_and_committed_again(world):
    world.stage("orders", letters("abc"))
    world.tick()
    del world.cluster.groups[FLOW.progress_group][remote("orders")]
    world.stage("orders", letters("de"))

    world.finish()

    world.assert_exact()


def test_a_lost_map_with_equal_foreign_records_is_an_ambiguity_error(world):
    world.stage("orders", letters("."))
    world.tick()
    world.stage("orders", letters("ab"))
    world.cluster.append(remote("orders"), RecordContent(b"a"))
    world.tick(writes_map=False)
    world.marks["orders"].clear()

    ((_, error),) = world.tick().errors

    assert isinstance(error, MapAmbiguousError)
    assert len(world.shown("orders")) == 3


def meanwhile(monkeypatch, happens):
    """Call *happens* between the flush of the first transaction and its commit."""
    settled, calls = FakeTarget.flush, count()

    def flush(self):
        offsets = settled(self)
        if next(calls) == 0:
            happens()
        return offsets

    monkeypatch.setattr(FakeTarget, "flush", flush)


def test_a_target_topic_re_created_during_a_transaction_gets_none_of_its_records(
    world, monkeypatch
):
    for topic in ("orders", "users"):
        world.stage(topic, letters("abc"))
    planned = world.work()
    meanwhile(monkeypatch, lambda: world.cluster.make("us-east.orders"))

    replayed = replay_slot(planned, world.staged, FakeTarget(world.cluster, FLOW, 5))

    ((failing, error),) = replayed.errors
    assert (failing, type(error)) == (partition("orders"), TargetChangedError)
    assert world.shown("orders") == []
    assert world.progress("orders") is None
    assert world.is_done("users")


def test_a_target_log_truncated_between_fencing_and_sending_is_detected(world, monkeypatch):
    for topic in ("orders", "users"):
        world.stage(topic, letters("abc"))
    world.tick()
    for topic in ("orders", "users"):
        world.stage(topic, letters("de"))
    begin, calls = FakeTarget.begin, count()

    def cut_first(self):
        if next(calls) == 0:
            world.cluster.cut(remote("orders"), 1)
        begin(self)

    monkeypatch.setattr(FakeTarget, "begin", cut_first)

    ((failing, error),) = world.tick().errors

    assert (failing, str(error)) == (
        partition("orders"),
        "us-east.orders[0]: the target's log ends at 1, but records up to 3 were written",
    )
    assert [contents.value for _, contents in world.shown("orders")] == [b"a"]
    assert world.is_done("users")


def test_a_throttled_slot_sends_smaller_transactions_and_ends_its_tick_after_each(
    world, monkeypatch
):
    world = SlotWorld(transaction_records=MANY)
    world.stage("orders", [b"%d" % i for i in range(100)])
    settled = FakeTarget.flush

    def throttled(self):
        offsets = settled(self)
        if sum(map(len, offsets.values())) > 20:
            raise ThrottledError("eu-west", transactional_id="slot", share=0.5)
        return offsets

    monkeypatch.setattr(FakeTarget, "flush", throttled)

    replayed = world.tick()

    (batch,) = replayed.batches
    assert (replayed.failure, replayed.errors) == (None, ())
    assert 0 < batch.records <= 20
    assert replayed.max_transaction_bytes > 0
    world.finish()
    world.assert_exact()


def test_a_single_record_too_large_for_the_quota_is_a_failure_of_the_slot(world, monkeypatch):
    world.stage("orders", letters("ab"))

    def throttled(self):
        raise ThrottledError("eu-west", transactional_id="slot", share=0.5)

    monkeypatch.setattr(FakeTarget, "flush", throttled)

    assert isinstance(world.tick().failure, ThrottledError)


# Random sequences


class Exactly(RuleBasedStateMachine):
    """Replay stays exact with foreign writers, crashes at any call and lost maps in any order."""

    def __init__(self):
        super().__init__()
        self.world = SlotWorld(TOPICS[:2], transaction_records=2, max_records=5)
        self.values = count()
        self.incarnation = dict.fromkeys(self.world.topics, 1)

    topics = st.sampled_from(TOPICS[:2])

    @rule(topic=topics, log=st.lists(st.booleans(), max_size=5))
    def stage(self, topic, log):
        contents = [b"%d" % next(self.values) if is_record else "." for is_record in log]
        self.world.stage(topic, contents, f"life{self.incarnation[topic]}")

    @rule(topic=topics)
    def re_create(self, topic):
        self.incarnation[topic] += 1

    @rule(topic=topics, state=st.sampled_from(["committed", "aborted"]))
    def write_foreign_record(self, topic, state):
        contents = RecordContent(b"f%d" % next(self.values), b"foreign")
        self.world.cluster.append(remote(topic), contents, state=state)

    @precondition(lambda self: any(self.world.links.values()))
    @rule(at=st.integers(0, 40), after=st.booleans())
    def crash(self, at, after):
        self.world.crash(at, after=after)

    @precondition(lambda self: any(self.world.links.values()))
    @rule(writes_map=st.booleans())
    def replay(self, writes_map):
        replayed = self.world.tick(writes_map=writes_map)
        assert (replayed.failure, replayed.errors) == (None, ())

    @rule(topic=topics)
    def lose_the_map(self, topic):
        if self.world.progress(topic) is not None:
            self.world.runs[topic], self.world.marks[topic] = [], {}

    @invariant()
    def visible_records_are_a_prefix_of_the_staged_records(self):
        for topic, contents in self.world.contents.items():
            shown = [s for _, s in self.world.shown(topic)]
            assert shown == [s for _, _, s in contents][: len(shown)]

    def teardown(self):
        self.world.finish()
        self.world.assert_exact()


TestExactly = Exactly.TestCase
TestExactly.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
