"""Kafka's own command-line tools, from the brokers' jars."""

import subprocess

from demo.kafka.jars import kafka_home
from resources.java import java

TOOL_SECONDS = 60


def console_consumer(bootstrap: str, topic: str, group: str, at_most: int) -> list[str]:
    """Return the values that `kafka-console-consumer` reads as a member of *group*, in order.

    It ends after *at_most* records, or if none arrives for 20 s. It commits the offsets it read.
    """
    done = subprocess.run(
        [
            *(str(java()), "-cp", f"{kafka_home()}/*"),
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--bootstrap-server", bootstrap, "--topic", topic, "--group", group),
            *("--from-beginning", "--isolation-level", "read_committed"),
            *("--max-messages", str(at_most), "--timeout-ms", "20000"),
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=TOOL_SECONDS,
    )
    return done.stdout.splitlines()
