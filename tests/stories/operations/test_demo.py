"""Run the demo like a new user: twice, its commands, its Dagster, and `make down`."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from urllib.error import URLError

import pytest

from demo.kafka.brokers import brokers
from tests.support.brokers import cli_environment, run_cli

pytestmark = [pytest.mark.kafka, pytest.mark.story, pytest.mark.timeout(900)]

RECORDS = 336_776 + 16 + 1_458 + 3_322 + 26_115
LIMIT_SECONDS = 600  # It takes about 70 s if nothing else runs.
VERIFIED = f"verified {RECORDS:,} records: 0 lost, 0 duplicated, 0 reordered, 0 altered"


def start_demo(home, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "demo", *arguments],
        cwd=home,
        env=cli_environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )


def demo(home, *arguments):
    done = start_demo(home, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not re.search(r"ERROR|Traceback|error:", done.stderr), done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("demo")
    yield home
    demo(home, "down")


@pytest.fixture(scope="module")
def output(home):
    return demo(home)


def test_the_demo_mirrors_every_record_and_proves_it(output):
    assert f"staged {RECORDS:,} records, replayed {RECORDS:,} records" in output
    assert VERIFIED in output


def test_the_demos_group_resumes_at_its_very_next_record(output):
    assert "same next record on both clusters: 0 read again, 0 skipped" in output
    assert len(re.findall(r"flights\[\d\] +next on both clusters: .*2013-", output)) == 5
    assert "flights[1] is empty" in output


def test_a_demo_prints_each_command_that_it_runs(output):
    commands = re.findall(r"^\$ deltamirror (.*)$", output, re.M)

    assert commands == [
        "run --until-caught-up",
        "status",
        "groups snapshot",
        "translate --flow 'us-east->eu-west' --group billing",
        "verify",
    ]


def test_a_second_demo_copies_nothing_twice(home, output):
    again = demo(home)

    assert "staged 0 records, replayed 0 records" in again
    assert VERIFIED in again


def test_the_demos_file_works_with_other_commands(home, output):
    properties = home / ".demo" / "mm2.properties"
    status = run_cli("status", "--config", properties, "--format", "json")
    flow = json.loads(status.stdout)["flows"][0]

    assert flow["flow"] == "us-east->eu-west"
    assert sum(partition["lag"] for partition in flow["partitions"]) == 0
    assert run_cli("config", "check", "--config", properties).returncode == 0


def test_the_demo_resumes_after_its_brokers_were_killed_and_its_lake_deleted(home, output):
    for broker in brokers(home / ".demo" / "kafka"):
        broker.kill()
    shutil.rmtree(home / ".demo" / "lake")

    again = demo(home)

    assert f"staged {RECORDS:,} records" in again
    assert VERIFIED in again


def test_the_demo_fails_if_a_command_fails(home, output):
    properties = home / ".demo" / "mm2.properties"
    before = properties.read_text()
    properties.write_text(before + "us-east->eu-west.topicz = orders\n")
    try:
        failed = start_demo(home)
    finally:
        properties.write_text(before)

    assert failed.returncode == 1
    assert "`deltamirror run --until-caught-up` ended with exit code 2" in failed.stderr


def test_the_ui_serves_the_demo_until_make_down(home, output):
    ui = subprocess.Popen(
        [sys.executable, "-m", "demo.dagster_ui"],
        cwd=home,
        env=cli_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        log = ""
        give_up_at = time.monotonic() + 150
        while (found := re.search(r"http://127\.0\.0\.1:\d+", log)) is None:
            assert time.monotonic() < give_up_at, log
            line = ui.stdout.readline()
            assert line, log
            log += line
        assert "dagster_version" in server_info(found[0], give_up_at)

        assert "Dagster" in demo(home, "down")
        assert ui.wait(60) == 0
    finally:
        # SIGTERM, so that Dagster ends its own processes: they hold the pipe.
        ui.terminate()
        ui.communicate()


def server_info(address, give_up_at):
    """Return the web server's answer. It prints its address before it listens."""
    while True:
        try:
            with urllib.request.urlopen(f"{address}/server_info", timeout=30) as answer:
                return json.load(answer)
        except URLError:
            assert time.monotonic() < give_up_at
            time.sleep(0.2)
