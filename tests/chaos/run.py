"""One chaos run, from the first record to the last comparison."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.chaos import translations
from tests.chaos.audit import Log, compare, read
from tests.chaos.disasters import Disasters
from tests.chaos.driver import Driver
from tests.chaos.ground import GROUPS, Ground, ground
from tests.chaos.groups import Member, PartitionKey, members
from tests.chaos.report import Findings
from tests.chaos.watch import Watch
from tests.chaos.writers import Writer, writers
from tests.support.brokers import ANSWER_SECONDS, high_watermarks
from tests.support.world import until

START_SECONDS = 120
END_SECONDS = 90
CATCH_UP_SECONDS = 600

Say = Callable[[str], None]


def chaos(home: Path, seed: int, seconds: float, say: Say) -> Findings:
    """Mirror in *home* under disasters for *seconds*; return the findings."""
    findings = Findings(seed, seconds)
    with ground(home) as here:
        group_members = _storm(here, findings, say)
        say("writers are done: catching up")
        _catch_up(here, findings)
        say("counting")
        try:
            _translate(here, findings, group_members, _count(here, findings))
        except TimeoutError as error:  # A transaction on the target stays open.
            findings.wrong.append(str(error))
        _verify(here, findings)
    findings.judge()
    return findings


def _storm(here: Ground, findings: Findings, say: Say) -> list[Member]:
    """Write, read, mirror and run disasters at the same time; return the groups' members."""
    bootstrap, seed = here.source.bootstrap, findings.seed
    group_members = members(bootstrap, here.topics, seed)
    busy: list[Writer | Member] = [*writers(bootstrap, here.topics, seed), *group_members]
    with ExitStack() as held:
        driver = Driver(here.world)
        held.callback(driver.stop)
        watch = Watch(here)
        for thread in (*busy, watch):
            thread.start()
        held.callback(_end, [*busy, watch])
        until(lambda: watch.arrived > 0, "the first record arrives", START_SECONDS)
        disasters = Disasters(here, driver, watch, seed, say)
        disasters.run(findings.seconds)
    findings.disasters = dict(disasters.done)
    findings.driver_ended = driver.unasked
    findings.wrong += disasters.stalls
    findings.arrived_meanwhile = watch.arrived
    findings.longest_stall_s = watch.longest_s
    return group_members


def _end(threads: Sequence[Writer | Member | Watch]) -> None:
    for thread in threads:
        thread.stop()
    give_up_at = time.monotonic() + END_SECONDS
    for thread in threads:
        thread.join(max(0.0, give_up_at - time.monotonic()))
    # A group's member may not return from close() if its coordinator was killed (librdkafka 2.16).
    # It reads no more, and ends with the process.
    stuck = [t.name for t in threads if t.is_alive() and not isinstance(t, Member)]
    if stuck:
        raise TimeoutError(f"did not end within {END_SECONDS} s: {', '.join(stuck)}")


def _catch_up(here: Ground, findings: Findings) -> None:
    """Run `deltamirror run --until-caught-up`."""
    until(lambda: _is_settled(here), "all transactions are over", END_SECONDS)
    begun = time.monotonic()
    done = here.world.cli("run", "--until-caught-up", timeout=CATCH_UP_SECONDS)
    findings.catch_up_s = time.monotonic() - begun
    if done.returncode:
        last = done.stderr.strip().splitlines()[-3:]
        findings.wrong.append(f"run --until-caught-up: {done.returncode} {' | '.join(last)}")


def _is_settled(here: Ground) -> bool:
    """Return whether the source has no open transaction: last stable offset = high watermark."""
    settings = {"group.id": "chaos-ends", "isolation.level": "read_committed"}
    consumer = Consumer({"bootstrap.servers": here.source.bootstrap, **settings})
    try:
        return all(
            consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=ANSWER_SECONDS)[1]
            == end
            for topic in here.topics
            for p, end in high_watermarks(here.source.bootstrap, topic).items()
        )
    except KafkaException:
        return False  # The broker has just started.
    finally:
        consumer.close()


def _count(here: Ground, findings: Findings) -> dict[PartitionKey, tuple[Log, Log]]:
    """Read both sides and count differences; return the logs of each partition."""
    logs: dict[PartitionKey, tuple[Log, Log]] = {}
    for topic in here.topics:
        remote = here.world.remote(topic)
        source = read(here.source.bootstrap, topic)
        target = read(here.target.bootstrap, remote)
        dirty = read(here.target.bootstrap, remote, "read_uncommitted")
        for partition, log in source.items():
            topic_partition, arrived = (topic, partition), target.get(partition, Log())
            logs[topic_partition] = log, arrived
            findings.committed[topic_partition] = compare(log.contents, arrived.contents)
            seen = dirty.get(partition, Log()).contents
            findings.uncommitted[topic_partition] = compare(log.contents, seen)
    return logs


def _translate(
    here: Ground, findings: Findings, group_members: Sequence[Member], logs: translations.Logs
) -> None:
    for checked, wrong in (
        translations.every_commit(here, group_members, logs),
        translations.newest_commits(here, GROUPS, logs),
    ):
        findings.translations += checked
        findings.wrong_translations += wrong
    if not findings.translations:
        findings.wrong.append("no group has committed anything")


def _verify(here: Ground, findings: Findings) -> None:
    """Run `deltamirror verify`, which must find the same."""
    done = here.world.cli("verify", "--format", "json", timeout=CATCH_UP_SECONDS)
    answer = json.loads(done.stdout)
    findings.verify = {name: n for name, n in answer.items() if isinstance(n, int)}
    if done.returncode:
        findings.wrong.append(f"verify ended with {done.returncode}: {done.stdout[:500]}")
    counted = sum(each.records for each in findings.committed.values())
    if answer.get("records") != counted:
        findings.wrong.append(f"verify compared {answer.get('records')} records of {counted}")
