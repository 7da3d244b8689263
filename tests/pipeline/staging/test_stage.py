"""Ranges of a source are staged as sorted files and segments."""

from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.record_digest import Digest
from pipeline.staging import stage as stage_module
from pipeline.staging.stage import StageTask, stage_ranges
from schemas.errors.source import RangeUnfinishedError, RecordsExpiredError
from schemas.kafka.partition import SourcePartition, TopicPartition
from schemas.staging.read_range import OffsetRange, ReadResult
from schemas.staging.segment import StagedFile
from tests.support.fake_cluster import FakeCluster, FakeSource, RecordContent, neighbours, rows

MANY = 1_000_000


class DictLake:
    """Files in a dict; a file that was not closed is dropped."""

    def __init__(self):
        self.files = {}
        self.begun = 0

    @contextmanager
    def records_file(self, sequence):
        self.begun += 1
        yield DictFile(self, f"{sequence}-{self.begun}")


class DictFile:
    def __init__(self, lake, path):
        self._lake, self._path = lake, path
        self._batches, self._rows = [], []

    def write(self, slot, batch):
        self._batches.append(batch)
        self._rows += [{"slot": slot, **row} for row in batch.to_pylist()]

    def close(self):
        if not self._batches:
            return None
        self._lake.files[self._path] = self._rows
        return StagedFile(self._path, sum(batch.nbytes for batch in self._batches), "{}", 0)


@pytest.fixture
def cluster():
    return FakeCluster()


@pytest.fixture
def lake():
    return DictLake()


def topic(cluster, name, *values, partitions=1):
    """Create a topic whose partition 0 holds *values*; return its source partition."""
    incarnation = cluster.make(name, partitions)
    cluster.append(TopicPartition(name, 0), *(RecordContent(value) for value in values))
    return SourcePartition(name, incarnation, 0)


def planned(cluster, source, start=0, end=None, planned_start=0):
    marks = cluster.watermarks([source.topic_partition])[source.topic_partition]
    return OffsetRange(source, start, marks.stable if end is None else end, planned_start, 0, marks)


def run(cluster, lake, *ranges, source=None, max_bytes=MANY):
    task = StageTask(tuple(ranges), 4, max_bytes)
    return stage_ranges(task, source or FakeSource(cluster), lake, 1_234)


def letters(count):
    return [b"%c" % (97 + i % 26) for i in range(count)]


def test_a_range_becomes_a_file_and_a_segment_with_its_counts(cluster, lake):
    orders = topic(cluster, "orders", b"a", b"bb", b"ccc")

    found = run(cluster, lake, planned(cluster, orders))

    (segment,) = found.segments
    assert [r["value"] for r in lake.files[found.file.path]] == [b"a", b"bb", b"ccc"]
    assert (segment.start, segment.end, segment.count, segment.size_bytes) == (0, 3, 3, 6)
    assert (segment.first, segment.last, segment.gap_cause) == (0, 2, "")
    assert (segment.staged_at_ms, segment.sequence) == (1_234, 4)
    assert found.errors == ()


def test_markers_and_aborted_records_at_the_end_are_read_and_counted_as_gaps(cluster, lake):
    orders = topic(cluster, "orders", b"a")
    cluster.append(orders.topic_partition, RecordContent(b"gone"), state="aborted")
    cluster.mark(orders.topic_partition)

    found = run(cluster, lake, planned(cluster, orders))

    (segment,) = found.segments
    assert (segment.end, segment.count, segment.gaps, segment.last) == (3, 1, 2, 0)
    assert segment.gap_cause == "compacted, transaction markers or aborted"


def test_a_range_without_records_becomes_a_segment_without_a_file(cluster, lake):
    orders = topic(cluster, "orders")
    cluster.mark(orders.topic_partition)

    found = run(cluster, lake, planned(cluster, orders))

    (segment,) = found.segments
    assert found.file is None
    assert (segment.start, segment.end, segment.count, segment.first) == (0, 1, 0, None)
    assert segment.min_timestamp_ms is None


