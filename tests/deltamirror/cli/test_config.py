import json

import pytest

from deltamirror.cli.app import CommandLine
from deltamirror.cli.config import config_group

BASE = "clusters=A,B\nA.bootstrap.servers=a:1\nB.bootstrap.servers=b:1\nA->B.enabled=true\n"


@pytest.fixture
def run(tmp_path, capsys):
    def command(text, *more):
        path = tmp_path / "mm2.properties"
        path.write_text(BASE + text)
        main = CommandLine("deltamirror", commands={"config": config_group})
        with pytest.raises(SystemExit) as ended:
            main.main(["config", "check", "--config", str(path), *more])
        out, err = capsys.readouterr()
        return ended.value.code, out, err

    return command


def test_a_good_file_is_listed_and_ends_with_0(run):
    code, out, _ = run("B.producer.buffer.memory=1048576\n", "--format", "json")

    assert code == 0
    assert json.loads(out)["keys"][-1] == {
        "key": "B.producer.buffer.memory",
        "value": "1048576",
        "status": "translated",
        "note": "librdkafka: queue.buffering.max.kbytes=1024",
    }


@pytest.mark.parametrize("line", ["topcs=x", "transforms=mask"])
def test_an_unknown_or_refused_key_is_listed_and_ends_with_2(run, line):
    code, out, _ = run(line, "--format", "json")

    assert code == 2
    assert json.loads(out)["keys"][-1]["status"] in ("unknown", "refused")


def test_keys_that_contradict_each_other_are_an_error(run):
    code, out, _ = run("clusters=A,B,C\n", "--format", "json")

    assert code == 2
    assert json.loads(out)["error"]["type"] == "RefusedKeyError"


def test_the_table_shows_every_key_and_no_secret(run):
    code, out, _ = run("A.ssl.key.password=hunter2\n")

    assert code == 0
    assert "A.ssl.key.password" in out
    assert "hunter2" not in out
