"""Fixtures of the tests of commands."""

import pytest

from deltamirror import context as site_module
from deltamirror.cli.app import Console
from tests.support.lake import ORDERS, REMOTE, ScriptedContext, commit, config, replay, stage


@pytest.fixture
def halfway_context(lake, monkeypatch):
    """A flow that is halfway replayed; commands use its context instead of a file's."""
    context = ScriptedContext(lake)
    context.source.hold(ORDERS, 20)
    context.target.hold(REMOTE, 8)
    context.target.progress(REMOTE, 16)
    stage(context, ORDERS, 0, 18)
    replay(context, (10, 3, 2), (14, 6, 2))
    commit(context, "billing", 12, at=1_000)
    monkeypatch.setattr(Console, "config", lambda self: config(lake))
    monkeypatch.setattr(site_module, "MirrorContext", lambda _: context)
    monkeypatch.setattr(context, "close", lambda: None)
    return context
