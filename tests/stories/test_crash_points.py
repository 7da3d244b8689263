"""`kill -9` at every step of staging and of replay: what it leaves, and that the next run heals it.

The table is the crash matrix. A row says where a real process dies, who dies, and what broker and
lake hold then; what must hold after every death and after every recovery is below.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import KafkaException

from resources.processes import started_at
from tests.aftermath import Lake, Log
from tests.brokers import Record, consume_all, create_topic, produce
from tests.crashing import Crash, Dies, armed, marker
from tests.stories.world import FLOW, WAIT_S, World, contents, until

pytestmark = [pytest.mark.kafka, pytest.mark.story, pytest.mark.crash]

PARTITIONS = 2
RECORDS = 250  # of a partition: 120 of a transaction, its marker, 130
END = RECORDS + 1
CHUNK = 100
CHUNKS = [(100, 100), (200, 201), (250, 251)]  # records and progress after each of a partition
SETTLED_S = 10.0
"""How long the broker may take to write the markers of a commit that it has answered."""

FILE = "resources.slot_file:ParquetSlotFile"
RECORDS_TABLE = "resources.records:Records"
STAGING = "assets.staging:Staging"
SLOT = "resources.producer:SlotProducer"
CLIENT = "resources.producer:Producer"
MAP = "assets.offset_maps:OffsetMap"

NOTHING_STAGED = {"staged": 0, "frontiers": [], "sealed": [], "high": [], "mapped": 0}
ALL_STAGED = {"staged": 2 * RECORDS, "frontiers": [END, END], "orphans": 0, "sealed": [END, END]}
NOTHING_SENT = {"visible": 0, "open": 0, "mapped": 0}
OPEN = {**NOTHING_SENT, "open": 1, "high": [0, CHUNK], "progress": [0], "pending": False}
PENDING = {**OPEN, "pending": True}


@dataclass(frozen=True)
class Row:
    """A death, and what it leaves; what is not named is not asked."""

    name: str
    where: str
    when: str
    call: int
    dies: Dies
    leaves: dict[str, Any] = field(default_factory=dict)


ROWS = [
    # Staging: each slot's file, the commit, the seal.
    Row("before a slot's file is written", f"{FILE}.close", "before", 1, Dies.WORKER,
        {**NOTHING_STAGED, "orphans": 0}),
    Row("in the middle of a slot's file", f"{FILE}._flush", "after", 1, Dies.BOTH,
        {**NOTHING_STAGED, "orphans": 1}),
    Row("after the first slot's file", f"{FILE}.close", "after", 1, Dies.WORKER,
        {**NOTHING_STAGED, "orphans": 1}),
    Row("after the last slot's file", f"{FILE}.close", "after", 2, Dies.BOTH,
        {**NOTHING_STAGED, "orphans": 2}),
    Row("before the commit of records", f"{RECORDS_TABLE}.stage", "before", 1, Dies.DRIVER,
        {**NOTHING_STAGED, "orphans": 2}),
    Row("after the commit of records", f"{RECORDS_TABLE}.stage", "after", 1, Dies.DRIVER,
        {**ALL_STAGED, "sealed": [], "high": [], "mapped": 0}),
    Row("before sealing", f"{STAGING}._seal", "before", 1, Dies.DRIVER,
        {**ALL_STAGED, "sealed": [], "high": [], "mapped": 0}),
    Row("after sealing", f"{STAGING}._seal", "after", 1, Dies.DRIVER,
        ALL_STAGED),
    # Replay: the worker's transactions, then the driver's map.
    Row("after FENCE", f"{SLOT}.fence", "after", 1, Dies.BOTH,
        {**ALL_STAGED, **NOTHING_SENT, "high": [0, 0], "progress": []}),
    Row("after the seed of progress", f"{SLOT}.seed", "after", 1, Dies.BOTH,
        {**ALL_STAGED, **NOTHING_SENT, "high": [0, 0], "progress": [0]}),
    Row("during PRODUCE", f"{CLIENT}.produce", "before", CHUNK // 2, Dies.WORKER,
        {**ALL_STAGED, "visible": 0, "progress": [0], "mapped": 0}),
    Row("after FLUSH", f"{SLOT}.settle", "after", 1, Dies.BOTH, {**ALL_STAGED, **OPEN}),
    Row("after FLUSH, and the run lives", f"{SLOT}.settle", "after", 1, Dies.WORKER,
        {**ALL_STAGED, **OPEN}),
    Row("after FLUSH, and the worker lives", f"{SLOT}.settle", "after", 2, Dies.DRIVER,
        {"mapped": 0}),
    Row("after OFFSETS", f"{CLIENT}.send_offsets_to_transaction", "after", 1, Dies.BOTH,
        {**ALL_STAGED, **PENDING}),
    Row("after OFFSETS, and the broker dies too", f"{CLIENT}.send_offsets_to_transaction",
        "after", 1, Dies.BROKER_TOO, {**ALL_STAGED, **PENDING}),
    Row("COMMIT without an answer", f"{CLIENT}.commit_transaction", "before", 1, Dies.UNANSWERED,
        {**ALL_STAGED, "mapped": 0}),
    Row("after COMMIT", f"{SLOT}.commit", "after", 1, Dies.WORKER,
        {**ALL_STAGED, "visible": 100, "open": 0, "progress": [100], "mapped": 0}),
    Row("after a later COMMIT", f"{SLOT}.commit", "after", 2, Dies.BOTH,
        {**ALL_STAGED, "visible": 200, "open": 0, "progress": [201], "mapped": 0}),
    Row("after REPORT, before the map", f"{MAP}.write", "before", 1, Dies.DRIVER,
        {**ALL_STAGED, "visible": 500, "open": 0, "progress": [END, END], "mapped": 0}),
    Row("after the map", f"{MAP}.write", "after", 1, Dies.DRIVER,
        {**ALL_STAGED, "visible": 500, "open": 0, "progress": [END, END], "mapped": 500}),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: re.sub(r"\W+", "-", row.name))
def test_a_death_leaves_what_the_matrix_says_and_the_next_run_is_exact(
    row, source, request, make_broker, unique_topic, tmp_path, monkeypatch
):
    has_own_target = row.dies in (Dies.BROKER_TOO, Dies.UNANSWERED)
    target = make_broker("target") if has_own_target else request.getfixturevalue("target")
    fill(source, unique_topic)
    # One task at a time, so that only the one that dies writes.
    extra = {"tasks.max": "1", "deltamirror.replay.chunk.records": str(CHUNK)}
    here = World(tmp_path, source, target, [unique_topic], extra)
    try:
        run, witness = die(here, row, target, monkeypatch)
        if row.dies is not Dies.DRIVER:  # else a worker may still be writing
            until(lambda: started_at(witness) is None, "the process that was killed is gone")
        if has_own_target:
            target.thaw()
            target.start()
        left(here, unique_topic, row.leaves)

        if row.dies is Dies.WORKER:
            os.kill(run.pid, signal.SIGCONT)
            assert run.wait(WAIT_S) == 0, here.log()
        else:
            here.mirror()

        whole(here, unique_topic)
        until(lambda: started_at(witness) is None, "the process that was at the crash is gone")
    finally:
        here.end()


def fill(source, topic):
    """Write two partitions: offsets of a transaction, its marker, offsets without one."""
    create_topic(source.bootstrap_servers, topic, PARTITIONS)

    def records(first, last):
        for n in range(first, last):
            for partition in range(PARTITIONS):
                headers = [("n", b"%d" % n), ("n", None)] if n % 7 == 0 else []
                yield Record(b"%d" % n, b"%d of %d" % (n, partition), headers, n + 1, partition)

    bootstrap = source.bootstrap_servers
    produce(bootstrap, topic, records(0, 120), transactional_id=f"{topic}-writer")
    produce(bootstrap, topic, records(120, RECORDS))


def die(here, row, target, monkeypatch):
    """Start a run, wait for its death; return it and the process that met the crash."""
    crash = Crash(row.where, row.when, row.call, row.dies)
    folder = here.home / "crash"
    with monkeypatch.context() as patch:
        for name, value in armed(crash, folder, target.pid).items():
            patch.setenv(name, value)
        run = here.start("--until-caught-up")

    def is_met():
        assert run.poll() in (None, -signal.SIGKILL), here.log()
        return marker(folder).exists() and marker(folder).read_text() != ""

    until(is_met, f"{row.where} is called")
    if row.dies is not Dies.WORKER:
        assert run.wait(WAIT_S) == -signal.SIGKILL, here.log()
    return run, int(marker(folder).read_text())


def places(here, topic):
    """Return the lake and the remote topic of *topic*, as independent readers know them."""
    lake = Lake(here.home / "lake", "us-east", "eu-west", topic)
    group = f"deltamirror.{FLOW}"
    return lake, Log(here.target.bootstrap_servers, here.remote(topic), PARTITIONS, group)


def found(here, topic):
    """Return what lake and broker hold now, in the words of the table."""
    lake, log = places(here, topic)
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
    """Assert what a death left: the row's words, and what every death has to leave."""
    deadline = time.monotonic() + SETTLED_S
    while True:
        now: dict[str, Any] = {}
        with suppress(KafkaException):  # a broker that has just come back
            now = found(here, topic)
            # Visible and progress are one transaction's: both or neither.
            reached = [records for records, at in CHUNKS for p in now["progress"] if p == at]
            exact = now["records of each partition"] == sorted(reached)
            if exact and {key: now[key] for key in expected} == expected:
                break
        assert time.monotonic() < deadline, f"{now}, not {expected}"
        time.sleep(0.1)
    lake, log = places(here, topic)
    original = consume_all(here.source.bootstrap_servers, topic)
    for partition in range(PARTITIONS):
        arrived = contents([m for m in log.visible() if m.partition() == partition])
        wanted = contents([m for m in original if m.partition() == partition])
        assert arrived == wanted[: len(arrived)], "what is seen is a beginning"
    offsets = {(m.partition(), m.offset()) for m in original}
    assert len(lake.staged()) == len(set(lake.staged()))
    assert set(lake.staged()) <= offsets


def whole(here, topic):
    """Assert that each record is there once, in order, staged, sealed, sent and mapped."""
    lake, log = places(here, topic)
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
