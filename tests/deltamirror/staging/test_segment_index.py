"""Index sealed segments in the order of staging."""

from itertools import count

import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from deltamirror.replay.work_planner import link_index
from deltamirror.staging.segment_index import SegmentIndex, recent_segments
from resources.delta.lake import DeltaLake
from resources.delta.table_maintenance import optimize
from schemas.errors.lake import TableDamagedError
from schemas.kafka.partition import SourcePartition, TopicPartition
from schemas.replay.slot_work import Progress
from schemas.staging.frontier import Frontier
from schemas.staging.segment import Segment
from tests.support.table_files import optimize_files, paths_by_age

ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def segments(lake):
    return DeltaLake(lake).segments("us-east")


def row(start, end, version, *, topic_id="id1", partition=0, epoch=4):
    return {
        "topic": "orders", "topic_id": topic_id, "partition": partition, "start": start,
        "end": end, "count": end - start, "size_bytes": 0, "leader_epoch": epoch, "low": 0,
        "stable": end + 5, "high": end + 9, "gap_cause": "", "digest": "",
        "staged_at_ms": version * 10, "sequence": version, "version": version,
    }  # fmt: skip


def spans(index, partition=ORDERS):
    return [(s.link.incarnation, s.link.start, s.link.end) for s in index.links(partition)]


def test_the_index_of_a_missing_table_is_empty_and_does_not_create_the_table(segments):
    index = SegmentIndex(segments)

    assert not index.refresh()
    assert index.links(ORDERS) == []
    assert not segments.exists()


def test_links_are_in_the_order_of_staging_and_the_last_is_the_frontier(segments):
    segments.append([row(5, 9, 2), row(0, 5, 1)])
    index = SegmentIndex(segments)

    assert index.refresh()

    assert spans(index) == [("id1", 0, 5), ("id1", 5, 9)]
    assert index.frontiers[ORDERS] == Frontier(SourcePartition("orders", "id1", 0), 9, 4, 14)


def test_a_refresh_reads_only_new_segments(segments):
    segments.append([row(0, 5, 1)])
    index = SegmentIndex(segments)
    index.refresh()

    assert not index.refresh()
    segments.append([row(5, 9, 2), row(0, 3, 2, partition=1)])
    assert index.refresh()

    assert spans(index) == [("id1", 0, 5), ("id1", 5, 9)]
    assert spans(index, TopicPartition("orders", 1)) == [("id1", 0, 3)]


def test_a_new_incarnation_follows_the_old_one_even_with_lower_offsets(segments):
    segments.append([row(0, 50, 1), row(3, 7, 2, topic_id="id2")])
    index = SegmentIndex(segments)
    index.refresh()

    assert spans(index) == [("id1", 0, 50), ("id2", 3, 7)]
    assert index.frontiers[ORDERS].source.topic_id == "id2"


def test_optimizing_the_table_adds_no_links_again(segments):
    for i in range(20):
        segments.append([row(i, i + 1, i + 1)])
    index = SegmentIndex(segments)
    index.refresh()

    optimize(segments)

    assert not index.refresh()
    assert len(spans(index)) == 20


def test_a_refresh_reads_a_file_that_was_unreadable_before(segments):
    segments.append([row(0, 5, 1)])
    index = SegmentIndex(segments)
    index.refresh()
    segments.append([row(5, 9, 2)])
    new = max(segments.path.glob("*.parquet"), key=lambda file: file.stat().st_mtime_ns)
    away = new.rename(new.with_suffix(".away"))

    with pytest.raises(TableDamagedError):
        index.refresh()
    away.rename(new)

    assert index.refresh()
    assert spans(index) == [("id1", 0, 5), ("id1", 5, 9)]


# Segments after what a reader has reached


