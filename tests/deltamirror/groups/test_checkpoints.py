"""Translate groups' committed offsets exactly, write checkpoints, and plan groups."""

import pytest

from deltamirror.groups import checkpoints as module
from deltamirror.groups.checkpoints import map_index, translate_groups, write_checkpoints
from deltamirror.groups.plan import plan_groups
from schemas.errors.lake import LakeError
from schemas.kafka.partition import TopicPartition
from schemas.mm2.records import Checkpoint
from schemas.tables import CHECKPOINTS
from tests.support.lake import FLOW, REMOTE, ScriptedContext, commit, replay
from tests.support.table_files import paths_by_age


@pytest.fixture
def context(lake):
    """Return a context in which 10, 11, 14, 15 are mapped to 3, 4, 6, 7; billing committed 12."""
    context = ScriptedContext(lake)
    replay(context, (10, 3, 2), (14, 6, 2))
    commit(context, "billing", 12)
    context.target.hold(REMOTE, 8)
    return context


@pytest.fixture
def emitted(monkeypatch):
    """Return the list of records written to the target's checkpoints topic."""
    records = []

    class Topic:
        def __init__(self, cluster, name, settings):
            assert (cluster.alias, name) == ("eu-west", "us-east.checkpoints.internal")

        def ensure_exists(self, replication_factor):
            pass

        def write(self, some):
            records.extend(some)

    monkeypatch.setattr(module, "CompactedTopic", Topic)
    return records


def resumes(context, **selection):
    found, _ = translate_groups(context, context.flow, **selection)
    return [(each.group, each.at.upstream_offset, each.at.downstream_offset) for each in found]


def test_each_group_resumes_at_its_next_record(context):
    commit(context, "audit", 10)

    assert resumes(context) == [("audit", 10, 3), ("billing", 12, 6)]
    assert resumes(context, group="audit") == [("audit", 10, 3)]


def test_a_group_ahead_of_replication_resumes_at_the_end_of_what_arrived(context):
    commit(context, "billing", 99, at=2)

    assert resumes(context) == [("billing", 99, 8)]


def test_a_group_is_translated_as_of_a_past_snapshot(context):
    commit(context, "billing", 15, at=20)

    assert resumes(context, as_of_ms=19) == [("billing", 12, 6)]
    assert resumes(context, as_of_ms=20) == [("billing", 15, 7)]


def test_a_commit_in_an_earlier_incarnation_is_translated_with_the_runs_of_that_incarnation(
    context,
):
    replay(context, (0, 8, 20), incarnation="life2", at=2)

    assert resumes(context) == [("billing", 12, 6)]


def test_a_commit_in_an_incarnation_that_has_not_arrived_has_no_downstream_offset(context):
    commit(context, "billing", 2, topic_id="life2", at=2)

    assert resumes(context) == [("billing", 2, None)]
    assert write_checkpoints(context, context.flow) == []


def test_groups_are_translated_without_the_files_before_their_commits(context):
    for at in range(2, 5):
        replay(context, (at * 10, at * 10, 4), at=at)
    commit(context, "billing", 31, at=2)
    commit(context, "audit", 99, at=2)
    oldest, second, *_ = paths_by_age(context.lake.offset_map(FLOW))
    oldest.unlink()
    second.unlink()

    assert resumes(context) == [("audit", 99, 44), ("billing", 31, 31)]
    with pytest.raises(LakeError, match="offset_map cannot be read"):
        map_index(context, context.flow)


def test_a_group_that_is_far_behind_is_translated_with_the_whole_map(context):
    for at in range(2, 5):
        replay(context, (at * 10, at * 10, 4), at=at)
    commit(context, "audit", 43)

    assert resumes(context) == [("audit", 43, 43), ("billing", 12, 6)]


