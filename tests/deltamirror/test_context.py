"""Create the clusters of a configuration on first use, once."""

import pytest

from deltamirror.context import MirrorContext
from schemas.errors.base import ConfigError
from tests.support.lake import config


def test_a_cluster_is_the_same_object_for_all_callers(lake):
    context = MirrorContext(config(lake))

    assert context.cluster("us-east") is context.cluster("us-east")
    assert context.cluster("us-east") is not context.cluster("eu-west")


def test_a_context_creates_no_files(lake):
    MirrorContext(config(lake)).cluster("us-east")

    assert not lake.exists()


def test_an_unknown_cluster_is_a_configuration_error_that_names_the_known_ones(lake):
    with pytest.raises(ConfigError, match=r"no cluster mars \(clusters: us-east, eu-west\)"):
        MirrorContext(config(lake)).cluster("mars")
