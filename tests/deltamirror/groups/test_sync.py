"""Groups of the target follow those of the source, where nobody uses them."""

import pytest

from deltamirror.groups.sync import sync_groups
from deltamirror.run.background import periodic_tasks
from schemas.errors import RequestRefusedError
from tests.support.lake import REMOTE, ScriptedContext, commit, replay


@pytest.fixture
def context(lake):
    """Records 10, 11, 14 and 15 went to 3, 4, 6 and 7; billing reads 12 next."""
    context = ScriptedContext(lake)
    replay(context, (10, 3, 2), (14, 6, 2))
    commit(context, "billing", 12, metadata="AgAAAYvP5WgA")
    context.target.hold(REMOTE, 8)
    return context


def test_a_group_that_the_target_does_not_know_is_set_with_its_metadata(context):
    assert sync_groups(context, context.flow).moved == {"billing": 1}

    assert context.target.group_commits("billing") == {REMOTE: (6, "AgAAAYvP5WgA")}
    assert sync_groups(context, context.flow).moved == {}


def test_a_group_that_is_behind_is_moved_forward_and_one_that_is_ahead_is_not_moved_back(context):
    commit(context, "audit", 10)
    context.target.offsets |= {"billing": {REMOTE: 3}, "audit": {REMOTE: 4}}

    assert sync_groups(context, context.flow).moved == {"billing": 1}

    assert context.target.offsets == {"billing": {REMOTE: 6}, "audit": {REMOTE: 4}}


def test_a_group_with_members_is_left_alone(context):
    context.target.offsets["billing"] = {REMOTE: 3}
    context.target.states["billing"] = "STABLE"

    assert sync_groups(context, context.flow).active == ["billing"]
    assert context.target.offsets["billing"] == {REMOTE: 3}


def test_a_group_that_has_come_to_life_since_it_was_looked_at_is_left_alone(context, monkeypatch):
    monkeypatch.setattr(context.target, "groups", dict)
    context.target.states["billing"] = "STABLE"
    context.target.offsets["billing"] = {}

    assert sync_groups(context, context.flow).active == ["billing"]


def test_a_group_that_was_at_work_since_it_was_looked_at_is_not_moved_back(context, monkeypatch):
    monkeypatch.setattr(context.target, "groups", dict)
    context.target.offsets["billing"] = {REMOTE: 7}

    assert sync_groups(context, context.flow).moved == {}
    assert context.target.offsets["billing"] == {REMOTE: 7}


def test_a_group_that_the_target_refuses_stops_no_other(context, monkeypatch):
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


def test_a_flow_syncs_its_groups_after_it_has_seen_and_translated_them(lake):
    def named(**flow):
        context = ScriptedContext(lake, **flow)
        (chores,) = periodic_tasks(context, context.config.flows, ()).values()
        return {chore.name: chore.interval_s for chore in chores}

    seen = {"groups of us-east": 60, "checkpoints of us-east->eu-west": 60}
    measured = {"lag of us-east->eu-west": 60}
    synced = {"group offsets of us-east->eu-west": 90}
    assert named() == seen | measured
    assert named(sync_group_offsets_interval_s=90.0) == seen | measured | synced
    assert list(named(sync_group_offsets_interval_s=5.0).values()) == [5, 5, 5, 5]
