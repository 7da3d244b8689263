"""Fetch the jars of Apache Kafka's broker, tools and MirrorMaker 2: `python -m demo.kafka.jars`."""

from __future__ import annotations

from pathlib import Path

from resources.spark.jars import JarSet, fetch, fetch_all

KAFKA_VERSION = "4.3.0"
KAFKA = JarSet(
    f"kafka-{KAFKA_VERSION}",
    (
        ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
        ("org.apache.kafka", "connect-mirror", KAFKA_VERSION),
        ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
        # Kafka's POMs name no logging backend: without one a broker logs no errors.
        ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.1"),
    ),
)


def kafka_home() -> Path:
    """Return the folder of the jars, fetched once. Raises DownloadFailedError, JavaMissingError."""
    return fetch(KAFKA)


if __name__ == "__main__":
    fetch_all(KAFKA)
