"""Groups resume on the target at their very next record; MirrorMaker 2's tools are told."""

import pytest

from deltamirror.groups import checkpoints as module
from deltamirror.groups.checkpoints import map_index, translate_groups, write_checkpoints
from deltamirror.groups.plan import plan_groups
from schemas.errors import LakeError
from schemas.kafka.partition import TopicPartition
from schemas.mm2.records import Checkpoint
from schemas.tables import CHECKPOINTS
from tests.support.lake import FLOW, REMOTE, FakeSite, commit, replay


@pytest.fixture
def site(lake):
    """Records 10, 11, 14 and 15 went to 3, 4, 6 and 7; billing reads 12 next."""
    site = FakeSite(lake)
    replay(site, (10, 3, 2), (14, 6, 2))
    commit(site, "billing", 12)
    site.target.hold(REMOTE, 8)
    return site


@pytest.fixture
def emitted(monkeypatch):
    """What would be written to the target's checkpoints topic."""
    records = []

    class Topic:
        def __init__(self, cluster, name, settings):
            assert (cluster.alias, name) == ("eu-west", "us-east.checkpoints.internal")

        def make(self, replication_factor):
            pass

        def write(self, some):
            records.extend(some)

    monkeypatch.setattr(module, "CompactedTopic", Topic)
    return records


def resumes(site, **asked):
    found = translate_groups(site, site.flow, **asked)
    return [(each.group, each.at.upstream_offset, each.at.downstream_offset) for each in found]


def test_each_group_resumes_at_its_next_record(site):
    commit(site, "audit", 10)

    assert resumes(site) == [("audit", 10, 3), ("billing", 12, 6)]
    assert resumes(site, group="audit") == [("audit", 10, 3)]


def test_a_group_ahead_of_replication_resumes_at_the_end_of_what_arrived(site):
    commit(site, "billing", 99, at=2)

    assert resumes(site) == [("billing", 99, 8)]


def test_a_group_is_translated_as_of_a_past_snapshot(site):
    commit(site, "billing", 15, at=20)

    assert resumes(site, as_of_ms=19) == [("billing", 12, 6)]
    assert resumes(site, as_of_ms=20) == [("billing", 15, 7)]


def test_offsets_of_a_topics_former_life_are_translated_by_that_lifes_runs(site):
    replay(site, (0, 8, 20), incarnation="life2", at=2)

    assert resumes(site) == [("billing", 12, 6)]


def test_a_commit_in_a_life_of_which_nothing_arrived_has_no_answer_yet(site):
    commit(site, "billing", 2, topic_id="life2", at=2)

    assert resumes(site) == [("billing", 2, None)]
    assert write_checkpoints(site, site.flow) == []


def test_a_checkpoint_is_written_when_it_changes_and_only_then(site):
    assert [row["downstream_offset"] for row in write_checkpoints(site, site.flow)] == [6]
    assert write_checkpoints(site, site.flow) == []

    commit(site, "billing", 15, at=2)

    assert [row["downstream_offset"] for row in write_checkpoints(site, site.flow)] == [7]
    assert site.lake.of_flow(FLOW, CHECKPOINTS).rows().num_rows == 2


def test_what_a_group_keeps_beside_its_offset_is_an_answer_too(site):
    write_checkpoints(site, site.flow)
    commit(site, "billing", 12, at=2, metadata="later")

    (row,) = write_checkpoints(site, site.flow)

    assert (row["downstream_offset"], row["metadata"]) == (6, "later")


def test_a_group_that_goes_back_is_checkpointed_back(site):
    write_checkpoints(site, site.flow)
    commit(site, "billing", 10, at=2)

    assert [row["downstream_offset"] for row in write_checkpoints(site, site.flow)] == [3]


def test_checkpoints_are_told_to_the_target_under_the_remote_topics_name(lake, emitted):
    site = FakeSite(lake, emit_checkpoints_interval_s=60.0)
    replay(site, (10, 3, 2))
    commit(site, "billing", 11, metadata="AgAAAYvP5WgA")

    write_checkpoints(site, site.flow)

    checkpoint = Checkpoint("billing", "us-east.orders", 0, 11, 4, "AgAAAYvP5WgA")
    assert emitted == [(checkpoint.key, checkpoint.value)]


def test_without_emit_checkpoints_nothing_is_told(site, emitted):
    write_checkpoints(site, site.flow)

    assert emitted == []


def test_what_could_not_be_told_is_told_again(lake, monkeypatch):
    site = FakeSite(lake, emit_checkpoints_interval_s=60.0)
    replay(site, (10, 3, 2))
    commit(site, "billing", 11)

    def fail(*_):
        raise LakeError("down")

    monkeypatch.setattr(module, "_emit", fail)
    with pytest.raises(LakeError):
        write_checkpoints(site, site.flow)

    monkeypatch.setattr(module, "_emit", lambda *_: None)
    assert len(write_checkpoints(site, site.flow)) == 1


def test_a_map_that_contradicts_itself_is_an_error_with_the_numbers(site):
    replay(site, (10, 9, 3))

    with pytest.raises(LakeError, match=r"us-east->eu-west contradicts itself: orders\[0\]"):
        map_index(site, FLOW)


# What applying it would do


def test_a_plan_shows_what_is_there_and_what_would_be_set(site):
    site.target.offsets["billing"] = {REMOTE: 3}

    (plan,) = plan_groups(site, site.flow)

    (at,) = plan.partitions
    assert (plan.group, plan.is_idle) == ("billing", True)
    assert (at.action, at.current, at.resumes_at, at.records_gone) == ("set", 3, 6, 0)


def test_a_plan_keeps_what_is_right_already(site):
    site.target.offsets["billing"] = {REMOTE: 6}

    assert plan_groups(site, site.flow)[0].partitions[0].action == "keep"


def test_an_offset_below_the_targets_log_start_is_raised_and_the_records_gone_are_counted(site):
    commit(site, "billing", 10, at=2)
    site.target.hold(REMOTE, 8, low=6)

    (at,) = plan_groups(site, site.flow)[0].partitions

    assert (at.resumes_at, at.records_gone) == (6, 2)


def test_a_partition_of_which_nothing_arrived_waits(site):
    commit(site, "billing", 5, partition=TopicPartition("orders", 1))

    waiting = plan_groups(site, site.flow)[0].partitions[1]

    assert (waiting.action, waiting.resumes_at) == ("wait", None)


def test_a_group_with_members_on_the_target_is_not_idle(site):
    site.target.offsets["billing"] = {REMOTE: 3}
    site.target.states["billing"] = "STABLE"

    assert not plan_groups(site, site.flow)[0].is_idle
    assert not plan_groups(site, site.flow, group="nobody")
