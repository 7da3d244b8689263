"""The daemon loads libraries and compiled code before it forks workers, and loses no thread."""

import json
import os
import subprocess
import sys

import pytest

from resources.librdkafka import compiled as loops
from resources.spark.worker_daemon import load_compiled
from tests.support.brokers import Record, create_topic, produce
from tests.support.storage_world import replay, stage
from tests.support.world import World

COMPILED = (
    loops.read_messages,
    loops.find_headers,
    loops.copy_bytes,
    loops.destroy_messages,
    loops.produce_rows,
    loops.read_reports,
)
THREADS = """
import json, os
from resources.spark.worker_daemon import load_compiled
load_compiled()
def name(path): return open(f"{path}/comm").read().strip()
names = {name(f"/proc/self/task/{task}") for task in os.listdir("/proc/self/task")}
print(json.dumps(sorted(names - {name("/proc/self")})))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_only_the_fork_safe_thread_of_jemalloc_runs_before_workers_are_forked():
    done = subprocess.run(
        [sys.executable, "-c", THREADS],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert json.loads(done.stdout) in ([], ["jemalloc_bg_thd"])


@pytest.mark.kafka
def test_compiled_functions_are_loaded_before_workers_are_forked(source, target, names, tmp_path):
    topic = names("orders")
    create_topic(source.bootstrap_servers, topic)
    records = [Record(b"k", b"v", [("name", b"value")]), Record(None, b"v"), Record(b"k", None)]
    produce(source.bootstrap_servers, topic, records)
    load_compiled()
    known = {each: list(each.signatures) for each in COMPILED}
    here = World(tmp_path, source, target, [topic])

    stage(here)
    assert replay(here) == {}

    assert {each: list(each.signatures) for each in COMPILED} == known
