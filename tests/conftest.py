"""What tests share: two real Kafka clusters, started at first use, a lake, unused names."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from hypothesis import settings

from demo.kafka.brokers import Broker, running_brokers

# How long one example takes says nothing on a busy machine; pytest's own limit bounds the whole.
settings.register_profile("deltamirror", deadline=None)
settings.load_profile("deltamirror")

_RUN = f"{os.getpid():x}"
_COUNTER = count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give stories the longer limit, unless they name one of their own."""
    for item in items:
        if item.get_closest_marker("story") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, Broker]]:
    """Source and target, started side by side by the first test that needs one."""
    home = tmp_path_factory.mktemp("kafka")
    both = Broker("source", home / "source"), Broker("target", home / "target")
    with running_brokers(*both):
        yield both


@pytest.fixture
def source(clusters: tuple[Broker, Broker]) -> Broker:
    """The cluster records come from. Shared: a test that kills or freezes it starts it again."""
    return clusters[0].start()


@pytest.fixture
def target(clusters: tuple[Broker, Broker]) -> Broker:
    """The cluster records go to. Shared: a test that kills or freezes it starts it again."""
    return clusters[1].start()


@pytest.fixture
def make_broker(tmp_path: Path) -> Iterator[Callable[..., Broker]]:
    """Start a broker for this test alone: `make_broker("east", properties={...})`."""
    made: list[Broker] = []

    def make(name: str, **options: object) -> Broker:
        made.append(Broker(name, tmp_path / name, **options))
        return made[-1].start()

    yield make
    for broker in made:
        broker.kill()


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """An empty place for a lake; nothing is there yet."""
    return tmp_path / "lake"


@pytest.fixture
def names(request: pytest.FixtureRequest) -> Callable[..., str]:
    """Unused names on the shared brokers: `names("orders")`, the same for the same word.

    For topics, groups and transactional ids. They begin with the word, so that a regular
    expression such as `orders-.*` would meet other tests' topics: use the whole name.
    """
    mark = f"{_RUN}-{next(_COUNTER)}"
    test = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name)[:40].strip("-").lower()

    def name(word: str = "topic") -> str:
        return f"{word}-{test}-{mark}"

    return name


@pytest.fixture
def unique_topic(names: Callable[..., str]) -> str:
    """An unused topic name."""
    return names("topic")
