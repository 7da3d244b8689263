"""What groups had committed is written down when it changes, and can be told of any time."""

import pytest

from deltamirror.groups.snapshots import latest_commits, snapshot_groups
from schemas.kafka.partition import TopicPartition
from schemas.tables import GROUP_OFFSETS
from tests.support.lake import FLOW, ORDERS, FakeSite, commit


@pytest.fixture
def site(lake):
    site = FakeSite(lake)
    site.source.hold(ORDERS, 10)
    site.source.offsets["billing"] = {ORDERS: 4}
    return site


def written(site):
    rows = site.lake.of_cluster("us-east", GROUP_OFFSETS).rows().to_pylist()
    return [(row["group"], row["topic"], row["topic_id"], row["committed"]) for row in rows]


def test_a_commit_is_written_with_the_topics_id(site):
    snapshot = snapshot_groups(site, "us-east")

    assert (snapshot.groups, snapshot.changed) == (1, 1)
    assert written(site) == [("billing", "orders", "life1", 4)]


def test_what_has_not_changed_is_not_written_again(site):
    snapshot_groups(site, "us-east")

    assert snapshot_groups(site, "us-east").changed == 0

    site.source.offsets["billing"][ORDERS] = 3
    assert snapshot_groups(site, "us-east").changed == 1
    assert sorted(row[-1] for row in written(site)) == [3, 4]


def test_what_a_group_keeps_beside_its_offset_is_written_with_it(site):
    site.source.texts["billing", ORDERS] = "AgAAAYvP5WgA"

    snapshot_groups(site, "us-east")
    site.source.texts["billing", ORDERS] = "later"
    snapshot_groups(site, "us-east")

    rows = site.lake.of_cluster("us-east", GROUP_OFFSETS).rows().sort_by("seen_at_ms")
    assert rows["metadata"].to_pylist() == ["AgAAAYvP5WgA", "later"]


def test_the_same_offset_in_another_life_of_the_topic_is_a_change(site):
    snapshot_groups(site, "us-east")
    site.source.hold(ORDERS, 10, topic_id="life2")

    assert snapshot_groups(site, "us-east").changed == 1


def test_an_offset_read_while_its_topic_was_re_created_is_not_written(site, monkeypatch):
    def group_commits(group):
        site.source.hold(ORDERS, 10, topic_id="life2")
        return {ORDERS: (4, "")}

    monkeypatch.setattr(site.source, "group_commits", group_commits)

    assert snapshot_groups(site, "us-east").changed == 0


def test_only_groups_and_topics_of_a_flow_are_written_and_never_our_own(site):
    site.source.hold(TopicPartition("eu-west.orders", 0), 5)
    site.source.offsets |= {
        FLOW.progress_group: {ORDERS: 1},
        "ignored-1": {ORDERS: 1},
        "audit": {TopicPartition("eu-west.orders", 0): 2, TopicPartition("deleted", 0): 2},
    }

    snapshot_groups(site, "us-east")

    assert written(site) == [("billing", "orders", "life1", 4)]


def test_one_unreadable_group_never_fails_the_rest(site):
    site.source.offsets["odd"] = {}
    site.source.unreadable.add("odd")

    snapshot = snapshot_groups(site, "us-east")

    assert snapshot.changed == 1
    assert len(snapshot.troubles) == 1
    assert "odd" in snapshot.troubles[0]


@pytest.mark.parametrize(
    ("as_of", "committed"),
    [
        pytest.param(None, [9], id="now"),
        pytest.param(25, [7], id="between two snapshots"),
        pytest.param(20, [7], id="at a snapshot"),
        pytest.param(9, [], id="before the first"),
    ],
)
def test_a_time_has_the_newest_commit_seen_until_then(site, as_of, committed):
    for at, offset in ((10, 4), (20, 7), (30, 9)):
        commit(site, "billing", offset, at=at)

    rows = latest_commits(site.lake.of_cluster("us-east", GROUP_OFFSETS).rows(), as_of)

    assert rows["committed"].to_pylist() == committed


def test_the_newest_commit_is_the_newest_also_where_the_clock_was_set_back(site, monkeypatch):
    snapshot_groups(site, "us-east")
    monkeypatch.setattr("resources.delta.table.time.time", lambda: 1_000.0)
    site.source.offsets["billing"][ORDERS] = 7

    assert snapshot_groups(site, "us-east").changed == 1

    newest = latest_commits(site.lake.of_cluster("us-east", GROUP_OFFSETS).rows())
    assert newest["committed"].to_pylist() == [7]
    assert snapshot_groups(site, "us-east").changed == 0
