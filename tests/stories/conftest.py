"""What stories share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from demo.kafka.brokers import Broker
from tests.support.world import World


@pytest.fixture
def world(tmp_path: Path, source: Broker, target: Broker) -> Iterator[Callable[..., World]]:
    """Make a world that mirrors the named topics: `world("orders-x", **{"key": "value"})`."""
    made: list[World] = []

    def make(*topics: str, **extra: str) -> World:
        made.append(World(tmp_path, source, target, topics, extra))
        return made[-1]

    yield make
    for each in made:
        each.end()
