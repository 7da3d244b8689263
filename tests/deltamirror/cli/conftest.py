"""What tests of commands share."""

import pytest

from deltamirror import context as site_module
from deltamirror.cli.app import Console
from tests.support.lake import ORDERS, REMOTE, FakeSite, commit, config, replay, stage


@pytest.fixture
def asked_site(lake, monkeypatch):
    """A flow that is halfway, asked by commands instead of what a file would name."""
    site = FakeSite(lake)
    site.source.hold(ORDERS, 20)
    site.target.hold(REMOTE, 8)
    site.target.progress(REMOTE, 16)
    stage(site, ORDERS, 0, 18)
    replay(site, (10, 3, 2), (14, 6, 2))
    commit(site, "billing", 12, at=1_000)
    monkeypatch.setattr(Console, "config", lambda self: config(lake))
    monkeypatch.setattr(site_module, "Site", lambda _: site)
    monkeypatch.setattr(site, "close", lambda: None)
    return site
