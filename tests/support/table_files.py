"""The data files of a table: merge some of them, delete some of them."""

import pytest

from resources.delta import table_maintenance
from resources.delta.table import file_order
from resources.delta.table_maintenance import optimize


def optimize_files(table, rank):
    """Optimize *table*; only its smallest files are small: *rank* of them, and those of no more."""
    table.refresh()
    sizes = sorted(file.size_bytes for file in table.live.values())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_maintenance, "MIN_SMALL_FILES", 2)
        patch.setattr(table_maintenance, "SMALL_FILE_BYTES", [0, *sizes][: rank + 1][-1] + 1)
        return optimize(table)


def paths_by_age(table):
    """Return the live data files of *table*, the ones with the oldest rows first."""
    table.refresh()
    return [table.path / path for path in sorted(table.live, key=lambda p: (file_order(p), p))]
