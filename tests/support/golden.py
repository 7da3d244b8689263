"""The JSON that commands print, compared with the JSON that they printed when it was recorded.

The golden files are `tests/support/golden/<name>.json`. To record one again, delete it and run its
test: the test writes the file and fails, so that no file is recorded by mistake.

Commands run through the installed entry point `deltamirror`, so that modules and classes can move.
"""

from __future__ import annotations

import difflib
import json
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from tests.support.brokers import COMMAND_SECONDS, cli_environment

GOLDEN = Path(__file__).parent / "golden"

# Texts change; only their presence is compared.
TEXTS = frozenset({"message", "hint", "note", "error", "detail"})
# Kafka and replays generate these.
IDS = frozenset({"incarnation", "topic_id", "replay_id"})
# They depend on the time, or on how many commits it took. Numbers above 0 are replaced.
NUMBERS = frozenset({"age_ms", "seen_at_ms", "staged_at_ms", "version"})
REPLAY_ID = re.compile(r"\b\d{8}T\d{6}-[0-9a-f]{4}\b")


class Golden:
    """Runs commands on the configuration file *config* and keeps what they printed, by name."""

    def __init__(self, config: Path) -> None:
        self.config = config
        self._calls: dict[str, list[dict[str, Any]]] = {}
        (script,) = entry_points(group="console_scripts", name="deltamirror")
        self._main = script.load()

    def run(self, name: str, *args: str, given: str = "") -> None:
        """Run a command in this process, keep what it printed for the file *name*.

        *given* says in the golden file what the command met.
        """
        done = CliRunner().invoke(self._main, self._arguments(args))
        self._keep(name, args, given, done.exit_code, done.stdout)

    def start(self, name: str, *args: str, given: str = "") -> None:
        """Do the same with the console script, in a process of its own."""
        script = Path(sys.executable).with_name("deltamirror")
        done = subprocess.run(
            [script, *self._arguments(args)],
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            env=cli_environment(),
        )
        self._keep(name, args, given, done.returncode, done.stdout)

    def check(self) -> None:
        """Compare all that was kept with the golden files."""
        problems = [
            found for name, calls in self._calls.items() if (found := _problem(name, calls))
        ]
        assert not problems, "\n".join(problems)

    def _arguments(self, args: tuple[str, ...]) -> list[str]:
        return [*args, "--config", str(self.config), "--format", "json"]

    def _keep(self, name: str, args: tuple[str, ...], given: str, code: int, stdout: str) -> None:
        call = {
            "command": " ".join(args),
            **({"given": given} if given else {}),
            "exit_code": code,
            "output": _fixed(json.loads(stdout)),
        }
        self._calls.setdefault(name, []).append(call)


def _problem(name: str, calls: list[dict[str, Any]]) -> str:
    """Return what differs from the golden file; nothing if nothing does."""
    path = GOLDEN / f"{name}.json"
    now = json.dumps(calls, indent=2) + "\n"
    if not path.exists():
        path.write_text(now)
        return f"{path} was missing and is recorded now: read it, then run the test again"
    recorded = path.read_text().splitlines()
    diff = difflib.unified_diff(recorded, now.splitlines(), path.name, "now", n=8, lineterm="")
    return "\n".join(diff)


def _fixed(value: Any, key: str = "") -> Any:
    """Return *value*, found under *key*, with placeholders for what differs from run to run."""
    if isinstance(value, dict):
        return {name: _fixed(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [_fixed(each, key) for each in value]
    if isinstance(value, str) and value:
        if key in TEXTS:
            return "<text>"
        return f"<{key}>" if key in IDS else REPLAY_ID.sub("<replay_id>", value)
    if key in NUMBERS and type(value) is int and value > 0:
        return f"<{key}>"
    return value
