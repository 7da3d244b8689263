"""Which chores a run has, in which threads."""

from deltamirror.run.background import periodic_tasks
from tests.support.lake import ScriptedContext


def test_each_flow_syncs_settings_and_acls_of_its_topics_in_its_own_thread(lake):
    context = ScriptedContext(
        lake, sync_topic_configs_interval_s=600.0, sync_topic_acls_interval_s=60.0
    )

    chores = periodic_tasks(context, context.config.flows, ())["topics of us-east->eu-west"]

    assert [(chore.name, chore.interval_s, chore.initial_delay_s) for chore in chores] == [
        ("topic settings of us-east->eu-west", 600.0, 0.0),
        ("topic ACLs of us-east->eu-west", 60.0, 0.0),
    ]


def test_a_flow_that_syncs_neither_settings_nor_acls_has_no_thread_for_topics(lake):
    context = ScriptedContext(lake)

    assert periodic_tasks(context, context.config.flows, ()).keys() == {"groups of us-east"}
