"""Command framework: common options, output format, errors and exit codes.

A command takes `@common_options` and `@click.pass_obj` (a `Console`). It prints its answer to
stdout with one call of `Console.show`. Logs and errors go to stderr. With `--format json` stdout
holds one JSON object and nothing else. If the command fails, this object is
`{"error": {"type", "message", "hint"}}`.

Exit codes: 0 done, 1 failed or found something (`ctx.exit(1)` after the answer), 2 bad usage or
configuration, 130 interrupted.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click
from click.exceptions import NoArgsIsHelpError
from rich.console import Console as Rich
from rich.console import RenderableType

from schemas.config.config import CONFIG_VARIABLE
from schemas.errors.base import ConfigError, DeltamirrorError

if TYPE_CHECKING:
    from deltamirror.context import MirrorContext
    from schemas.config.config import Config

Command = TypeVar("Command", bound=Callable[..., Any])

DEBUG_VARIABLE = "DELTAMIRROR_DEBUG"

# Tables in a file or a pipe are not limited to the 80 columns of a terminal.
PIPE_WIDTH = 200


class Console:
    """Configuration file and output format of a command."""

    def __init__(self) -> None:
        self.path = Path(os.environ.get(CONFIG_VARIABLE, "mm2.properties"))
        self.format = "table"

    def config(self) -> Config:
        """Return the configuration. Raises ConfigError if the file is invalid."""
        from resources.config.load import read_config

        return read_config(self.path)

    @contextmanager
    def open_context(self) -> Iterator[MirrorContext]:
        """Yield the context of the configuration, and close it at the end."""
        from deltamirror.context import MirrorContext

        with closing(MirrorContext(self.config())) as context:
            yield context

    def show(
        self, data: Mapping[str, Any], table: RenderableType | Callable[[], RenderableType]
    ) -> None:
        """Print *data* as JSON, or *table* with rich. *table* may be a function that returns it."""
        if self.format == "json":
            click.echo(json.dumps(data, indent=2))
            return
        width = None if sys.stdout.isatty() else PIPE_WIDTH
        # rich would read a name such as `orders[a]` as markup.
        rich = Rich(markup=False, highlight=False, width=width)
        rich.print(table() if callable(table) else table)

    def print_error(self, kind: str, message: str, hint: str) -> None:
        """Print an error and its hint: two lines on stderr, or one JSON object on stdout."""
        if self.format == "json":
            error = {"type": kind, "message": message, "hint": hint}
            click.echo(json.dumps({"error": error}, indent=2))
            return
        click.echo(f"error: {message}", err=True)
        if hint:
            click.echo(f"hint:  {hint}", err=True)


def common_options(command: Command) -> Command:
    """Add `--config` and `--format` to *command*.

    Both are allowed before and after the command's name. The option after the name wins.
    """

    def set_on_console(context: click.Context, option: click.Parameter, value: object) -> None:
        if value is not None:
            setattr(context.ensure_object(Console), str(option.name), value)

    config = click.option(
        "--config",
        "path",
        type=click.Path(path_type=Path, dir_okay=False),
        callback=set_on_console,
        expose_value=False,
        help="The configuration file, in MirrorMaker 2's format.  "
        f"[default: ${CONFIG_VARIABLE}, else ./mm2.properties]",
    )
    output = click.option(
        "--format",
        type=click.Choice(["table", "json"]),
        callback=set_on_console,
        expose_value=False,
        help="Print a table for people or JSON for scripts.  [default: table]",
    )
    return config(output(command))


class CommandLine(click.Group):
    """Click group that prints every error as a message and a hint, without a traceback."""

    def main(self, args: Sequence[str] | None = None, *_: object, **extra: Any) -> NoReturn:  # noqa: ANN401 - click's own
        """Run the command in *args* and end the process with its exit code."""
        console = Console()
        extra |= {"standalone_mode": False, "obj": console}
        args = sys.argv[1:] if args is None else list(args)
        try:
            code = super().main(args, **extra)
        except Exception as error:
            # Click raises a usage error before it has processed `--format`.
            asks_for_json = "--format=json" in args or ("--format", "json") in pairwise(args)
            if isinstance(error, click.UsageError) and asks_for_json:
                console.format = "json"
            sys.exit(_print_exception(console, error))
        # Without standalone mode click returns the code of `ctx.exit(code)`.
        sys.exit(code if isinstance(code, int) else 0)


def _print_exception(console: Console, error: Exception) -> int:
    """Print *error* and return its exit code."""
    if isinstance(error, click.Abort):  # Ctrl-C
        return 130
    if isinstance(error, NoArgsIsHelpError):
        error.show()
        return error.exit_code
    if isinstance(error, click.UsageError):
        help_of = error.ctx.command_path if error.ctx else "deltamirror"
        console.print_error("UsageError", error.format_message(), f"See `{help_of} --help`.")
        return 2
    if isinstance(error, click.ClickException):
        console.print_error(type(error).__name__, error.format_message(), "")
        return error.exit_code
    if isinstance(error, DeltamirrorError):
        console.print_error(error.kind, str(error), error.hint)
        return 2 if isinstance(error, ConfigError) else 1
    if os.environ.get(DEBUG_VARIABLE):
        traceback.print_exception(error)
    # The text of an unexpected error may hold a secret. Its type and its source line do not.
    at, kind = traceback.extract_tb(error.__traceback__)[-1], type(error).__name__
    where = f"{Path(at.filename).name}, line {at.lineno}"
    message = f"unexpected {kind} ({where}): this is a defect of deltamirror"
    hint = f"Set {DEBUG_VARIABLE}=1 to print the traceback, and report the defect with it."
    console.print_error(kind, message, hint)
    return 1
