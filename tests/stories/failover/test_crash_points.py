"""`kill -9` at every step of staging and replay: the state after it, and recovery by the next run.

ROWS is the crash matrix. A row has the call, the processes that die, and the state of broker and
lake after the crash. `left` and `whole` check what must hold after every crash and recovery.
"""

from __future__ import annotations

import os
import pkgutil
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from confluent_kafka import KafkaException

from deltamirror.maintenance.rebuild_map import rebuild_map
from demo.kafka.brokers import Broker
from demo.kafka.processes import started_at
from tests.support.brokers import Record, consume_all, create_topic, produce
from tests.support.crash_aftermath import LakeProbe, TopicProbe
from tests.support.crash_injection import (
    ASLEEP,
    BOTH,
    BROKER,
    BROKER_ALONE,
    BROKER_TOO,
    DRIVER_ALONE,
    UNANSWERED,
    UNANSWERED_WORKER,
    WORKER,
    ZOMBIE,
    Crash,
    CrashEffect,
    armed,
    marker,
    of_session,
    outcome,
)
from tests.support.world import FLOW, World, contents, until

pytestmark = [pytest.mark.kafka, pytest.mark.story, pytest.mark.crash]

PARTITIONS = 2
RECORDS = 250  # per partition: 120 in a transaction, its marker, then 130
END = RECORDS + 1
CHUNK = 100
CHUNKS = [(100, 100), (200, 201), (250, 251)]  # records and progress after each of a partition
TIMEOUT_MS = 300_000
"""Transaction timeout. A recovery that waits for it, instead of fencing, fails the test."""

SHORT_MS = 10_000
"""Transaction timeout of rows in which the timeout must abort the transaction."""

RECOVERED_S = 30.0
"""Seconds in which a restarted broker must have ended the transaction."""

MET_S = 240.0
"""Seconds in which a run must reach its crash or its end, on a busy machine."""

FILE = "resources.delta.stage_writer:ParquetFileWriter"
READER = "resources.kafka.range_reader:RangeReader"
READING = "resources.kafka.range_reader:_ReadState"
RECORDS_TABLE = "resources.delta.records_table:RecordsTable"
STAGING = "deltamirror.staging.stager:SourceStager"
SLOT = "resources.kafka.slot_producer:SlotProducer"
CLIENT = "resources.librdkafka.arrow_producer:ArrowProducer"
OFFSETS = f"{CLIENT}.send_offsets_to_transaction"
COMMIT = f"{CLIENT}.commit_transaction"
MAP = "deltamirror.replay.offset_map:OffsetMap"

NOTHING_STAGED = {"staged": 0, "frontiers": [], "sealed": [], "high": [], "mapped": 0}
UNSEALED = {"staged": 2 * RECORDS, "frontiers": [END, END], "orphans": 0, "sealed": []}
ALL_STAGED = {"staged": 2 * RECORDS, "frontiers": [END, END], "orphans": 0}
NOTHING_SENT = {**ALL_STAGED, "visible": 0, "open": 0, "high": [0, 0], "mapped": 0}
OPEN = {**NOTHING_SENT, "open": 1, "high": [0, CHUNK], "progress": [0], "pending": False}
PENDING = {**OPEN, "pending": True}
ABORTED = {**OPEN, "open": 0, "high": [0, CHUNK + 1]}
ALL_SENT = {**ALL_STAGED, "visible": 500, "open": 0, "progress": [END, END]}


@dataclass(frozen=True)
class Row:
    """A crash and the state that it leaves.

    Keys that *leaves* does not have are not checked. *broker* is the cluster whose broker dies.
    """

    name: str
    where: str
    when: str
    call: int
    fate: CrashEffect
    leaves: dict[str, Any] = field(default_factory=dict)
    broker: str = "target"

    def __post_init__(self) -> None:
        pkgutil.resolve_name(self.where)  # a renamed method must not turn a crash into none