class StagedPartitions:
    """A lake with segments of several partitions in commits of `records`, which has no files."""

    def __init__(self, root):
        self.lake = DeltaLake(root)
        self.records, self.table = self.lake.records("us-east"), self.lake.segments("us-east")
        self.records.refresh()
        self.table.refresh()
        self.ends = {}  # partition -> [topic id, next offset] of each incarnation
        self.sequence = count(1)

    def stage(self, lengths):
        """Stage a segment of each partition of *lengths*, in one commit."""
        segments = []
        for partition, length in lengths.items():
            newest = self.ends.setdefault(partition, [["id1", 0]])[-1]
            topic_id, start = newest
            newest[1] = end = start + length
            segment = Segment(
                partition.topic, topic_id, partition.partition, start, end, length, 0, start,
                end - 1, start, end, 4, 0, end, end + 1, "", "", 1, next(self.sequence),
            )  # fmt: skip
            segments.append(segment)
        expected = {s.source: self.records.frontier(s.source) for s in segments}
        self.records.stage([], segments, expected)

    def recreate(self, partition, start=0):
        """Begin a new incarnation of *partition* at offset *start*."""
        ends = self.ends.setdefault(partition, [["id1", 0]])
        if ends[-1][1]:
            ends.append([f"id{len(ends) + 1}", start])

    def index(self, reached=None):
        """Return an index of another process, refreshed."""
        index = SegmentIndex(self.lake.segments("us-east"), reached)
        index.refresh()
        return index


@pytest.fixture
def staged(lake):
    return StagedPartitions(lake)


def reaching(positions):
    """Return a function that returns the offset of a source partition in *positions*, or None."""
    return lambda source: positions.get((source.topic_partition, source.topic_id))


def seal_each(staged, *batches):
    """Stage each of *batches* and seal it, so that it has a file of its own."""
    for lengths in batches:
        staged.stage(lengths)
        staged.table.seal()


def test_the_index_begins_at_the_segment_in_which_the_reached_offset_lies(staged):
    seal_each(staged, *({ORDERS: 5} for _ in range(4)))

    index = staged.index(reaching({(ORDERS, "id1"): 12}))

    assert spans(index) == [("id1", 10, 15), ("id1", 15, 20)]
    assert index.is_cut(ORDERS)
    assert index.frontiers == staged.index().frontiers


def test_files_before_the_reached_offset_are_not_read(staged):
    seal_each(staged, *({ORDERS: 5, USERS: 2} for _ in range(4)))
    oldest, second, *_ = paths_by_age(staged.table)
    oldest.unlink()
    second.unlink()
    reached = reaching({(ORDERS, "id1"): 19, (USERS, "id1"): 4})

    index = staged.index(reached)

    assert spans(index) == [("id1", 15, 20)]
    assert spans(index, USERS) == [("id1", 4, 6), ("id1", 6, 8)]
    with pytest.raises(TableDamagedError):
        staged.index()
    with pytest.raises(TableDamagedError):
        staged.index(reaching({(ORDERS, "id1"): 19, (USERS, "id1"): 3}))
    with pytest.raises(TableDamagedError):
        index.read_all()


def test_recent_segments_need_no_files_before_the_reached_offset_and_have_unsealed_ones(staged):
    seal_each(staged, {ORDERS: 5}, {ORDERS: 5})
    staged.stage({ORDERS: 1})
    paths_by_age(staged.table)[0].unlink()

    rows = recent_segments(staged.lake.segments("us-east"), ["end"], reaching({(ORDERS, "id1"): 5}))

    assert sorted(rows["end"].to_pylist()) == [10, 11]


def test_a_partition_that_a_reader_has_not_begun_is_read_completely(staged):
    seal_each(staged, {USERS: 3}, *({ORDERS: 5} for _ in range(3)))

    index = staged.index(reaching({(ORDERS, "id1"): 14}))

    assert spans(index) == [("id1", 10, 15)]
    assert spans(index, USERS) == [("id1", 0, 3)]
    assert not index.is_cut(USERS)


