"""What a new user sees: the demo twice, its commands, and everything ended."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
import urllib.request

import pytest

from demo.kafka.brokers import brokers
from tests.support.brokers import cli_environment, run_cli

pytestmark = [pytest.mark.kafka, pytest.mark.story, pytest.mark.timeout(900)]

RECORDS = 336_776 + 16 + 1_458 + 3_322 + 26_115
LIMIT_SECONDS = 600  # It is some 70 s where nothing else runs.


def demo(home, *arguments):
    done = subprocess.run(
        [sys.executable, "-m", "demo", *arguments],
        cwd=home,
        env=cli_environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("demo")
    yield home
    demo(home, "down")


@pytest.fixture(scope="module")
def told(home):
    return demo(home)


def test_the_demo_mirrors_every_record_and_proves_it(told):
    assert f"{RECORDS:,} records: 0 lost, 0 duplicated, 0 reordered, 0 altered" in told
    assert re.search(r"flights +us-east\.flights( +336,781){3} +0 *\n", told)


def test_the_demos_group_resumes_at_its_very_next_record(told):
    assert "same next record on both sides: 0 read again, 0 skipped" in told
    sides = re.findall(r"(us-east|eu-west) +([\d,]+) +(\S.*?2013-\d\d-\d\d \d\d:\d\d)", told)
    here = [record for alias, _, record in sides if alias == "us-east"]
    there = [record for alias, _, record in sides if alias == "eu-west"]
    assert len(here) == 5
    assert here == there


def test_a_second_demo_copies_nothing_twice(home, told):
    again = demo(home)

    assert "Nothing was copied" in again
    assert f"{RECORDS:,} records: 0 lost, 0 duplicated, 0 reordered, 0 altered" in again


def test_the_demos_file_works_with_every_command(home, told):
    properties = home / ".demo" / "mm2.properties"
    status = run_cli("status", "--config", properties, "--format", "json")
    flow = json.loads(status.stdout)["flows"][0]

    assert flow["flow"] == "us-east->eu-west"
    assert sum(partition["lag"] for partition in flow["partitions"]) == 0
    assert run_cli("config", "check", "--config", properties).returncode == 0


def test_the_demo_goes_on_after_its_brokers_were_killed_and_its_lake_deleted(home, told):
    for broker in brokers(home / ".demo" / "kafka"):
        broker.kill()
    shutil.rmtree(home / ".demo" / "lake")

    mended = demo(home)

    assert f"{RECORDS:,} records were on the target: found, not sent again" in mended
    assert f"{RECORDS:,} records: 0 lost, 0 duplicated, 0 reordered, 0 altered" in mended


def test_the_ui_serves_the_demo_until_it_is_asked_to_end(home, told):
    ui = subprocess.Popen(
        [sys.executable, "-m", "demo.dagster_ui"],
        cwd=home,
        env=cli_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        said = ""
        give_up_at = time.monotonic() + 150
        while (found := re.search(r"http://127\.0\.0\.1:\d+", said)) is None:
            assert time.monotonic() < give_up_at, said
            line = ui.stdout.readline()
            assert line, said
            said += line
        with urllib.request.urlopen(f"{found[0]}/server_info", timeout=30) as answer:
            assert "dagster_version" in json.load(answer)

        assert "Dagster" in demo(home, "down")
        assert ui.wait(60) == 0
    finally:
        ui.kill()
        ui.communicate()
