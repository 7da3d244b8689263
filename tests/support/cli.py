"""Run a command of `deltamirror` in this process."""

import json

from click.testing import CliRunner

from deltamirror.cli.main import main


def run(*args, code=0):
    result = CliRunner().invoke(main, args)
    assert result.exit_code == code, result.output
    return result


def answer(*args, code=0):
    return json.loads(run(*args, "--format", "json", code=code).stdout)
