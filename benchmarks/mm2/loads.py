"""Loads to mirror: backlogs of random letters, and the demo's real data."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from benchmarks.ground import PARTITIONS, Ground, flush, make_topic, producer_of
from demo import kafka_clients as demo_kafka
from demo.data import TABLES

_FLIGHTS = next(table for table in TABLES if table.name == "flights")


@dataclass(frozen=True)
class Load:
    """A backlog: *records* of *size_bytes* in *partitions*, written with *compression*."""

    size_bytes: int
    records: int
    partitions: int = PARTITIONS
    compression: str = "none"

    @property
    def name(self) -> str:
        """What `--load` calls it."""
        return f"{self.size_bytes}-{self.partitions}-{self.compression}"

    @property
    def topic(self) -> str:
        """The source topic that holds it."""
        return f"load-{self.name}"

    def fill(self, on: Ground) -> None:
        """Create the topic and write its records."""
        on.fill(
            self.topic,
            self.records,
            self.size_bytes,
            partitions=self.partitions,
            compression=self.compression,
        )


@dataclass(frozen=True)
class Flights:
    """The demo's flights as JSON, repeated until there are *records*.

    Keys, headers, timestamps and the partition of a key are those of the demo.
    """

    records: int = 1_000_000
    partitions: int = _FLIGHTS.partitions
    compression: str = "none"
    data: str = "the demo's flights as JSON"

    @property
    def name(self) -> str:
        """What `--load` calls it."""
        return _FLIGHTS.name

    @property
    def topic(self) -> str:
        """The source topic that holds it."""
        return f"load-{self.name}"

    def fill(self, on: Ground) -> None:
        """Create the topic and write its records. Raises DemoDataMissingError."""
        make_topic(on.source, self.topic, self.partitions)
        producer = producer_of(on.source, self.compression, demo_kafka.PARTITIONER)
        left = self.records
        while left:
            for record in islice(_FLIGHTS.records(), left):
                demo_kafka.produce_record(producer, self.topic, record)
                left -= 1
        flush(producer)
