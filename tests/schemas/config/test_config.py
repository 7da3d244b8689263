import pickle

import pytest

from schemas.config.config import ClusterConfig, Config, FlowConfig
from schemas.config.flow import Flow
from schemas.errors.configuration import UnknownFlowError
from schemas.mm2.name_filter import NameFilter
from schemas.mm2.replication_policy import DefaultPolicy

TOPICS = NameFilter((".*",), ("__.*", ".*heartbeats"))
SECRET = {"sasl.password": "hunter2"}


def flow(name="A->B", **more):
    return FlowConfig(
        flow=Flow.parse(name),
        topics=TOPICS,
        groups=NameFilter(),
        policy=DefaultPolicy(),
        replication_factor=1,
        producer=SECRET,
        refresh_topics_interval_s=None,
        emit_checkpoints_interval_s=None,
        config_properties_exclude=NameFilter(()),
        **more,
    )


def config(*flows):
    clusters = {a: ClusterConfig(a, "localhost:1", SECRET, SECRET, SECRET) for a in "AB"}
    return Config(clusters, flows, "/lake", 2)


@pytest.mark.parametrize(
    ("topic", "replicated"),
    [
        pytest.param("orders", True, id="a topic"),
        pytest.param("C.orders", True, id="a topic of a third cluster"),
        pytest.param("B.orders", False, id="a topic from the target"),
        pytest.param("C.B.orders", False, id="a topic from the target via C"),
        pytest.param("A.checkpoints.internal", False, id="an internal topic"),
        pytest.param("__consumer_offsets", False, id="an excluded topic"),
        pytest.param("heartbeats", True, id="heartbeats, even if the filter excludes them"),
    ],
)
def test_a_flow_replicates_the_topics_that_mirrormaker_2_would(topic, replicated):
    assert flow().replicates(topic) is replicated


def test_the_topic_filter_applies_to_heartbeats_if_configured():
    assert not flow(heartbeats_replication=False).replicates("heartbeats")


def test_a_pickled_config_is_equal_to_the_original():
    before = config(flow())

    assert pickle.loads(pickle.dumps(before)) == before


def test_a_repr_shows_no_secret():
    assert "hunter2" not in repr(config(flow()))


def test_a_flow_is_found_by_its_name():
    wanted = flow("B->A")

    assert config(flow(), wanted).flow("B->A") is wanted


def test_an_unknown_flow_is_an_error_that_names_the_known_ones():
    with pytest.raises(UnknownFlowError) as error:
        config(flow()).flow("A->C")

    assert "A->C" in str(error.value)
    assert "A->B" in error.value.hint


def test_a_cluster_with_two_flows_is_one_source():
    assert config(flow("A->B"), flow("A->C"), flow("B->A")).sources() == ("A", "B")
