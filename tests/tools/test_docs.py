from pathlib import Path

import pytest

from schemas.config.client_keys import ROLES, client_names
from schemas.config.flow_keys import KEYS
from schemas.config.worker_keys import worker_names
from schemas.monitoring.metrics import METRICS
from tools.docs.__main__ import PAGES, main, page

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize("name", PAGES)
def test_a_page_made_from_the_code_is_up_to_date(name):
    assert (DOCS / name).read_text(encoding="utf-8") == page(name), "run `make docs`"


@pytest.mark.parametrize("names", [KEYS, worker_names(), *map(client_names, ROLES)])
def test_every_key_is_documented(names):
    text = page("configuration.md")

    assert [name for name in names if f"`{name}`" not in text] == []


def test_every_page_is_written(tmp_path):
    main(tmp_path)

    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(PAGES)


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_is_documented(name):
    assert f"`{name}`" in page("metrics.md")
