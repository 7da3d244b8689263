"""Dagster's UI with real brokers: materialize a topic, mirror, terminate."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request

import dagster as dg
import pytest

from assets.definitions import build_definitions
from deltamirror.context import MirrorContext
from deltamirror.run.single_topic import stage_topic
from deltamirror.run.supervisor import Mirror
from resources.config.load import read_config
from resources.coordination.lease import Lease
from resources.spark.session import SparkWorkers
from schemas.errors.lake import LeaseHeldError
from schemas.errors.source import TopicMissingError
from tests.support.brokers import (
    Record,
    cli_environment,
    consume_all,
    create_topic,
    produce,
    run_cli,
)

pytestmark = [pytest.mark.kafka, pytest.mark.story]

START_SECONDS = 200
RUN_SECONDS = 240


@pytest.fixture
def path(tmp_path, source, target, lake, unique_topic):
    path = tmp_path / "mm2.properties"
    path.write_text(f"""
clusters = us-east, eu-west
us-east.bootstrap.servers = {source.bootstrap_servers}
eu-west.bootstrap.servers = {target.bootstrap_servers}
us-east->eu-west.enabled = true
us-east->eu-west.topics = {unique_topic}
us-east->eu-west.groups = no-such-group
replication.factor = 1
checkpoints.topic.replication.factor = 1
emit.heartbeats.enabled = false
deltamirror.lake = {lake}
""")
    return path


@pytest.fixture
def topic(source, unique_topic):
    """A topic of two partitions with 70 records."""
    create_topic(source.bootstrap_servers, unique_topic, partitions=2)
    write(source, unique_topic, 70)
    return unique_topic


def write(source, topic, count):
    records = [Record(b"k%d" % n, b"v%d" % n, partition=n % 2) for n in range(count)]
    produce(source.bootstrap_servers, topic, records)


def values(broker, topic):
    return [(m.partition(), m.value()) for m in consume_all(broker.bootstrap_servers, topic)]


# In this process


@pytest.fixture
def defs(path):
    return build_definitions(path)


@pytest.fixture
def instance():
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def materialize(defs, instance):
    """Materialize an asset of the file, for one topic, and return its metadata as numbers."""

    def run(owner, name, topic=None):
        if topic:
            instance.add_dynamic_partitions(f"{owner}__topics", [topic])
        assets = [defs.resolve_assets_def(dg.AssetKey([owner, name]))]
        done = dg.materialize(assets, instance=instance, partition_key=topic)
        (event,) = done.asset_materializations_for_node(f"{owner}__{name}".replace("-", "_"))
        return {name: entry.value for name, entry in event.metadata.items()}

    return run


def test_a_topic_is_staged_and_then_replayed_by_two_materializations(
    materialize, source, target, topic
):
    staged = materialize("us-east", "records", topic)
    assert (staged["records"], staged["dagster/row_count"], staged["lag"]) == (70, 70, 0)
    assert (staged["first_offset"], staged["last_offset"], staged["gaps"]) == (0, 34, 0)

    replayed = materialize("us-east__eu-west", "offset_map", topic)
    assert (replayed["records"], replayed["dagster/row_count"], replayed["lag"]) == (70, 70, 0)
    assert values(target, f"us-east.{topic}") == values(source, topic)

    write(source, topic, 10)
    assert materialize("us-east", "records", topic)["records"] == 10
    again = materialize("us-east__eu-west", "offset_map", topic)
    assert (again["records"], again["dagster/row_count"]) == (10, 80)
    assert values(target, f"us-east.{topic}") == values(source, topic)

    assert materialize("us-east__eu-west", "offset_map", topic)["records"] == 0


def test_the_other_assets_and_the_jobs_work_on_mirrored_topics(
    materialize, defs, instance, target, topic
):
    materialize("us-east", "records", topic)
    materialize("us-east__eu-west", "offset_map", topic)

    assert materialize("us-east", "group_offsets")["groups"] == 0
    assert materialize("us-east__eu-west", "checkpoints")["changed_offsets"] == 0
    lag = materialize("us-east__eu-west", "lag")
    assert (lag["a_total_lag"], lag[f"lag/{topic}"]) == (0, 0)
    found = materialize("us-east__eu-west", "verification")
    assert (found["records"], found["lost"], found["altered"]) == (70, 0, 0)

    audit = f"audit.{topic}"
    config = {"topic": topic, "target_topic": audit, "to_offset": 10, "dry_run": False}
    replayed = defs.resolve_job_def("replay").execute_in_process(
        run_config={"ops": {"replay_topic": {"config": config}}}, instance=instance
    )
    (event,) = replayed.asset_materializations_for_node("replay_topic")
    assert event.metadata["records"].value == 20
    assert len(values(target, audit)) == 20

    assert defs.resolve_job_def("maintain").execute_in_process(instance=instance).success


def test_a_materialization_waits_for_the_process_that_stages_and_takes_over_when_it_ends(
    path, topic
):
    context = MirrorContext(read_config(path))
    context.lake.ensure_exists()
    holder = Lease(context.lake.root, "stage us-east")
    holder.acquire()
    waiting = threading.Thread(
        target=stage_topic, args=(context, "us-east", topic, SparkWorkers(2))
    )
    waiting.start()
    waiting.join(2)
    assert waiting.is_alive()

    holder.release()
    waiting.join(RUN_SECONDS)

    assert not waiting.is_alive()
    rows = context.lake.segments("us-east").rows(["count"])
    assert sum(rows["count"].to_pylist()) == 70
    context.close()


def test_a_materialization_reports_what_the_running_mirror_staged(path, topic, materialize):
    stop = threading.Event()
    config = read_config(path)
    running = threading.Thread(target=Mirror(config, stop=stop).run)
    running.start()
    try:
        staged = materialize("us-east", "records", topic)
        replayed = materialize("us-east__eu-west", "offset_map", topic)
    finally:
        stop.set()
        running.join(RUN_SECONDS)

    assert staged["dagster/row_count"] == replayed["dagster/row_count"] == 70


def test_dagster_shows_materializations_of_a_run_of_the_command_line(path, topic, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    done = run_cli(
        "run",
        "--until-caught-up",
        env={"DAGSTER_HOME": str(home), "DELTAMIRROR_CONFIG": str(path)},
    )
    assert done.returncode == 0, done.stderr

    with dg.DagsterInstance.from_config(str(home)) as instance:
        for owner, name in (("us-east", "records"), ("us-east__eu-west", "offset_map")):
            event = instance.get_latest_materialization_event(dg.AssetKey([owner, name]))
            materialization = event.asset_materialization
            assert (materialization.partition, materialization.metadata["last_offset"].value) == (
                topic,
                34,
            )
            assert instance.get_dynamic_partitions(f"{owner}__topics") == [topic]


def test_a_missing_topic_is_an_error_with_a_plain_sentence(path, source):
    context = MirrorContext(read_config(path))

    with pytest.raises(TopicMissingError, match="there is no topic nowhere on us-east"):
        stage_topic(context, "us-east", "nowhere", SparkWorkers(2))
    context.close()


# In Dagster's own processes, with the calls of its UI


LAUNCH = """
mutation Launch($params: ExecutionParams!) {
  launchPipelineExecution(executionParams: $params) {
    __typename
    ... on LaunchRunSuccess { run { runId } }
    ... on PythonError { message }
    ... on RunConfigValidationInvalid { errors { message } }
  }
}"""

RUN = """
query Run($id: ID!) {
  runOrError(runId: $id) {
    ... on Run { status eventConnection { events { ... on MessageEvent { message } } } }
  }
}"""

PARTITIONS = """
query Partitions($key: AssetKeyInput!) {
  assetNodeOrError(assetKey: $key) {
    ... on AssetNode {
      partitionKeys
      assetMaterializations {
        partition
        metadataEntries { label ... on IntMetadataEntry { intValue } }
      }
    }
  }
}"""

TERMINATE = """
mutation Terminate($id: String!) {
  terminateRun(runId: $id) { __typename ... on PythonError { message } }
}"""


class Ui:
    """A `dagster dev` of this test, called with the requests of its web pages."""

    def __init__(self, port):
        self.url = f"http://127.0.0.1:{port}"

    def ask(self, query, **variables):
        body = json.dumps({"query": query, "variables": variables}).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}/graphql", body, headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            found = json.load(answer)
        assert "errors" not in found, found
        return found["data"]

    def launch(self, job, topic=None, asset=None):
        selector = {
            "repositoryLocationName": "assets.definitions",
            "repositoryName": "__repository__",
            "jobName": job,
        }
        tags = [{"key": "dagster/partition", "value": topic}] if topic else []
        if asset:
            selector |= {"assetSelection": [{"path": asset}], "assetCheckSelection": []}
        params = {
            "selector": selector,
            "runConfigData": {},
            "mode": "default",
            "executionMetadata": {"tags": tags},
        }
        answer = self.ask(LAUNCH, params=params)["launchPipelineExecution"]
        assert answer["__typename"] == "LaunchRunSuccess", answer
        return answer["run"]["runId"]

    def status(self, run):
        return self.ask(RUN, id=run)["runOrError"]["status"]

    def messages(self, run):
        events = self.ask(RUN, id=run)["runOrError"]["eventConnection"]["events"]
        return [event.get("message") for event in events]

    def end(self, run):
        """Return the final status of *run*."""
        ended = ("SUCCESS", "FAILURE", "CANCELED")
        await_(lambda: self.status(run) in ended, RUN_SECONDS, f"run {run} does not end")
        return self.status(run)

    def asset(self, *path):
        return self.ask(PARTITIONS, key={"path": list(path)})["assetNodeOrError"]

    def numbers(self, *path):
        """Return the newest materialization of an asset: its partition and its numbers."""
        newest = self.asset(*path)["assetMaterializations"][0]
        entries = newest["metadataEntries"]
        return newest["partition"], {e["label"]: e["intValue"] for e in entries if "intValue" in e}


def await_(is_so, seconds, otherwise):
    give_up_at = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < give_up_at, otherwise
        time.sleep(0.3)


@pytest.fixture
def ui(path, tmp_path, topic):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    home = tmp_path / "dagster"
    home.mkdir()
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\nnux: {enabled: false}\n")
    environment = cli_environment(
        {"DAGSTER_HOME": str(home), "DELTAMIRROR_CONFIG": str(path), "PYTHONWARNINGS": "ignore"}
    )
    command = [sys.executable, "-m", "dagster", "dev", "--module-name", "assets.definitions"]
    # A background shell ignores SIGINT. If Dagster inherited this, it would never end.
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    log = tmp_path / "dagster.log"
    with log.open("wb") as output:
        child = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=tmp_path,
            start_new_session=True,
        )
    signal.signal(signal.SIGINT, former)
    found = Ui(port)
    try:
        await_(lambda: child.poll() is not None or is_up(found), START_SECONDS, log.read_text())
        assert child.poll() is None, log.read_text()
        yield found
    finally:
        child.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(30)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait(10)


def is_up(ui):
    with contextlib.suppress(OSError):
        return bool(ui.ask("{ version }"))
    return False


@pytest.mark.timeout(900)
def test_a_topic_is_discovered_materialized_and_mirrored_until_the_mirror_is_terminated(
    ui, source, target, topic, lake
):
    # The discovery sensor adds the topic as a partition, without a manual step.
    for asset in (("us-east", "records"), ("us-east__eu-west", "offset_map")):
        await_(lambda asset=asset: topic in ui.asset(*asset)["partitionKeys"], 90, "not found")

    assert ui.end(ui.launch("__ASSET_JOB", topic, ["us-east", "records"])) == "SUCCESS"
    partition, numbers = ui.numbers("us-east", "records")
    assert (partition, numbers["records"], numbers["dagster/row_count"]) == (topic, 70, 70)

    assert ui.end(ui.launch("__ASSET_JOB", topic, ["us-east__eu-west", "offset_map"])) == "SUCCESS"
    partition, numbers = ui.numbers("us-east__eu-west", "offset_map")
    assert (partition, numbers["records"], numbers["lag"]) == (topic, 70, 0)
    assert values(target, f"us-east.{topic}") == values(source, topic)

    write(source, topic, 20)
    run = ui.launch("mirror")
    await_(
        lambda: ui.numbers("us-east__eu-west", "offset_map")[1]["dagster/row_count"] == 90,
        RUN_SECONDS,
        "the mirror's run reported no materialization",
    )
    ui.ask(TERMINATE, id=run)
    assert ui.end(run) == "CANCELED"

    assert any("ended cleanly" in (message or "") for message in ui.messages(run))
    assert values(target, f"us-east.{topic}") == values(source, topic)
    for role in ("stage us-east", "replay us-east->eu-west"):
        # Dagster reports the end of the run shortly before its process ends.
        await_(lambda role=role: is_free(lake, role), 30, f"{role} is still held")


def is_free(lake, role):
    with contextlib.suppress(LeaseHeldError), Lease(lake, role):
        return True
    return False
