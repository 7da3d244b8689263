"""Fixtures of the acceptance tests: two clusters, one secured, and MirrorMaker 2's tools."""

from __future__ import annotations

import pytest

from demo.kafka.brokers import Broker, running_brokers
from tests.stories.mm2.acceptance.cluster_pair import VARIANTS, ClusterPair
from tests.support.mm2_java_classes import mm2_tools
from tests.support.secured_broker import Certificates, SecuredBroker


@pytest.fixture(scope="package")
def clusters(tmp_path_factory):
    home = tmp_path_factory.mktemp("acceptance")
    certificates = Certificates.make(home / "certificates")
    primary = Broker("primary", home / "primary")
    backup = SecuredBroker("backup", home / "backup", certificates)
    with running_brokers(primary, backup):
        yield {"primary": primary, "backup": backup}


@pytest.fixture(scope="package")
def tools():
    with mm2_tools() as gateway:
        yield gateway


@pytest.fixture(params=VARIANTS)
def pair(request, tmp_path, clusters):
    return ClusterPair(tmp_path, clusters, request.param)


@pytest.fixture(params=["default", "tls"])
def either(request, tmp_path, clusters):
    """A pair whose target is reached by plaintext or by TLS."""
    return ClusterPair(tmp_path, clusters, request.param)


@pytest.fixture
def plain(tmp_path, clusters):
    return ClusterPair(tmp_path, clusters, "default")
