import pytest
from click.testing import CliRunner

from demo.kafka.__main__ import main as kafka
from demo.kafka.brokers import brokers


def run(*arguments):
    done = CliRunner().invoke(kafka, [str(argument) for argument in arguments])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.kafka
def test_up_prints_addresses_and_down_prints_the_brokers_that_it_stopped(tmp_path):
    try:
        started = run("up", "east", "--home", tmp_path)
        (east,) = brokers(tmp_path)
        assert (
            started == f"east  {east.bootstrap_servers}\n" == run("up", "east", "--home", tmp_path)
        )
    finally:
        stopped = run("down", "--home", tmp_path)
    assert stopped == "stopped east\n"


def test_down_reports_that_no_broker_runs(tmp_path):
    assert "no broker runs" in run("down", "--home", tmp_path)
