import json

import pytest
from click.testing import CliRunner

from demo.kafka.__main__ import main as kafka


def run(*arguments):
    done = CliRunner().invoke(kafka, [str(argument) for argument in arguments])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.kafka
def test_up_names_the_brokers_it_started_and_down_those_it_stopped(tmp_path):
    try:
        answer = json.loads(run("up", "east", "--home", tmp_path, "--format", "json"))
        assert [broker["name"] for broker in answer["brokers"]] == ["east"]
        assert answer["brokers"][0]["bootstrap_servers"] in run("up", "east", "--home", tmp_path)
    finally:
        stopped = json.loads(run("down", "--home", tmp_path, "--format", "json"))
    assert stopped == {"stopped": ["east"]}


def test_down_says_when_there_is_nothing_to_stop(tmp_path):
    assert "no broker runs" in run("down", "--home", tmp_path)
