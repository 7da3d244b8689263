"""Write the pages of docs/ that are made from the code: `python -m tools.docs`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from tools.docs.configuration import configuration_page
from tools.docs.metrics import metrics_page
from tools.docs.tables import tables_page

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES: Mapping[str, Callable[[], str]] = {
    "configuration.md": configuration_page,
    "metrics.md": metrics_page,
    "tables.md": tables_page,
}
NOTICE = "<!-- Made from the code by `make docs`: change the code, not this page. -->\n\n"


def page(name: str) -> str:
    """Return the page *name* as the code has it now."""
    return NOTICE + PAGES[name]()


def main(folder: Path = DOCS) -> None:
    """Write every page into *folder*."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in PAGES:
        (folder / name).write_text(page(name), encoding="utf-8")
        sys.stdout.write(f"wrote {folder.name}/{name}\n")


if __name__ == "__main__":
    main()