ROWS = [
    # Staging: the read, the file (of both slots), the commit, sealing.
    Row("before a range is read, the source dies", f"{READER}.read", "before", 1, BROKER,
        {**NOTHING_STAGED, "orphans": 0}, "source"),
    Row("in the middle of a read, the source dies too", f"{READING}.process", "after", 1,
        BROKER_TOO, {**NOTHING_STAGED, "orphans": 0}, "source"),
    Row("before the file is written", f"{FILE}.close", "before", 1, WORKER,
        {**NOTHING_STAGED, "orphans": 0}),
    Row("in the middle of the file", f"{FILE}._flush", "after", 1, BOTH,
        {**NOTHING_STAGED, "orphans": 1}),
    Row("in the middle of the file, and the worker lives", f"{FILE}._flush", "after", 1,
        DRIVER_ALONE, NOTHING_STAGED),
    Row("after the file", f"{FILE}.close", "after", 1, WORKER,
        {**NOTHING_STAGED, "orphans": 1}),
    Row("after the file, and the run dies too", f"{FILE}.close", "after", 1, BOTH,
        {**NOTHING_STAGED, "orphans": 1}),
    Row("before the commit of records", f"{RECORDS_TABLE}.stage", "before", 1, DRIVER_ALONE,
        {**NOTHING_STAGED, "orphans": 1}),
    Row("after the commit of records", f"{RECORDS_TABLE}.stage", "after", 1, DRIVER_ALONE,
        {**UNSEALED, "high": [], "mapped": 0}),
    Row("before sealing", f"{STAGING}.close", "before", 1, DRIVER_ALONE, UNSEALED),
    Row("after sealing", f"{STAGING}.close", "after", 1, DRIVER_ALONE,
        {**ALL_STAGED, "sealed": [END, END]}),
    # Replay: the worker's transactions, then the driver's offset map.
    Row("after FENCE", f"{SLOT}.fence", "after", 1, BOTH, {**NOTHING_SENT, "progress": []}),
    Row("after FENCE, and the run lives", f"{SLOT}.fence", "after", 1, WORKER,
        {**NOTHING_SENT, "progress": []}),
    Row("after the seed of progress", f"{SLOT}.commit_progress", "after", 1, BOTH,
        {**NOTHING_SENT, "progress": [0]}),
    Row("during PRODUCE", f"{CLIENT}.send", "after", 1, WORKER,
        {**ALL_STAGED, "visible": 0, "progress": [0], "mapped": 0}),
    Row("during PRODUCE, and the run dies too", f"{CLIENT}.send", "after", 1, BOTH,
        {**ALL_STAGED, "visible": 0, "progress": [0], "mapped": 0}),
    Row("after FLUSH", f"{SLOT}.flush", "after", 1, BOTH, OPEN),
    Row("after FLUSH, and the run lives", f"{SLOT}.flush", "after", 1, WORKER, OPEN),
    Row("after FLUSH, and the worker lives", f"{SLOT}.flush", "after", 2, DRIVER_ALONE,
        {"mapped": 0}),
    Row("after OFFSETS", OFFSETS, "after", 1, BOTH, PENDING),
    Row("after OFFSETS, and the run lives", OFFSETS, "after", 1, WORKER, PENDING),
    Row("after OFFSETS, and the broker dies too", OFFSETS, "after", 1, BROKER_TOO, PENDING),
    Row("before COMMIT, the broker dies", COMMIT, "before", 1, BROKER, PENDING),
    Row("before COMMIT, the broker dies and the run sees it", COMMIT, "before", 1, BROKER_ALONE),
    Row("before COMMIT, the worker sleeps too long", COMMIT, "before", 1, ASLEEP, ABORTED),
    Row("before COMMIT, the worker wakes up behind another run", COMMIT, "before", 1, ZOMBIE,
        PENDING),
    Row("COMMIT without an answer", COMMIT, "before", 1, UNANSWERED,
        {**ALL_STAGED, "mapped": 0}),
    Row("COMMIT without an answer, and the run lives", COMMIT, "before", 1, UNANSWERED_WORKER,
        {**ALL_STAGED, "mapped": 0}),
    Row("after COMMIT", f"{SLOT}.commit", "after", 1, WORKER,
        {**ALL_STAGED, "visible": 100, "open": 0, "progress": [100], "mapped": 0}),
    Row("after a later COMMIT", f"{SLOT}.commit", "after", 2, BOTH,
        {**ALL_STAGED, "visible": 200, "open": 0, "progress": [201], "mapped": 0}),
    Row("after REPORT, before the map", f"{MAP}.flush", "before", 1, DRIVER_ALONE,
        {**ALL_SENT, "mapped": 0}),
    Row("after the map", f"{MAP}.flush", "after", 1, DRIVER_ALONE, {**ALL_SENT, "mapped": 500}),
]  # fmt: skip


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker for the rows that kill or freeze one. It checks transaction timeouts often.

    These rows share it, and each row restarts it.
    """
    often = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
    broker = Broker("victim", tmp_path_factory.mktemp("victim"), properties=often).start()
    yield broker
    broker.kill()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: re.sub(r"\W+", "-", row.name))
def test_a_crash_leaves_the_state_of_the_crash_matrix_and_the_next_run_is_exact(
    row, request, unique_topic, tmp_path, monkeypatch
):
    here = world(row, request, unique_topic, tmp_path)
    fill(here.source, unique_topic)
    try:
        run, witness = die(here, row, monkeypatch)
        request.addfinalizer(partial(end, witness, started_at(witness)))
        broker = getattr(here, row.broker)
        broker.thaw()
        broker.start()
        if row.fate is not BROKER_ALONE:  # then the run has already continued
            left(here, unique_topic, row.leaves)

        recover(here, row, run, witness)

        whole(here, unique_topic)
        if row.fate is ZOMBIE:
            wake(here, witness)
            whole(here, unique_topic)
        until(lambda: not of_session(run.pid), "all processes of the run have ended", MET_S)
        until(lambda: started_at(witness) is None, "the process that crashed has ended")
    finally:
        here.end()


def test_an_offset_map_rebuild_after_a_crash_first_ends_the_dead_runs_transaction(
    request, unique_topic, tmp_path, monkeypatch
):
    one_chunk = {**ALL_STAGED, "visible": 100, "progress": [100]}
    pending = {**one_chunk, "open": 1, "pending": True, "mapped": 0}
    row = Row("after later OFFSETS", OFFSETS, "after", 2, BOTH, pending)
    here = world(row, request, unique_topic, tmp_path)
    fill(here.source, unique_topic)
    try:
        die(here, row, monkeypatch)
        left(here, unique_topic, row.leaves)

        rebuilt = rebuild_map(here.context, here.config.flow(FLOW))

        assert rebuilt.errors == ()
        left(here, unique_topic, {**one_chunk, "open": 0, "pending": False, "mapped": 100})
        here.mirror()
        whole(here, unique_topic)
    finally:
        here.end()


def world(row, request, topic, home):
    """Return the world of *row*. A broker that dies is not shared with other tests."""
    names = dict.fromkeys(("source", "target"))
    for name in names:
        is_met = name == row.broker and (row.fate.befalls("broker") or row.fate is ASLEEP)
        names[name] = request.getfixturevalue("victim" if is_met else name)
    # One task, so that only the process that dies writes.
    extra = {
        "tasks.max": "1",
        "deltamirror.replay.chunk.records": str(CHUNK),
        "eu-west.producer.transaction.timeout.ms": str(
            SHORT_MS if row.fate is ASLEEP else TIMEOUT_MS
        ),
    }
    return World(home, names["source"], names["target"], [topic], extra)


def fill(source, topic):
    """Write two partitions: records of a transaction, its marker, records without one."""
    create_topic(source.bootstrap_servers, topic, PARTITIONS)

    def records(first, last):
        for n in range(first, last):
            for partition in range(PARTITIONS):
                headers = [("n", b"%d" % n), ("n", None)] if n % 7 == 0 else []
                yield Record(b"%d" % n, b"%d of %d" % (n, partition), headers, n + 1, partition)

    bootstrap = source.bootstrap_servers
    produce(bootstrap, topic, records(0, 120), transactional_id=f"{topic}-writer")
    produce(bootstrap, topic, records(120, RECORDS))


def die(here, row, monkeypatch):
    """Start a run and wait for its crash; return the run and the crashed process's id."""
    crash = Crash(row.where, row.when, row.call, row.fate)
    folder = here.home / "crash"
    with monkeypatch.context() as patch:
        for name, value in armed(crash, folder, getattr(here, row.broker).pid).items():
            patch.setenv(name, value)
        run = here.start("--until-caught-up")

    def is_met():
        assert run.poll() in (None, -signal.SIGKILL), here.log()
        return marker(folder).exists() and marker(folder).read_text() != ""

    until(is_met, f"{row.where} is called", MET_S)
    witness = int(marker(folder).read_text())
    if "driver" in row.fate.killed:
        assert run.wait(MET_S) == -signal.SIGKILL, here.log()
    if "worker" in row.fate.killed:
        until(lambda: started_at(witness) is None, "the worker is gone")
    if "broker" in row.fate.killed:
        until(lambda: getattr(here, row.broker).pid is None, "the broker is gone")
    return run, witness


