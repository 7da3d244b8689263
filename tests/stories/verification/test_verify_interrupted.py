"""`verify` with kills, a running mirror and compaction, and its peak memory."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Producer

from deltamirror.verification.digest_pass import NullProgressListener
from deltamirror.verification.verify import verify
from schemas.errors.environment import WorkerDiedError
from schemas.verification import EXPLAINED, KINDS
from tests.stories.verification.planting import altered, rewrite
from tests.stories.verification.test_verify_finds_all import NONE, SIZE, more
from tests.stories.verification.test_verify_finds_all import topics as topics  # the fixture
from tests.support.brokers import ROOT, Record, cli_environment, consume_all, create_topic, produce
from tests.support.world import World, until

pytestmark = [pytest.mark.kafka, pytest.mark.story]

DIES = """
import multiprocessing, os, signal, sys
from pathlib import Path
import deltamirror.verification.digest_pass as digests
from deltamirror.context import MirrorContext
from deltamirror.verification.verify import verify
from resources.config.load import read_config

class Dies(digests.NullProgressListener):
    def compared(self, flow, records):
        files = context.lake.root.glob("audits/*")
        parts = [n for f in files for n in f.read_text().splitlines()[1:]]
        if len(parts) >= 2:
            print(*(child.pid for child in multiprocessing.active_children()), flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

digests.MIN_RECORDS_FOR_POOL = int(sys.argv[2])
context = MirrorContext(read_config(Path(sys.argv[1])))
verify(context, listener=Dies())
"""


def killed_verify(here, many):
    """Run a verify that kills itself with -9 after its second part; return its children's ids."""
    done = subprocess.run(
        [sys.executable, "-c", DIES, str(here.path), str(many)],
        cwd=ROOT,
        env=cli_environment(),
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    return [int(pid) for pid in done.stdout.split()]


def is_there(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    "many", [pytest.param(10**9, id="one process"), pytest.param(0, id="pool")]
)
def test_a_killed_verify_is_resumed_without_losing_a_difference(world, topics, many):
    named = topics("one", "two", "three", "four", "five", "six")
    here = world(*named.values())
    here.mirror()
    for topic in named.values():
        rewrite(here.context, topic, altered(4))

    children = killed_verify(here, many)
    answer = here.answer("verify")

    assert bool(children) == (many == 0)
    until(lambda: not any(map(is_there, children)), "its processes end with it")
    (flow,) = answer["flows"]
    assert not [*(here.context.lake.root / "audits").glob("*")]
    assert answer["records"] == SIZE * len(named)
    assert answer["altered"] == len(named)
    assert flow["resumed"] >= 2 * SIZE


def test_a_verify_whose_worker_process_dies_is_an_error_and_the_next_one_is_complete(
    world, topics, monkeypatch
):
    named = topics("one", "two", "three", "four")
    here = world(*named.values())
    here.mirror()

    class Kills(NullProgressListener):
        def compared(self, flow, records):
            for child in multiprocessing.active_children()[:1]:
                with suppress(
                    ProcessLookupError
                ):  # called again after the killed process has ended
                    os.kill(child.pid, signal.SIGKILL)

    monkeypatch.setattr("deltamirror.verification.digest_pass.MIN_RECORDS_FOR_POOL", 0)
    with pytest.raises(WorkerDiedError):
        verify(here.context, listener=Kills())
    found = verify(here.context)

    assert found.is_same
    assert found.totals == {"records": SIZE * len(named), **NONE}


def test_a_sample_reads_a_part_of_each_partition_and_reports_it(world, topics, monkeypatch):
    named = topics("one", "two")
    here = world(*named.values())
    here.mirror()
    for number in (10, 20):
        for topic in named.values():
            produce(here.source.bootstrap_servers, topic, more(number))
        here.mirror()
    monkeypatch.setattr("deltamirror.verification.digest_pass.SAMPLE_RECORDS", 1)

    found = verify(here.context, share=1e-9)

    assert found.is_same
    assert {each.records for each in found.partitions} <= {SIZE, 10, 20}
    for topic in named.values():
        rewrite(here.context, topic, altered(4))
    altered_ones = verify(here.context, share=1e-9)
    assert altered_ones.totals["altered"] == 2
    shown = here.cli("verify", "--sample", "1")
    assert "a random sample of 1 % of each partition" in shown.stdout
    assert shown.returncode == 1


def test_verify_reports_no_difference_during_a_running_mirror(world, topics):
    named = topics("one", "two")
    here = world(*named.values())
    stop = threading.Event()

    def write():
        while not stop.is_set():
            for topic in named.values():
                produce(here.source.bootstrap_servers, topic, more(50))

    writer = threading.Thread(target=write)
    here.start()
    writer.start()
    try:
        for topic in named.values():
            until(lambda topic=topic: has_arrived(here, topic), f"{topic} arrives")
        found = [verify(here.context) for _ in range(4)]
    finally:
        stop.set()
        writer.join()
        here.end()
    here.mirror()
    found.append(verify(here.context))

    assert [each.to_json()["differences"] for each in found] == [[]] * 5
    assert all(each.is_same for each in found), [each.errors for each in found]
    records = [each.totals["records"] for each in found]
    assert 2 * SIZE <= records[0] <= records[-1]
    assert records == sorted(records)


def test_a_transaction_opened_after_the_first_read_hides_no_range_that_is_read_again(
    world, topics, names
):
    (topic,) = topics("opened").values()
    here = world(topic)
    here.mirror()
    rewrite(here.context, topic, altered(4))
    producer = Producer(
        {"bootstrap.servers": here.target.bootstrap_servers, "transactional.id": names("open")}
    )
    producer.init_transactions(30)

    class Opens(NullProgressListener):
        def compared(self, flow, records):
            if not opened:
                producer.begin_transaction()
                producer.produce(here.remote(topic), b"open", partition=0)
                opened.append(producer.flush(30))

    opened = []
    found = verify(here.context, listener=Opens())
    producer.abort_transaction(30)

    assert opened == [0]
    assert found.errors == []
    assert found.totals == {"records": SIZE, **NONE, "altered": 1}


def has_arrived(here, topic):
    try:
        return len(here.arrived(topic)) > SIZE
    except (KeyError, TimeoutError):
        return False


def test_compacted_records_on_either_side_are_explained_and_not_lost(
    tmp_path, make_broker, unique_topic
):
    quickly = {"log.cleaner.backoff.ms": "100"}
    source, target = (make_broker(name, properties=quickly) for name in ("source", "target"))
    settings = {"segment_ms": 100, "min_cleanable_dirty_ratio": 0.001}
    create_topic(source.bootstrap_servers, unique_topic, cleanup_policy="compact", **settings)
    here = World(tmp_path, source, target, [unique_topic])
    produce(source.bootstrap_servers, unique_topic, more(30))
    here.mirror()
    for broker, topic in ((source, unique_topic), (target, here.remote(unique_topic))):
        until(lambda b=broker, t=topic: is_compacted(b.bootstrap_servers, t), f"{topic} shrinks")

    found = verify(here.context)

    totals = found.totals
    assert found.is_same, found.to_json()
    assert totals["records"] == 30
    assert totals["gone_upstream"] > 0
    assert totals["expired_downstream"] > 0
    assert {name: totals[name] for name in KINDS} == dict.fromkeys(KINDS, 0)
    assert set(totals) == {"records", *KINDS, *EXPLAINED}


def is_compacted(bootstrap, topic):
    """Return whether *topic* has lost its first records; write one that closes its segment."""
    produce(bootstrap, topic, [Record(b"another", b"closes a segment")])
    time.sleep(0.2)
    return consume_all(bootstrap, topic)[0].offset() > 0


PEAK = """
import sys
from pathlib import Path
from deltamirror.context import MirrorContext
from deltamirror.verification.verify import verify
from resources.config.load import read_config

assert verify(MirrorContext(read_config(Path(sys.argv[1]))), topics=[sys.argv[2]]).is_same
status = Path("/proc/self/status").read_text().splitlines()
print(next(line.split()[1] for line in status if "VmHWM" in line))
"""


def peak_mib(here, topic):
    """Return the peak memory of a process that only verifies *topic*."""
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(here.path), topic],
        cwd=ROOT,
        env=cli_environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return int(done.stdout) // 1024


def test_memory_does_not_grow_with_the_length_of_a_partition(world, source, names):
    short, long = names("short"), names("long")
    value = os.urandom(4096)
    for topic, number in ((short, 25_000), (long, 100_000)):
        create_topic(source.bootstrap_servers, topic)
        produce(
            source.bootstrap_servers,
            topic,
            (Record(b"%d" % i, value + b"%d" % i) for i in range(number)),
        )
    here = world(short, long)
    here.mirror()

    little, much = peak_mib(here, short), peak_mib(here, long)

    # The long topic has 290 MiB more on each of three sides. Two clients read ahead; 13 MiB
    # were seen. With twice the records, brokers once took 12.7 s for one write.
    assert much - little < 100, json.dumps({"short": little, "long": much})
