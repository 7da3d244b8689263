"""The newest release of confluent-kafka whose memory is not known carries what the docs say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import confluent_kafka
import pytest

from resources.librdkafka.bindings import KNOWN_VERSION
from tests.stories.staging.test_record_fidelity import CODECS, FEW, RECORDS
from tests.support.brokers import ROOT, Record, create_topic, produce, produce_exactly, run_cli
from tests.support.log_segment import read_log
from tests.support.world import World

pytestmark = [pytest.mark.kafka, pytest.mark.story]

# Each release of confluent-kafka brings a librdkafka of its own, mostly of the same number.
OTHER = f"confluent-kafka!={confluent_kafka.__version__},!={KNOWN_VERSION}"
LIMITED = ("header key with NUL", "timestamp 0")
EXACT = [param.values[0] for param in RECORDS if param.id not in LIMITED]
LATE, NUL = Record(b"k", b"v", timestamp=0), Record(b"k", b"v", [(b"a\0b", b"x"), ("a", b"y")], 5)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return an environment in which another release is found first, and its librdkafka."""
    folder = tmp_path_factory.mktemp("client")
    uv = [str(Path(sys.executable).with_name("uv")), "pip", "install"]
    where = ["--python", sys.executable, "--target", str(folder)]
    how = ["--no-deps", "--only-binary", "confluent-kafka"]
    subprocess.run([*uv, *where, *how, OTHER], check=True, timeout=300)
    env = {"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}
    ask = "import confluent_kafka; print(confluent_kafka.libversion()[0])"
    reported = subprocess.run(
        [sys.executable, "-c", ask], env={**os.environ, **env}, capture_output=True, check=True
    )
    assert reported.stdout.decode().strip() != KNOWN_VERSION
    return {**env, "LIBRDKAFKA": reported.stdout.decode().strip()}


def test_another_release_of_the_client_carries_records_unchanged(world, names, other):
    odd = names("odd")
    codecs = {codec: names(f"codec-{codec}") for codec in CODECS}
    story: World = world(odd, *codecs.values())
    servers = story.source.bootstrap_servers
    create_topic(servers, odd)
    produce_exactly(servers, odd, EXACT)
    for codec, topic in codecs.items():
        create_topic(servers, topic, compression_type=codec)
        produce(servers, topic, FEW)

    _run(story, other, "run", "--until-caught-up", code=0)

    assert [r[1:] for r in read_log(story.target.home, story.remote(odd))] == [
        r[1:] for r in read_log(story.source.home, odd)
    ]
    done = _run(story, other, "verify", "--format", "json", code=0)
    found = json.loads(done.stdout)
    assert [found[n] for n in ("records", "lost", "duplicated", "reordered", "altered")] == [
        len(EXACT) + len(CODECS) * len(FEW), 0, 0, 0, 0
    ]  # fmt: skip


def test_another_release_of_the_client_refuses_timestamp_0_by_name_and_cuts_a_key_at_its_nul(
    world, names, other
):
    late, nul = names("late"), names("nul")
    story: World = world(late, nul)
    for topic, records in ((late, [EXACT[0], LATE]), (nul, [NUL])):
        create_topic(story.source.bootstrap_servers, topic)
        produce_exactly(story.source.bootstrap_servers, topic, records)

    done = _run(story, other, "run", "--until-caught-up", code=1)

    mine = f"librdkafka {other['LIBRDKAFKA']}"
    assert done.stderr.count(f"{mine} is not release {KNOWN_VERSION}, the only one") == 1
    refusal = f"timestamp 0 cannot be written with {mine}"
    lines = [line for line in done.stderr.splitlines() if refusal in line]
    assert lines
    assert all(f"{story.remote(late)}[0]" in line and "offset 1 of" in line for line in lines)
    assert story.arrived(late) == []
    (cut,) = read_log(story.target.home, story.remote(nul))
    assert cut[1:] == (5, b"k", b"v", [(b"a", b"x"), (b"a", b"y")])

    assert story.cli("run", "--until-caught-up").returncode == 0
    assert [r.timestamp for r in read_log(story.target.home, story.remote(late))][1] == 0


def _run(
    story: World, other: dict[str, str], *command: str, code: int
) -> subprocess.CompletedProcess[str]:
    """Run *command* with another release of the client; it ends with exit code *code*."""
    done = run_cli(*command, "--config", str(story.path), env=other, timeout=150)
    assert done.returncode == code, done.stderr
    return done
