"""The maps of two targets of one source agree, and translate offsets in both directions.

The log has plain records, committed and aborted transactions, and compaction. The targets are
filled with different transaction sizes, crashes and foreign records.
"""

from dataclasses import dataclass
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.offset_map.runs import Runs
from pipeline.offset_map.translate import translate, translate_back
from schemas.kafka.partition import TopicPartition
from tests.pipeline.replay.test_slot_replay import SlotWorld
from tests.support.fake_cluster import FakeCluster, RecordContent
from tests.support.runs import expand_runs

ORDERS = TopicPartition("orders", 0)


@dataclass(frozen=True)
class Source:
    """The log `[0, end)` of a partition; *shown* are the values of visible records by offset."""

    shown: dict[int, bytes]
    end: int


@dataclass(frozen=True)
class Way:
    """How a target is filled: transaction size, segment bounds, crash, foreign records."""

    transaction_records: int
    cuts: list[int]
    crash_at: int
    is_disturbed: bool


@st.composite
def sources(draw):
    """Return the visible records of a log with aborted transactions and compaction."""
    cluster = FakeCluster()
    cluster.make("orders")
    for kind in draw(
        st.lists(st.sampled_from(["plain", "commit", "abort"]), min_size=1, max_size=6)
    ):
        size = draw(st.integers(1, 4))
        state = "aborted" if kind == "abort" else "committed"
        # Many equal records, so that only their order distinguishes them.
        cluster.append(
            ORDERS,
            *(RecordContent(draw(st.sampled_from([b"a", b"b"]))) for _ in range(size)),
            state=state,
        )
        if kind != "plain":
            cluster.mark(ORDERS)
    end = len(cluster.logs[ORDERS])
    cluster.clean(ORDERS, *draw(st.sets(st.integers(0, end - 1), max_size=4)))
    return Source({offset: record.value for offset, record in cluster.visible(ORDERS)}, end)


ways = st.builds(
    Way,
    transaction_records=st.integers(1, 5),
    cuts=st.lists(st.integers(0, 40), max_size=4),
    crash_at=st.integers(0, 40),
    is_disturbed=st.booleans(),
)


def replayed(source, way):
    """Return the offset runs of a new target that was filled as *way* describes."""
    world = SlotWorld(["orders"], transaction_records=way.transaction_records)
    edges = sorted({0, source.end, *(cut for cut in way.cuts if cut < source.end)})
    for start, end in pairwise(edges):
        world.stage("orders", [source.shown.get(offset, ".") for offset in range(start, end)])
        if way.is_disturbed:
            world.foreign("orders", b"foreign")
        world.crash(way.crash_at)
        world.finish()
    return world.runs["orders"]


@settings(max_examples=60)
@given(sources(), ways, ways)
def test_the_maps_of_two_targets_have_the_same_upstream_offsets(source, one, other):
    first, second = ([up for up, _ in expand_runs(replayed(source, way))] for way in (one, other))

    assert first == second == list(source.shown)


@settings(max_examples=60)
@given(sources(), ways, st.integers(0, 45))
def test_a_group_that_fails_over_and_back_reads_each_record_once(source, way, committed):
    runs = replayed(source, way)
    index, pairs = Runs.of(runs), list(expand_runs(runs))
    there = translate(committed, index)
    if not pairs:
        assert there is None
        return

    unread = [upstream for upstream in source.shown if upstream >= committed]
    assert [up for up, down in pairs if down >= there] == unread

    back = translate_back(there, index)
    assert [upstream for upstream in source.shown if upstream >= back] == unread