def test_a_partition_that_is_replayed_or_never_had_a_record_needs_no_file(staged):
    seal_each(staged, {USERS: 0}, {USERS: 0, ORDERS: 5}, {ORDERS: 5})
    whole = staged.index()
    for path in paths_by_age(staged.table):
        path.unlink()

    index = staged.index(reaching({(ORDERS, "id1"): 10}))

    assert spans(index) == [("id1", 10, 10)]
    assert spans(index, USERS) == [("id1", 0, 0)]
    assert index.frontiers == whole.frontiers
    assert index.first_sequence(USERS, index.links(USERS)[0].link) > 2**62
    staged.stage({USERS: 3})
    index.refresh()
    assert spans(index, USERS) == [("id1", 0, 0), ("id1", 0, 3)]
    assert index.first_sequence(USERS, index.links(USERS)[0].link) == index.links(USERS)[1].sequence


def test_a_partition_with_records_before_an_empty_segment_is_read(staged):
    seal_each(staged, {USERS: 3}, {USERS: 0})

    index = staged.index(reaching({}))

    assert spans(index, USERS) == [("id1", 0, 3), ("id1", 3, 3)]
    assert not index.is_cut(USERS)


def test_incarnations_whose_segments_are_not_read_are_known(staged):
    for _ in range(3):
        seal_each(staged, {ORDERS: 5}, {ORDERS: 5})
        staged.recreate(ORDERS)

    index = staged.index(reaching({(ORDERS, "id1"): 10, (ORDERS, "id2"): 8}))

    assert spans(index) == [("id2", 5, 10), ("id3", 0, 5), ("id3", 5, 10)]
    assert index.incarnations(ORDERS) == ["id1", "id2", "id3"]


def test_segments_of_a_merged_file_before_the_reached_offset_are_left_out(staged):
    seal_each(staged, *({ORDERS: 5} for _ in range(3)))
    staged.recreate(ORDERS)
    seal_each(staged, *({ORDERS: 5} for _ in range(3)))
    optimize_files(staged.table, rank=6)

    in_the_first = staged.index(reaching({(ORDERS, "id1"): 7}))
    in_both = staged.index(reaching({(ORDERS, "id1"): 15, (ORDERS, "id2"): 5}))

    assert spans(in_the_first)[:2] == [("id1", 5, 10), ("id1", 10, 15)]
    assert len(spans(in_the_first)) == 5
    assert spans(in_both) == [("id2", 5, 10), ("id2", 10, 15)]


def test_an_index_that_follows_has_all_segments_since_it_was_read_first(staged):
    positions = {(ORDERS, "id1"): 6}
    seal_each(staged, {ORDERS: 5}, {ORDERS: 5})
    index = staged.index(reaching(positions))

    positions[ORDERS, "id1"] = 19
    staged.stage({ORDERS: 5})
    seal_each(staged, {ORDERS: 5})
    index.refresh()

    assert spans(index) == [("id1", 5, 10), ("id1", 10, 15), ("id1", 15, 20)]


def test_segments_of_a_file_that_another_program_merged_are_all_read(staged):
    seal_each(staged, *({ORDERS: 5} for _ in range(3)))
    DeltaTable(str(staged.table.path)).optimize.compact()
    seal_each(staged, {ORDERS: 5})

    index = staged.index(reaching({(ORDERS, "id1"): 14}))

    assert spans(index) == [("id1", 0, 5), ("id1", 5, 10), ("id1", 10, 15), ("id1", 15, 20)]


def test_a_table_that_does_not_list_its_partitions_is_read_completely(segments):
    for version in range(1, 5):
        segments.append([row(version * 5, version * 5 + 5, version)])

    index = SegmentIndex(segments, lambda _: 25)
    index.refresh()

    assert len(spans(index)) == 4
    assert not index.is_cut(ORDERS)


