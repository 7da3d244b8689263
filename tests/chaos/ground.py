"""Two clusters behind proxies, topics of different widths, and the file that mirrors them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewPartitions

from demo.kafka.brokers import Broker, running_brokers
from demo.kafka.processes import free_ports
from tests.chaos.proxy import HOST, Proxy
from tests.support.brokers import ANSWER_SECONDS, create_topic
from tests.support.world import World

TOPICS = {"narrow": 1, "middle": 3, "wide": 8}
GROUPS = ("billing", "reports", "rewinder")
MOST_PARTITIONS = 12

# Many transactions and many ranges: more boundaries to die at.
SETTINGS = {
    "deltamirror.replay.chunk.records": "500",
    "emit.checkpoints.interval.seconds": "2",
}
# What a writer left open when it died does not hold the last stable offset back for long.
BROKER = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"}


@dataclass
class Side:
    """A cluster: the harness speaks to its broker, deltamirror to *proxy* before it."""

    name: str
    broker: Broker
    proxy: Proxy

    @property
    def bootstrap(self) -> str:
        """Where the harness itself connects, past the proxy."""
        return self.broker.bootstrap_servers

    def heal(self) -> None:
        """Undo whatever was done to it."""
        self.proxy.heal()
        self.broker.thaw()
        self.broker.start()


@dataclass
class Ground:
    """Where chaos happens; *topics* are the source's with their partitions, which may grow."""

    source: Side
    target: Side
    world: World
    topics: dict[str, int]

    @property
    def sides(self) -> tuple[Side, Side]:
        """Both clusters."""
        return self.source, self.target

    def grow(self, topic: str) -> int:
        """Give *topic* one more partition and return how many it has now."""
        wanted = self.topics[topic] + 1
        admin = AdminClient({"bootstrap.servers": self.source.bootstrap})
        admin.create_partitions([NewPartitions(topic, wanted)])[topic].result(ANSWER_SECONDS)
        self.topics[topic] = wanted
        return wanted


@contextmanager
def ground(home: Path) -> Iterator[Ground]:
    """Start the clusters in *home* and make the topics; nothing is left running after it."""
    with ExitStack() as held:
        source, target = (_side(name, home / name, held) for name in ("source", "target"))
        held.enter_context(running_brokers(source.broker, target.broker))
        for topic, partitions in TOPICS.items():
            create_topic(source.bootstrap, topic, partitions)
        behind = {
            "us-east.bootstrap.servers": f"{HOST}:{source.proxy.port}",
            "eu-west.bootstrap.servers": f"{HOST}:{target.proxy.port}",
        }
        world = World(home, source.broker, target.broker, tuple(TOPICS), {**SETTINGS, **behind})
        yield Ground(source, target, world, dict(TOPICS))


def _side(name: str, home: Path, held: ExitStack) -> Side:
    """Return a broker, not started, whose listener for deltamirror is advertised as the proxy's."""
    broker = Broker(name, home)
    inside = broker.bootstrap_servers
    outside, controller, front = free_ports(3)
    broker.properties.update(
        {
            **BROKER,
            "listeners": (
                f"PLAINTEXT://{inside},OUTSIDE://{HOST}:{outside},CONTROLLER://{HOST}:{controller}"
            ),
            "advertised.listeners": f"PLAINTEXT://{inside},OUTSIDE://{HOST}:{front}",
            "listener.security.protocol.map": (
                "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,OUTSIDE:PLAINTEXT"
            ),
            "controller.quorum.voters": f"1@{HOST}:{controller}",
        }
    )
    proxy = Proxy(front, outside)
    held.callback(proxy.close)
    return Side(name, broker, proxy)
