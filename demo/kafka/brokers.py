"""Start and stop several local Kafka brokers for the demo and the tests."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from demo.kafka.broker import Broker

__all__ = ["Broker", "brokers", "running_brokers", "start_brokers", "stop_brokers"]

# Python warns if a Popen object is deleted while its process runs.
_left_running: list[Broker] = []


def start_brokers(names: Sequence[str], home: Path) -> dict[str, str]:
    """Start a broker for each of *names* in *home* and leave them running after this process.

    Return the bootstrap servers by name. A running broker is left as it is. Raises
    BrokerStartError; the other brokers stay up until `stop_brokers`.
    """
    brokers = [Broker(name, home / name) for name in names]
    _left_running.extend(brokers)
    with ThreadPoolExecutor(max_workers=max(1, len(brokers))) as starters:
        list(starters.map(Broker.start, brokers))
    return {broker.name: broker.bootstrap_servers for broker in brokers}


def stop_brokers(home: Path, *, forget: bool = False) -> list[str]:
    """Stop every broker that `start_brokers` started in *home* and return their names.

    Their data stays for the next `start_brokers`, unless *forget*. Raises BrokerStopError.
    """
    stopped = []
    for broker in brokers(home):
        if broker.pid is not None:
            broker.stop()
            stopped.append(broker.name)
        if forget:
            shutil.rmtree(broker.home)
    return stopped


def brokers(home: Path) -> list[Broker]:
    """Return all brokers with a folder in *home*, running or not, sorted by name."""
    return [Broker(file.parent.name, file.parent) for file in sorted(home.glob("*/broker.json"))]


@contextlib.contextmanager
def running_brokers(*started: Broker) -> Iterator[None]:
    """Start brokers concurrently; kill them when the block ends, also after an error."""
    try:
        with ThreadPoolExecutor(max_workers=max(1, len(started))) as starters:
            list(starters.map(Broker.start, started))
        yield
    finally:
        for broker in started:
            broker.kill()
