from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.topics.configs import (
    UNCHANGED_TIMESTAMPS,
    AlterTopic,
    configs_for_creation,
    plan_topic_settings,
)
from schemas.kafka.topic import ConfigValue
from schemas.mm2.name_filter import NameFilter
from tests.support.lake import config

FLOW = replace(
    config("lake").flows[0], config_properties_exclude=NameFilter(("min.insync.replicas",))
)
WITH_SOURCE_DEFAULTS = replace(FLOW, uses_source_defaults=True)

SOURCES = (
    "DYNAMIC_TOPIC_CONFIG",
    "DYNAMIC_BROKER_CONFIG",
    "DYNAMIC_DEFAULT_BROKER_CONFIG",
    "STATIC_BROKER_CONFIG",
    "DEFAULT_CONFIG",
)


def says(value, source="DYNAMIC_TOPIC_CONFIG", **kind):
    flags = {"is_read_only": False, "is_sensitive": False} | kind
    return ConfigValue(value, source, is_default=source == "DEFAULT_CONFIG", **flags)


DEFAULT = says("604800000", "DEFAULT_CONFIG")


def change(here, there, flow=FLOW, name="retention.ms"):
    """Return the planned change of one config: *here* on the source, *there* on the target."""
    steps = plan_topic_settings(flow, {"orders": {name: here}}, {"us-east.orders": {name: there}})
    return [dict(step.configs) for step in steps]


@pytest.mark.parametrize(
    ("here", "there"),
    [
        pytest.param(says("1000"), says("2000"), id="another value on the target"),
        pytest.param(
            says("1000"), says("1000", "DEFAULT_CONFIG"), id="equal to the target's default"
        ),
        pytest.param(
            says("1000", "DYNAMIC_DEFAULT_BROKER_CONFIG"),
            DEFAULT,
            id="set for all brokers of the source",
        ),
        pytest.param(
            says("1000", "DYNAMIC_BROKER_CONFIG"), DEFAULT, id="set for a broker of the source"
        ),
    ],
)
def test_configs_set_on_the_source_are_set_on_the_remote_topic(here, there):
    assert change(here, there) == [{"retention.ms": "1000"}]


def test_configs_with_the_sources_default_get_the_targets_default():
    assert change(DEFAULT, says("2000")) == [{"retention.ms": None}]


def test_with_use_defaults_from_source_the_sources_default_is_set_on_the_remote_topic():
    assert change(DEFAULT, says("2000"), WITH_SOURCE_DEFAULTS) == [{"retention.ms": "604800000"}]
    assert configs_for_creation(WITH_SOURCE_DEFAULTS, {"retention.ms": DEFAULT}) == {
        "retention.ms": "604800000",
        **UNCHANGED_TIMESTAMPS,
    }


@pytest.mark.parametrize(
    ("here", "there"),
    [
        pytest.param(says("1000"), says("1000"), id="equal on both sides"),
        pytest.param(DEFAULT, says("5", "DEFAULT_CONFIG"), id="a default on both sides"),
        pytest.param(
            DEFAULT, says("5", "STATIC_BROKER_CONFIG"), id="in a broker's file on the target"
        ),
        pytest.param(
            says("1", "STATIC_BROKER_CONFIG"), says("2"), id="in a broker's file on the source"
        ),
        pytest.param(says("1", is_read_only=True), says("2"), id="read-only"),
        pytest.param(says(None, is_sensitive=True), says("2"), id="sensitive"),
    ],
)
def test_configs_that_are_equal_or_not_synced_are_not_changed(here, there):
    assert change(here, there) == []


def test_an_excluded_config_is_not_changed():
    assert change(says("2"), says("1"), name="min.insync.replicas") == []


@pytest.mark.parametrize("name", UNCHANGED_TIMESTAMPS)
@pytest.mark.parametrize("flow", [FLOW, WITH_SOURCE_DEFAULTS])
def test_timestamp_configs_are_never_changed(name, flow):
    assert change(says("LogAppendTime"), says("CreateTime"), flow, name) == []
    assert change(says("1", "DEFAULT_CONFIG"), says("2"), flow, name) == []


def test_a_change_has_the_value_before_and_after():
    source = {"orders": {"retention.ms": says("1000"), "segment.bytes": DEFAULT}}
    target = {"us-east.orders": {"retention.ms": DEFAULT, "segment.bytes": says("99")}}

    assert plan_topic_settings(FLOW, source, target) == [
        AlterTopic(
            "us-east.orders",
            "orders",
            {"retention.ms": "1000", "segment.bytes": None},
            {"retention.ms": "604800000", "segment.bytes": "99"},
        )
    ]


def test_topics_that_exist_on_one_side_only_are_not_changed():
    own = {"retention.ms": says("1000")}

    assert plan_topic_settings(FLOW, {"orders": own}, {"us-east.flights": own}) == []


NAMES = st.sampled_from(["a", "b", "c", "min.insync.replicas", *UNCHANGED_TIMESTAMPS])
SETTINGS = st.dictionaries(
    NAMES, st.builds(says, st.sampled_from(["1", "2"]), st.sampled_from(SOURCES))
)


def own_settings(configs):
    return {n: c.value for n, c in configs.items() if c.source == "DYNAMIC_TOPIC_CONFIG"}


def after_mirrormaker(flow, here, own):
    """Return the configs set on a remote topic after MirrorMaker 2's sync."""
    own = dict(own)
    for name, setting in here.items():
        if setting.source == "STATIC_BROKER_CONFIG" or name == "min.insync.replicas":
            continue
        if setting.is_default and not flow.uses_source_defaults:
            own.pop(name, None)
        else:
            own[name] = setting.value
    return own


@given(SETTINGS, SETTINGS, st.sampled_from([FLOW, WITH_SOURCE_DEFAULTS]))
def test_synced_configs_equal_mirrormaker_2s_except_timestamp_configs(here, there, flow):
    own = own_settings(there)
    for step in plan_topic_settings(flow, {"orders": here}, {"us-east.orders": there}):
        own = {n: v for n, v in {**own, **step.configs}.items() if v is not None}

    theirs = after_mirrormaker(flow, here, own_settings(there))
    timestamps = {n: v for n, v in own_settings(there).items() if n in UNCHANGED_TIMESTAMPS}
    others = {n: v for n, v in theirs.items() if n not in UNCHANGED_TIMESTAMPS}
    assert own == others | timestamps