USERS = TopicPartition("users", 0)
PARTITIONS = st.sampled_from([ORDERS, USERS])
STAGE = st.tuples(st.just("stage"), st.dictionaries(PARTITIONS, st.integers(1, 4), min_size=1))
STEP = st.one_of(
    STAGE,
    STAGE,
    STAGE,
    st.tuples(st.just("recreate"), PARTITIONS, st.sampled_from([0, 0, 3])),
    st.tuples(st.just("optimize"), st.integers(1, 10)),
    st.tuples(st.sampled_from(["seal", "seal", "seal", "checkpoint"])),
)
# Of each partition the newest incarnation that the reader has reached, and the offset in it. If
# the flag is set, it has also read all former incarnations to their end.
POSITION = st.none() | st.tuples(st.integers(0, 2), st.integers(0, 12), st.booleans())
REACHED = st.fixed_dictionaries({ORDERS: POSITION, USERS: POSITION})


def run(staged, steps):
    for step, *how in steps:
        if step == "stage":
            staged.stage(*how)
        elif step == "recreate":
            staged.recreate(*how)
        elif step == "optimize":
            optimize_files(staged.table, *how)
        elif step == "seal":
            staged.table.seal()
        else:
            staged.table.checkpoint(1)


def positions_of(staged, chosen):
    """Return the offset for each source partition, and the newest position of each partition."""
    positions, newest = {}, {}
    for partition, position in chosen.items():
        if position is None:
            continue
        number, offset, has_former = position
        ends = staged.ends.get(partition, [["id1", 0]])
        topic_id = ends[number % len(ends)][0]
        former = ends[: number % len(ends)] if has_former else []
        if former:
            offset = max(offset, 3)  # a reader begins at the first offset of an incarnation
        positions |= {(partition, former_id): end for former_id, end in former}
        positions[partition, topic_id] = offset
        newest[partition] = Progress(offset, topic_id, "")
    return positions, newest


def assert_is_end_of(index, whole, newest):
    """Check that *index* has all that a reader at the *newest* positions needs of *whole*."""
    assert index.frontiers == whole.frontiers
    assert set(index.partitions()) == set(whole.partitions())
    for partition in whole.partitions():
        links, all_links = index.links(partition), whole.links(partition)
        at = newest.get(partition)
        if at is not None and at.incarnation not in whole.incarnations(partition):
            continue  # nothing of that incarnation is staged
        assert links
        if links[0].sequence == 0:  # an empty segment in place of all that were replayed
            last = links[0].link
            assert last.start == last.end
            assert last.count == 0
            assert at.incarnation != last.incarnation or last.end <= at.next_offset
            done = [s for s in all_links if s.link.incarnation == last.incarnation]
            links = [s for s in done if s.link.end <= last.end] + links[1:]
        left_out = len(all_links) - len(links)
        assert links == all_links[left_out:]
        assert left_out <= (link_index(all_links, at) if at else 0)
        assert index.is_cut(partition) or left_out == 0
        known, all_known = index.incarnations(partition), whole.incarnations(partition)
        read = len({staged.link.incarnation for staged in links})
        assert sorted(known) == sorted(all_known)
        assert known[-read:] == all_known[-read:]


@given(st.lists(STEP, min_size=8, max_size=20), REACHED, st.lists(STEP, max_size=8))
@settings(max_examples=30)
def test_an_index_from_reached_offsets_is_the_end_of_the_whole_index(
    tmp_path_factory, before, reached, after
):
    staged = StagedPartitions(tmp_path_factory.mktemp("lake"))
    run(staged, before)
    positions, newest = positions_of(staged, reached)

    index = staged.index(reaching(positions))

    assert_is_end_of(index, staged.index(), newest)
    run(staged, after)
    index.refresh()
    whole = staged.index()
    assert_is_end_of(index, whole, newest)
    index.read_all()
    for partition in whole.partitions():
        assert index.links(partition) == whole.links(partition)
        assert index.incarnations(partition) == whole.incarnations(partition)
        assert not index.is_cut(partition)
    assert index.frontiers == whole.frontiers