def test_a_checkpoint_is_written_only_when_it_changes(context):
    assert [row["downstream_offset"] for row in write_checkpoints(context, context.flow)] == [6]
    assert write_checkpoints(context, context.flow) == []

    commit(context, "billing", 15, at=2)

    assert [row["downstream_offset"] for row in write_checkpoints(context, context.flow)] == [7]
    assert context.lake.flow_table(FLOW, CHECKPOINTS).rows().num_rows == 2


def test_a_changed_commit_metadata_is_a_new_checkpoint(context):
    write_checkpoints(context, context.flow)
    commit(context, "billing", 12, at=2, metadata="later")

    (row,) = write_checkpoints(context, context.flow)

    assert (row["downstream_offset"], row["metadata"]) == (6, "later")


def test_a_group_that_moves_back_gets_an_earlier_checkpoint(context):
    write_checkpoints(context, context.flow)
    commit(context, "billing", 10, at=2)

    assert [row["downstream_offset"] for row in write_checkpoints(context, context.flow)] == [3]


def test_checkpoints_are_emitted_with_the_name_of_the_remote_topic(lake, emitted):
    context = ScriptedContext(lake, emit_checkpoints_interval_s=60.0)
    replay(context, (10, 3, 2))
    commit(context, "billing", 11, metadata="AgAAAYvP5WgA")

    write_checkpoints(context, context.flow)

    checkpoint = Checkpoint("billing", "us-east.orders", 0, 11, 4, "AgAAAYvP5WgA")
    assert emitted == [(checkpoint.key, checkpoint.value)]


def test_without_emit_checkpoints_nothing_is_emitted(context, emitted):
    write_checkpoints(context, context.flow)

    assert emitted == []


def test_checkpoints_whose_emit_failed_are_written_again(lake, monkeypatch):
    context = ScriptedContext(lake, emit_checkpoints_interval_s=60.0)
    replay(context, (10, 3, 2))
    commit(context, "billing", 11)

    def fail(*_):
        raise LakeError("down")

    monkeypatch.setattr(module, "_emit", fail)
    with pytest.raises(LakeError):
        write_checkpoints(context, context.flow)

    monkeypatch.setattr(module, "_emit", lambda *_: None)
    assert len(write_checkpoints(context, context.flow)) == 1


def test_a_map_that_contradicts_itself_is_an_error_with_the_numbers(context):
    replay(context, (10, 9, 3))

    with pytest.raises(LakeError, match=r"us-east->eu-west contradicts itself: orders\[0\]"):
        map_index(context, context.flow)


# Plans


def test_a_plan_shows_the_current_and_the_planned_offset(context):
    context.target.offsets["billing"] = {REMOTE: 3}

    (plan,) = plan_groups(context, context.flow)

    (at,) = plan.partitions
    assert (plan.group, plan.is_idle) == ("billing", True)
    assert (at.action, at.current, at.resumes_at, at.records_gone) == ("set", 3, 6, 0)


def test_a_plan_keeps_a_correct_offset(context):
    context.target.offsets["billing"] = {REMOTE: 6}

    assert plan_groups(context, context.flow)[0].partitions[0].action == "keep"


def test_an_offset_below_the_target_log_start_is_raised_and_the_expired_records_are_counted(
    context,
):
    commit(context, "billing", 10, at=2)
    context.target.hold(REMOTE, 8, low=6)

    (at,) = plan_groups(context, context.flow)[0].partitions

    assert (at.resumes_at, at.records_gone) == (6, 2)


def test_a_partition_that_has_not_arrived_waits(context):
    commit(context, "billing", 5, partition=TopicPartition("orders", 1))

    waiting = plan_groups(context, context.flow)[0].partitions[1]

    assert (waiting.action, waiting.resumes_at) == ("wait", None)


def test_a_group_with_members_on_the_target_is_not_idle(context):
    context.target.offsets["billing"] = {REMOTE: 3}
    context.target.states["billing"] = "STABLE"

    assert not plan_groups(context, context.flow)[0].is_idle
    assert not plan_groups(context, context.flow, group="unknown")
