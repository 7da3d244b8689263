"""The places of a configuration are made when they are asked for, and once."""

import pytest

from deltamirror.context import MirrorContext
from schemas.errors import ConfigError
from tests.support.lake import config


def test_a_cluster_is_one_object_for_all_who_ask(lake):
    context = MirrorContext(config(lake))

    assert context.cluster("us-east") is context.cluster("us-east")
    assert context.cluster("us-east") is not context.cluster("eu-west")


def test_to_name_a_place_makes_nothing(lake):
    MirrorContext(config(lake)).cluster("us-east")

    assert not lake.exists()


def test_an_unknown_cluster_is_wrong_usage_that_names_the_known(lake):
    with pytest.raises(ConfigError, match=r"no cluster mars \(clusters: us-east, eu-west\)"):
        MirrorContext(config(lake)).cluster("mars")
