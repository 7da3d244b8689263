"""Record a first run of the demo as docs/images/demo.svg: part of `make pictures`."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "images" / "demo.svg"


def main() -> int:
    """Run the demo in a new folder, record its output and return its exit code."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "FORCE_COLOR": "1"}
    demo = [sys.executable, "-m", "demo"]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            demo, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        subprocess.run([*demo, "down"], cwd=folder, env=environment)
    text = Text.from_ansi("$ make demo\n" + done.stdout.decode())
    width = max(line.cell_len for line in text.split("\n"))
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True)
    console.print(text)
    console.save_svg(str(PAGE), title="make demo", theme=MONOKAI)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
