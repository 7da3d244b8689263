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

# Many transactions and many ranges give more boundaries for a crash.
SETTINGS = {
    "deltamirror.replay.chunk.records": "500",
    "emit.checkpoints.interval.seconds": "2",
}
# A killed writer's open transaction does not block the last stable offset for long.
BROKER = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"}


@dataclass
class Side:
    """A cluster. The harness connects to its broker, deltamirror to *proxy* in front of it."""

    name: str
    broker: Broker
    proxy: Proxy

    @property
    def bootstrap(self) -> str:
        """Return the broker's own address, which the harness uses."""
        return self.broker.bootstrap_servers

    def heal(self) -> None:
        """Undo every disaster of this cluster."""
        self.proxy.heal()
        self.broker.thaw()
        self.broker.start()


@dataclass
class Ground:
    """Set-up of a chaos run; *topics* are the source topics with their partition counts."""

    source: Side
    target: Side
    world: World
    topics: dict[str, int]

    @property
    def sides(self) -> tuple[Side, Side]:
        """Return both clusters."""
        return self.source, self.target

    def grow(self, topic: str) -> int:
        """Add a partition to *topic*; return the new partition count."""
        wanted = self.topics[topic] + 1
        admin = AdminClient({"bootstrap.servers": self.source.bootstrap})
        admin.create_partitions([NewPartitions(topic, wanted)])[topic].result(ANSWER_SECONDS)
        self.topics[topic] = wanted
        return wanted


@contextmanager
def ground(home: Path) -> Iterator[Ground]:
    """Start the clusters in *home* and create the topics; stop all processes after the block."""
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
