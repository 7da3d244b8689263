"""Committed offsets of a group on the target only move forward."""

from hypothesis import given
from hypothesis import strategies as st

from pipeline.offset_map.translate import forward_commits
from schemas.kafka.partition import TopicPartition

partitions = st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 2))
offsets = st.integers(0, 9)
wishes = st.dictionaries(partitions, st.tuples(offsets, st.text(max_size=2)))
AT = TopicPartition("orders", 0)


def test_a_larger_offset_is_set_with_its_metadata():
    assert forward_commits({AT: (7, "md")}, {AT: 6}) == {AT: (7, "md")}


def test_a_partition_without_a_commit_is_set_even_to_0():
    assert forward_commits({AT: (0, "")}, {}) == {AT: (0, "")}


@given(wishes, st.dictionaries(partitions, offsets))
def test_only_commits_that_move_a_partition_forward_are_returned(wanted, committed):
    forward = forward_commits(wanted, committed)
    after = committed | {at: offset for at, (offset, _) in forward.items()}

    assert all(after[at] > committed.get(at, -1) for at in forward)
    assert all(after[at] >= offset for at, (offset, _) in wanted.items())
    assert forward_commits(wanted, after) == {}
