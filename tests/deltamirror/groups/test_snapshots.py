"""Snapshot groups' committed offsets when they change, and query them as of a time."""

import pytest

from deltamirror.groups.snapshots import latest_commits, snapshot_groups
from schemas.kafka.partition import TopicPartition
from schemas.tables import GROUP_OFFSETS
from tests.support.lake import FLOW, ORDERS, ScriptedContext, commit


@pytest.fixture
def context(lake):
    context = ScriptedContext(lake)
    context.source.hold(ORDERS, 10)
    context.source.offsets["billing"] = {ORDERS: 4}
    return context


def written(context):
    rows = context.lake.cluster_table("us-east", GROUP_OFFSETS).rows().to_pylist()
    return [(row["group"], row["topic"], row["topic_id"], row["committed"]) for row in rows]


def test_a_commit_is_written_with_the_topics_id(context):
    snapshot = snapshot_groups(context, "us-east")

    assert (snapshot.groups, snapshot.changed) == (1, 1)
    assert written(context) == [("billing", "orders", "life1", 4)]


def test_an_unchanged_commit_is_not_written_again(context):
    snapshot_groups(context, "us-east")

    assert snapshot_groups(context, "us-east").changed == 0

    context.source.offsets["billing"][ORDERS] = 3
    assert snapshot_groups(context, "us-east").changed == 1
    assert sorted(row[-1] for row in written(context)) == [3, 4]


def test_commit_metadata_is_written_with_the_offset(context):
    context.source.texts["billing", ORDERS] = "AgAAAYvP5WgA"

    snapshot_groups(context, "us-east")
    context.source.texts["billing", ORDERS] = "later"
    snapshot_groups(context, "us-east")

    rows = context.lake.cluster_table("us-east", GROUP_OFFSETS).rows().sort_by("seen_at_ms")
    assert rows["metadata"].to_pylist() == ["AgAAAYvP5WgA", "later"]


def test_the_same_offset_in_another_incarnation_is_a_change(context):
    snapshot_groups(context, "us-east")
    context.source.hold(ORDERS, 10, topic_id="life2")

    assert snapshot_groups(context, "us-east").changed == 1


def test_an_offset_read_while_its_topic_was_re_created_is_not_written(context, monkeypatch):
    def group_commits(group):
        context.source.hold(ORDERS, 10, topic_id="life2")
        return {ORDERS: (4, "")}

    monkeypatch.setattr(context.source, "group_commits", group_commits)

    assert snapshot_groups(context, "us-east").changed == 0


def test_only_groups_and_topics_of_a_flow_are_written_and_no_progress_groups(context):
    context.source.hold(TopicPartition("eu-west.orders", 0), 5)
    context.source.offsets |= {
        FLOW.progress_group: {ORDERS: 1},
        "ignored-1": {ORDERS: 1},
        "audit": {TopicPartition("eu-west.orders", 0): 2, TopicPartition("deleted", 0): 2},
    }

    snapshot_groups(context, "us-east")

    assert written(context) == [("billing", "orders", "life1", 4)]


def test_an_unreadable_group_does_not_fail_the_other_groups(context):
    context.source.offsets["odd"] = {}
    context.source.unreadable.add("odd")

    snapshot = snapshot_groups(context, "us-east")

    assert snapshot.changed == 1
    assert len(snapshot.read_errors) == 1
    assert "odd" in snapshot.read_errors[0]


@pytest.mark.parametrize(
    ("as_of", "committed"),
    [
        pytest.param(None, [9], id="now"),
        pytest.param(25, [7], id="between two snapshots"),
        pytest.param(20, [7], id="at a snapshot"),
        pytest.param(9, [], id="before the first"),
    ],
)
def test_the_newest_commit_seen_at_or_before_a_time_is_returned(context, as_of, committed):
    for at, offset in ((10, 4), (20, 7), (30, 9)):
        commit(context, "billing", offset, at=at)

    rows = latest_commits(context.lake.cluster_table("us-east", GROUP_OFFSETS).rows(), as_of)

    assert rows["committed"].to_pylist() == committed


def test_the_newest_commit_is_found_even_if_the_clock_was_set_back(context, monkeypatch):
    snapshot_groups(context, "us-east")
    monkeypatch.setattr("resources.delta.table.time.time", lambda: 1_000.0)
    context.source.offsets["billing"][ORDERS] = 7

    assert snapshot_groups(context, "us-east").changed == 1

    newest = latest_commits(context.lake.cluster_table("us-east", GROUP_OFFSETS).rows())
    assert newest["committed"].to_pylist() == [7]
    assert snapshot_groups(context, "us-east").changed == 0