def recover(here, row, run, witness):
    """Continue stopped processes and wait for the end; if the driver is dead, mirror again."""
    if "driver" in row.fate.killed:
        here.mirror()
        return
    for pid in (witness, run.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    assert run.wait(MET_S) == 0, here.log()


def end(pid, began):
    """Kill process *pid* if it is still the process that started at *began*."""
    if began is not None and started_at(pid) == began:
        os.kill(pid, signal.SIGKILL)


def wake(here, witness):
    """Continue a worker of a dead run after another run has finished: it must be fenced."""
    os.kill(witness, signal.SIGCONT)
    until(lambda: started_at(witness) is None, "the worker that woke up has ended")
    assert "_FENCED" in outcome(here.home / "crash").read_text()


def probes(here, topic):
    """Return independent readers of the lake and of the remote topic of *topic*."""
    lake = LakeProbe(here.home / "lake", "us-east", "eu-west", topic)
    group = f"deltamirror.{FLOW}"
    return lake, TopicProbe(here.target.bootstrap_servers, here.remote(topic), PARTITIONS, group)


def found(here, topic):
    """Return the present state of lake and broker, with the keys of ROWS."""
    lake, log = probes(here, topic)
    high, stable, visible = log.high(), log.stable(), log.visible()
    return {
        "staged": len(lake.staged()),
        "frontiers": lake.frontiers(),
        "orphans": lake.orphans(),
        "sealed": lake.sealed(),
        "high": sorted(high),
        "open": sum(s < h for s, h in zip(stable, high, strict=True)),
        "visible": len(visible),
        "progress": log.progress(),
        "pending": log.is_pending(),
        "mapped": len(lake.mapped()),
        "records of each partition": sorted(Counter(m.partition() for m in visible).values()),
    }


def left(here, topic, expected):
    """Assert the state after a crash: *expected*, and what must hold after every crash."""
    deadline = time.monotonic() + RECOVERED_S
    while True:
        now: dict[str, Any] = {}
        with suppress(KafkaException):  # of a broker that has just restarted
            now = found(here, topic)
            # Records and progress are committed in one transaction: both or none.
            reached = [records for records, at in CHUNKS for p in now["progress"] if p == at]
            exact = now["records of each partition"] == sorted(reached)
            if exact and {key: now[key] for key in expected} == expected:
                break
        assert time.monotonic() < deadline, f"{now}, not {expected}"
        time.sleep(0.1)
    lake, log = probes(here, topic)
    original = consume_all(here.source.bootstrap_servers, topic)
    for partition in range(PARTITIONS):
        arrived = contents([m for m in log.visible() if m.partition() == partition])
        wanted = contents([m for m in original if m.partition() == partition])
        assert arrived == wanted[: len(arrived)], "visible records are a prefix"
    offsets = {(m.partition(), m.offset()) for m in original}
    assert len(lake.staged()) == len(set(lake.staged()))
    assert set(lake.staged()) <= offsets


def whole(here, topic):
    """Assert that each record is staged, sealed, sent and mapped once, in order."""
    lake, log = probes(here, topic)
    original = consume_all(here.source.bootstrap_servers, topic)
    arrived = consume_all(here.target.bootstrap_servers, here.remote(topic))
    assert len(original) == PARTITIONS * RECORDS
    assert contents(arrived) == contents(original)
    assert lake.staged() == [(m.partition(), m.offset()) for m in original]
    assert lake.frontiers() == lake.sealed() == log.progress() == [END] * PARTITIONS
    assert log.high() == log.stable(), "no transaction is open"
    assert lake.mapped() == [
        (up.partition(), up.offset(), down.offset())
        for up, down in zip(original, arrived, strict=True)
    ]
