"""A user's mistake, or a place that is broken: one clear sentence, what to do, no traceback."""

from __future__ import annotations

import fcntl
import socket

import pytest

from tests.support.brokers import run_cli

FILE = """
clusters = us-east, eu-west
us-east.bootstrap.servers = {source}
eu-west.bootstrap.servers = {target}
us-east->eu-west.enabled = true
us-east->eu-west.topics = nothing-of-this-name
replication.factor = 1
emit.heartbeats.enabled = false
"""


@pytest.fixture
def nobody():
    """An address of this machine where nothing listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


@pytest.fixture
def file(tmp_path, nobody):
    """A file that is right, of clusters that do not answer."""
    path = tmp_path / "mm2.properties"
    path.write_text(FILE.format(source=nobody, target=nobody))
    return path


def _told(done, code, *words):
    """Assert that a command ended with *code* and one sentence that holds *words*."""
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, done.stderr
    assert all(word in done.stderr for word in words), done.stderr


def test_a_missing_file_is_reported_with_its_name(tmp_path):
    done = run_cli("status", "--config", str(tmp_path / "none.properties"))

    _told(done, 2, "none.properties")


def test_an_unknown_key_is_reported_with_the_nearest_known_key(file):
    file.write_text(file.read_text() + "replication.facto = 2\n")

    _told(run_cli("status", "--config", str(file)), 2, "replication.facto", "replication.factor")


def test_an_unknown_alias_in_a_flow_is_reported(file):
    file.write_text(file.read_text() + "us-east->mars.enabled = true\n")

    _told(run_cli("status", "--config", str(file)), 2, "mars")


def test_an_unknown_flow_is_reported_with_the_known_flows(file):
    done = run_cli("run", "--flow", "a->b", "--config", str(file))

    _told(done, 2, "a->b", "us-east->eu-west")


def test_a_run_without_an_enabled_flow_is_an_error(file):
    file.write_text(file.read_text().replace("enabled = true", "enabled = false"))

    _told(run_cli("run", "--config", str(file)), 2, "no flow is enabled")


def test_an_unreachable_broker_is_reported_at_once(file, nobody):
    done = run_cli("run", "--until-caught-up", "--config", str(file), timeout=60)

    _told(done, 1, nobody, "does not answer")


def test_a_lake_that_another_process_replays_is_reported(file):
    leases = file.parent / "lake" / "leases"
    leases.mkdir(parents=True)
    with (leases / "replay_us-east__eu-west.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = run_cli("run", "--until-caught-up", "--config", str(file), timeout=60)

    _told(done, 1, "another process")


def test_a_lake_that_is_not_a_folder_is_reported(file):
    (file.parent / "lake").write_text("this is a file")

    done = run_cli("run", "--until-caught-up", "--config", str(file), timeout=60)

    _told(done, 1, "lake")


def test_a_damaged_table_of_the_lake_is_reported(file):
    log = file.parent / "lake" / "flows" / "us-east__eu-west" / "offset_map" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_text("this is no commit\n")

    done = run_cli("run", "--until-caught-up", "--config", str(file), timeout=60)

    _told(done, 1, "offset_map")


@pytest.mark.kafka
def test_missing_java_is_reported(file, source, target, tmp_path):
    file.write_text(FILE.format(source=source.bootstrap_servers, target=target.bootstrap_servers))
    nothing = tmp_path / "bin"
    nothing.mkdir()
    environment = {"PATH": str(nothing), "JAVA_HOME": str(nothing)}

    done = run_cli("run", "--until-caught-up", "--config", str(file), env=environment, timeout=60)

    _told(done, 1, "Java")


def test_an_error_as_json_is_one_object_on_stdout(file):
    import json

    done = run_cli("run", "--flow", "a->b", "--config", str(file), "--format", "json")

    error = json.loads(done.stdout)["error"]
    assert set(error) == {"type", "message", "hint"}
    assert done.returncode == 2


def test_a_wrong_command_creates_no_files(file):
    before = set(file.parent.iterdir())

    run_cli("run", "--flow", "a->b", "--config", str(file))

    assert set(file.parent.iterdir()) == before
