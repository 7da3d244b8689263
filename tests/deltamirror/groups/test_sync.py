"""Sync committed offsets to groups that are inactive on the target."""

import pytest

from deltamirror.groups.sync import sync_groups
from deltamirror.run.background import periodic_tasks
from schemas.errors.base import RequestRefusedError
from tests.support.lake import REMOTE, ScriptedContext, commit, replay


@pytest.fixture
def context(lake):
    """Return a context in which 10, 11, 14, 15 are mapped to 3, 4, 6, 7; billing committed 12."""
    context = ScriptedContext(lake)
    replay(context, (10, 3, 2), (14, 6, 2))
    commit(context, "billing", 12, metadata="AgAAAYvP5WgA")
    context.target.hold(REMOTE, 8)
    return context


def test_a_group_that_is_new_to_the_target_is_set_with_its_metadata(context):
    assert sync_groups(context, context.flow).moved == {"billing": 1}

    assert context.target.group_commits("billing") == {REMOTE: (6, "AgAAAYvP5WgA")}
    assert sync_groups(context, context.flow).moved == {}


def test_groups_are_moved_forward_and_never_back(context):
    commit(context, "audit", 10)
    context.target.offsets |= {"billing": {REMOTE: 3}, "audit": {REMOTE: 4}}

    assert sync_groups(context, context.flow).moved == {"billing": 1}

    assert context.target.offsets == {"billing": {REMOTE: 6}, "audit": {REMOTE: 4}}


def test_a_group_with_members_is_not_changed(context):
    context.target.offsets["billing"] = {REMOTE: 3}
    context.target.states["billing"] = "STABLE"

    assert sync_groups(context, context.flow).active == ["billing"]
    assert context.target.offsets["billing"] == {REMOTE: 3}


def test_a_group_that_became_active_after_the_plan_was_made_is_not_changed(context, monkeypatch):
    monkeypatch.setattr(context.target, "groups", dict)
    context.target.states["billing"] = "STABLE"
    context.target.offsets["billing"] = {}

    assert sync_groups(context, context.flow).active == ["billing"]


def test_a_group_that_committed_after_the_plan_was_made_is_not_moved_back(context, monkeypatch):
    monkeypatch.setattr(context.target, "groups", dict)
    context.target.offsets["billing"] = {REMOTE: 7}

    assert sync_groups(context, context.flow).moved == {}
    assert context.target.offsets["billing"] == {REMOTE: 7}


def test_a_refused_group_does_not_stop_the_other_groups(context, monkeypatch):
    commit(context, "audit", 10)
    ask = context.target.commit_offsets

    def refuse(group, offsets):
        if group == "audit":
            raise RequestRefusedError(
                "eu-west", action=f"set offsets of group {group}", code="X", reason="no"
            )
        ask(group, offsets)

    monkeypatch.setattr(context.target, "commit_offsets", refuse)
    context.target.offsets |= {"billing": {}, "audit": {}}

    done = sync_groups(context, context.flow)

    assert (done.moved, done.refused) == ({"billing": 1}, ["audit"])


def test_a_flow_syncs_groups_after_snapshots_and_checkpoints(lake):
    def named(**flow):
        context = ScriptedContext(lake, **flow)
        (tasks,) = periodic_tasks(context, context.config.flows, ()).values()
        return {task.name: task.interval_s for task in tasks}

    seen = {"groups of us-east": 60, "checkpoints of us-east->eu-west": 60}
    measured = {"lag of us-east->eu-west": 60}
    synced = {"group offsets of us-east->eu-west": 90}
    assert named() == seen | measured
    assert named(sync_group_offsets_interval_s=90.0) == seen | measured | synced
    assert list(named(sync_group_offsets_interval_s=5.0).values()) == [5, 5, 60, 5]
