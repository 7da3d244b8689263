"""The places of a configuration are made when they are asked for, and once."""

import pytest

from deltamirror.context import Site
from schemas.errors import ConfigError
from tests.support.lake import config


def test_a_cluster_is_one_object_for_all_who_ask(lake):
    site = Site(config(lake))

    assert site.cluster("us-east") is site.cluster("us-east")
    assert site.cluster("us-east") is not site.cluster("eu-west")


def test_to_name_a_place_makes_nothing(lake):
    Site(config(lake)).cluster("us-east")

    assert not lake.exists()


def test_an_unknown_cluster_is_wrong_usage_that_names_the_known(lake):
    with pytest.raises(ConfigError, match=r"no cluster mars \(clusters: us-east, eu-west\)"):
        Site(config(lake)).cluster("mars")
