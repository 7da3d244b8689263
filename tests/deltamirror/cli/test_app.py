"""Output of commands and of their errors, as a table and as JSON."""

import json
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner
from rich.table import Table

from deltamirror.cli.app import CommandLine, common_options
from deltamirror.cli.main import main
from schemas.errors.configuration import ConfigFileError
from schemas.errors.lake import LakeError


@click.group(cls=CommandLine)
@common_options
def group():
    """A command line for this test."""


@group.command()
@click.option("--raises")
@common_options
@click.pass_context
def act(context, raises):
    table = Table("topic")
    table.add_row("orders[a]")
    match raises:
        case "lake":
            raise LakeError("the lake is shut")
        case "config":
            raise ConfigFileError("mm2.properties", reason="is missing")
        case "interrupt":
            raise KeyboardInterrupt
        case "defect":
            raise TypeError("password=hunter2")
    context.obj.show({"topic": "orders", "path": str(context.obj.path)}, table)
    if raises == "found":
        context.exit(1)


def run(*args):
    return CliRunner().invoke(group, args)


def test_an_answer_is_a_table_for_people():
    result = run("act")

    assert result.exit_code == 0
    assert "orders[a]" in result.stdout


@pytest.mark.parametrize("args", [("--format", "json", "act"), ("act", "--format", "json")])
def test_format_is_understood_before_and_after_the_command(args):
    result = run(*args)

    assert json.loads(result.stdout)["topic"] == "orders"


def test_the_config_named_after_the_command_wins():
    result = run("--config", "a", "--format", "json", "act", "--config", "b")

    assert json.loads(result.stdout)["path"] == "b"


def test_the_environment_variable_sets_the_config_unless_an_option_does(monkeypatch):
    monkeypatch.setenv("DELTAMIRROR_CONFIG", "elsewhere.properties")

    assert json.loads(run("act", "--format", "json").stdout)["path"] == "elsewhere.properties"
    assert json.loads(run("act", "--format", "json", "--config", "c").stdout)["path"] == "c"


@pytest.mark.parametrize(("raises", "code"), [("lake", 1), ("config", 2), ("found", 1)])
def test_the_exit_code_is_1_for_a_failure_and_2_for_a_wrong_configuration(raises, code):
    assert run("act", "--raises", raises).exit_code == code


def test_an_error_is_one_line_and_a_hint_on_stderr():
    result = run("act", "--raises", "lake")

    assert result.stdout == ""
    assert result.stderr.splitlines() == ["error: the lake is shut", f"hint:  {LakeError.hint}"]


@pytest.mark.parametrize(
    ("args", "kind"),
    [
        pytest.param(("act", "--raises", "lake"), "LakeError", id="a failure"),
        pytest.param(("act", "--nonsense"), "UsageError", id="an unknown option"),
        pytest.param(("act", "--raises", "defect"), "TypeError", id="a defect"),
    ],
)
def test_an_error_for_a_script_is_one_json_object(args, kind):
    result = run(*args, "--format", "json")

    error = json.loads(result.stdout)["error"]
    assert error["type"] == kind
    assert set(error) == {"type", "message", "hint"}


def test_wrong_usage_ends_with_2_and_names_the_help():
    result = run("act", "--nonsense")

    assert result.exit_code == 2
    assert "act --help" in result.stderr


def commands(found=main, path=()):
    yield path
    for name, command in getattr(found, "commands", {}).items():
        yield from commands(command, (*path, name))


@pytest.mark.parametrize("path", list(commands()), ids=" ".join)
def test_the_help_of_each_command_has_an_example_on_one_line(path):
    text = CliRunner().invoke(main, [*path, "--help"], terminal_width=80).stdout

    assert f"  Example: {' '.join(('deltamirror', *path))} " in text
    assert text.count("\n", text.index("Example: ")) == 1


@pytest.mark.parametrize("args", [pytest.param((), id="deltamirror"), pytest.param(("groups",))])
def test_a_group_of_commands_without_a_command_prints_its_help_and_ends_with_2(args):
    result = CliRunner().invoke(main, args)

    assert result.exit_code == 2
    assert "Usage: " in result.output
    assert "Commands:" in result.output
    assert "error:" not in result.output


def test_an_interrupt_ends_with_130_and_without_a_traceback():
    result = run("act", "--raises", "interrupt")

    assert result.exit_code == 130
    assert "Traceback" not in result.output


def test_an_unexpected_error_is_reported_without_its_text_which_could_hold_a_secret():
    result = run("act", "--raises", "defect")

    assert result.exit_code == 1
    assert "unexpected TypeError (test_app.py, line" in result.stderr
    assert "hunter2" not in result.output


def test_an_unexpected_error_shows_its_traceback_in_debug_mode(monkeypatch):
    monkeypatch.setenv("DELTAMIRROR_DEBUG", "1")

    assert "Traceback" in run("act", "--raises", "defect").stderr


def test_help_needs_neither_dagster_nor_spark_nor_the_lake():
    heavy = "{'dagster', 'pyspark', 'deltalake', 'pyarrow'}"
    code = (
        "import sys; from deltamirror.cli.main import main\n"
        "try: main(['--help'])\n"
        f"except SystemExit: print({heavy} & set(sys.modules))"
    )

    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert result.returncode == 0, result.stderr
    assert "Usage: " in result.stdout
    assert result.stdout.endswith("set()\n")