def test_a_segment_has_the_min_and_max_timestamp_in_any_order(cluster, lake):
    orders = topic(cluster, "orders")
    cluster.append(
        orders.topic_partition, *(RecordContent(timestamp_ms=t) for t in (70, -1, 90, 5, 60))
    )

    (segment,) = run(cluster, lake, planned(cluster, orders)).segments

    assert (segment.min_timestamp_ms, segment.max_timestamp_ms) == (-1, 90)


@pytest.mark.parametrize("small", [0, 4_096], ids=["streamed", "together"])
def test_the_records_of_all_slots_are_in_one_file_sorted_by_slot_topic_partition_and_offset(
    cluster, lake, monkeypatch, small
):
    monkeypatch.setattr(stage_module, "SMALL_RANGE_OFFSETS", small)
    names = ["orders", *neighbours("orders", 2), *(f"topic-{i}" for i in range(8))]
    sources = [topic(cluster, name, *letters(8)) for name in names]

    found = run(cluster, lake, *(planned(cluster, s) for s in reversed(sources)))

    (held,) = lake.files.values()
    positions = [(r["slot"], r["topic"], r["partition"], r["offset"]) for r in held]
    assert positions == sorted(positions)
    assert len(positions) == 8 * len(sources)
    assert {(r["topic"], r["slot"]) for r in held} == {(s.topic, s.slot) for s in sources}
    assert len({s.slot for s in sources}) > 3, "several slots"
    assert [s.source for s in found.segments] == sorted(sources, key=lambda s: (s.slot, s))


def test_each_segment_has_the_stamps_of_its_own_records(cluster, lake):
    sources = [topic(cluster, name) for name in ("a", "b", "c")]
    for first, source in enumerate(sources):
        cluster.append(
            source.topic_partition, *(RecordContent(timestamp_ms=t) for t in (first, 50 + first))
        )

    found = run(cluster, lake, *(planned(cluster, s) for s in sources))

    assert [(stamps.low, stamps.high) for stamps in found.stamps] == [
        (s.min_timestamp_ms, s.max_timestamp_ms) for s in found.segments
    ]
    assert len(set(found.stamps)) == 3


def test_small_ranges_are_read_together_and_large_ones_one_after_another(
    cluster, lake, monkeypatch
):
    monkeypatch.setattr(stage_module, "SMALL_RANGE_OFFSETS", 4)
    sizes = {"a": 2, "b": 3, "c": 9, "d": 8}
    ranges = {n: planned(cluster, topic(cluster, n, *letters(k))) for n, k in sizes.items()}
    source = FakeSource(cluster)

    run(cluster, lake, *ranges.values(), source=source)

    together = [{r.partition.topic for r in read} for read in source.reads]
    assert together[0] == {"a", "b"}
    assert sorted(map(sorted, together[1:])) == [["c"], ["d"]]


def test_the_offsets_read_together_are_bounded_even_if_all_ranges_are_small(
    cluster, lake, monkeypatch
):
    monkeypatch.setattr(stage_module, "SMALL_TOTAL_OFFSETS", 10)
    source = FakeSource(cluster)

    run(
        cluster,
        lake,
        *(planned(cluster, topic(cluster, n, *letters(4))) for n in "abcde"),
        source=source,
    )

    assert max(sum(r.length for r in read) for read in source.reads) <= 10


@pytest.mark.parametrize("small", [0, 4_096], ids=["streamed", "together"])
def test_a_range_that_reaches_the_bound_of_bytes_ends_at_a_record_boundary(
    cluster, lake, monkeypatch, small
):
    monkeypatch.setattr(stage_module, "SMALL_RANGE_OFFSETS", small)
    orders = topic(cluster, "orders", *letters(20))

    found = run(cluster, lake, planned(cluster, orders), max_bytes=100)

    (segment,) = found.segments
    assert 0 < segment.end < 20
    assert segment.count == segment.end == len(lake.files[found.file.path])
    assert found.errors == ()
    rest = run(cluster, DictLake(), planned(cluster, orders, segment.end))
    assert rest.segments[0].start == segment.end


