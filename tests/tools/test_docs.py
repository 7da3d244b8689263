import json
import re
from pathlib import Path

import pytest

from schemas.config.client_keys import ROLES, client_names
from schemas.config.flow_keys import KEYS
from schemas.config.worker_keys import worker_names
from schemas.monitoring.metrics import METRICS
from tools.docs.__main__ import PAGES, main, page
from tools.docs.grafana import ROWS, WIDTH, dashboard

DOCS = Path(__file__).parents[2] / "docs"
DASHBOARD = DOCS.parent / "deploy" / "grafana" / "deltamirror.json"


@pytest.mark.parametrize("name", PAGES)
def test_a_page_made_from_the_code_is_up_to_date(name):
    assert (DOCS / name).read_text(encoding="utf-8") == page(name), "run `make docs`"


@pytest.mark.parametrize("names", [KEYS, worker_names(), *map(client_names, ROLES)])
def test_every_key_is_documented(names):
    text = page("configuration.md")

    assert [name for name in names if f"`{name}`" not in text] == []


def test_every_page_is_written(tmp_path):
    main(tmp_path / "docs", tmp_path / "dashboard.json")

    assert sorted(path.name for path in (tmp_path / "docs").iterdir()) == sorted(PAGES)
    assert (tmp_path / "dashboard.json").read_text(encoding="utf-8") == dashboard()


def test_grafanas_dashboard_is_up_to_date():
    assert DASHBOARD.read_text(encoding="utf-8") == dashboard(), "run `make docs`"


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_is_documented_and_on_the_dashboard(name):
    queries = " ".join(query for panels in ROWS.values() for p in panels for query, _ in p.queries)

    assert f"`{name}`" in page("metrics.md")
    assert re.search(rf"\b{name}\b", queries)


def test_panels_of_the_dashboard_lie_beside_one_another():
    places = [panel["gridPos"] for panel in json.loads(dashboard())["panels"]]
    cells = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]

    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < WIDTH
