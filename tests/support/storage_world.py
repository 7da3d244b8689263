"""A world whose tasks run in this process: stage, replay and check it without Spark."""

from __future__ import annotations

import json
from pathlib import Path

from deltamirror.replay.replayer import FlowReplayer
from schemas.errors.base import DeltamirrorError
from tests.support.brokers import Record, produce
from tests.support.fake_context import InlineWorkers
from tests.support.world import FLOW, World

PARTITIONS = 2
AT_ONCE = 40


def write(here: World) -> None:
    """Write one more turn of records to the source."""
    first = here.turns * AT_ONCE
    records = (
        Record(b"%d" % n, b"value %d" % n, [("n", b"%d" % n)], partition=p)
        for n in range(first, first + AT_ONCE)
        for p in range(PARTITIONS)
    )
    produce(here.source.bootstrap_servers, here.topic, records)
    here.turns += 1


def stage(here: World) -> None:
    """Stage all records, without Spark and without replay."""
    with here.staging() as staging:
        while staging.tick().segments:
            pass


def replay(here: World) -> dict[object, DeltamirrorError]:
    """Replay all staged records, without Spark; return the errors of blocked partitions."""
    replaying = FlowReplayer(here.context, here.config.flow(FLOW), InlineWorkers())
    try:
        replaying.open()
        while not replaying.tick().is_idle:
            pass
        replaying.load_ends()  # it appends what the map lacks, and raises an error if it cannot
        return dict(replaying.partition_errors)
    finally:
        replaying.close()


def mirror_next_turn(here: World) -> None:
    """Write one more turn of records, and mirror all records like a new process."""
    write(here)
    stage(here)
    assert replay(here) == {}


def records_path(here: World) -> Path:
    return here.context.lake.records("us-east").path


def data_files(here: World) -> list[Path]:
    """Return the live files of the stage, oldest first."""
    records = here.context.lake.records("us-east")
    return [records.path / f.path for f in sorted(records.files(), key=lambda f: f.sequence)]


def keys(here: World, partition: int) -> list[bytes | None]:
    return [m.key() for m in here.arrived(here.topic) if m.partition() == partition]


def assert_all_arrived_once(here: World) -> None:
    """Assert that every record of every turn arrived once, in order, and that all sides agree."""
    for partition in range(PARTITIONS):
        assert keys(here, partition) == [b"%d" % n for n in range(here.turns * AT_ONCE)]
    found = here.answer("verify")
    assert [found[n] for n in ("lost", "duplicated", "reordered", "altered")] == [0, 0, 0, 0]


def refused(here: World, *args: str) -> dict[str, str]:
    """Run a command that fails with exit code 1; return its error."""
    done = here.cli(*args, "--format", "json", timeout=300)
    assert done.returncode == 1, done.stderr
    return dict(json.loads(done.stdout)["error"])