def test_a_failing_range_does_not_affect_other_ranges_of_its_file(cluster, lake):
    names = ["orders", *neighbours("orders", 2)]
    sick, *healthy = [topic(cluster, name, *letters(3)) for name in names]
    source = FakeSource(cluster)
    source.fails[sick] = RecordsExpiredError(sick, wanted=0, low=2)

    found = run(cluster, lake, *(planned(cluster, s) for s in (sick, *healthy)), source=source)

    assert [s.source for s in found.segments] == sorted(healthy)
    assert [r.partition for r, _ in found.errors] == [sick]
    assert {r["topic"] for r in lake.files[found.file.path]} == {s.topic for s in healthy}


class HalfSource:
    """Returns the first two records of a range, then an error."""

    def __init__(self, error):
        self._error = error

    def read(self, ranges, max_bytes, take):
        (r,) = ranges
        take(r, rows(r.partition, [(r.start, RecordContent()), (r.start + 1, RecordContent())]))
        return {r: ReadResult(r, r.start + 2, self._error)}


def test_records_read_before_an_error_are_staged(cluster, lake):
    orders = topic(cluster, "orders", *letters(5))
    error = RangeUnfinishedError(orders, at=2, end=5, reason="slow")

    found = run(cluster, lake, planned(cluster, orders), source=HalfSource(error))

    (segment,) = found.segments
    assert (segment.start, segment.end, segment.count) == (0, 2, 2)
    assert found.errors[0][1] is error
    assert found.planned == (found.errors[0][0],)


def test_a_new_partition_whose_first_record_was_not_read_gets_no_segment(cluster, lake):
    orders = topic(cluster, "orders", *letters(5))
    source = FakeSource(cluster)
    source.fails[orders] = RangeUnfinishedError(orders, at=0, end=5, reason="slow")

    found = run(cluster, lake, planned(cluster, orders, planned_start=None), source=source)

    assert found.segments == ()


class WrongSource:
    def __init__(self, *offsets):
        self._offsets = offsets

    def read(self, ranges, max_bytes, take):
        (r,) = ranges
        take(r, rows(r.partition, [(o, RecordContent()) for o in self._offsets]))
        return {r: ReadResult(r, r.end)}


@pytest.mark.parametrize("offsets", [(1, 3, 2), (1, 1), (1, 9), (0, 1)])
def test_offsets_out_of_order_or_outside_the_range_are_an_error(cluster, lake, offsets):
    orders = topic(cluster, "orders", *letters(9))

    with pytest.raises(ValueError, match="do not increase"):
        run(cluster, lake, planned(cluster, orders, 1, 5), source=WrongSource(*offsets))


LOGS = st.lists(st.sampled_from(["record", "aborted", "marker"]), max_size=25)


@given(LOGS, st.integers(1, 6), st.integers(1, 2_000), st.booleans())
def test_any_split_into_ranges_stages_each_record_once_with_the_same_digest(
    log, rows_at_once, max_bytes, streamed
):
    cluster = FakeCluster()
    orders = topic(cluster, "orders")
    for i, kind in enumerate(log):
        if kind == "marker":
            cluster.mark(orders.topic_partition)
        else:
            state = "committed" if kind == "record" else "aborted"
            cluster.append(orders.topic_partition, RecordContent(b"%d" % i), state=state)
    lake, at, staged = DictLake(), 0, []
    source = FakeSource(cluster, rows_at_once)
    while at < len(log):
        lake.files.clear()
        found = run(cluster, lake, planned(cluster, orders, at), source=source, max_bytes=max_bytes)
        (segment,) = found.segments
        held = lake.files[found.file.path] if found.file else []
        again = Digest()
        if held:
            again.add(rows(orders, [(r["offset"], RecordContent(r["value"])) for r in held]))
        assert segment.digest == again.hexdigest()
        assert segment.count == len(held)
        staged += [r["offset"] for r in held]
        at = segment.end

    assert staged == [offset for offset, _ in cluster.visible(orders.topic_partition)]
