"""The Grafana dashboard queries every metric of a run, and no others."""

import json

import pytest

from schemas.monitoring.metrics import LAG, METRICS
from tests.support.dashboard import dashboard, metric_names, queries, undeclared

WIDTH = 24  # of Grafana's grid


def test_every_metric_and_label_that_the_dashboard_queries_is_declared():
    assert undeclared(dashboard()) == set()


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_is_on_the_dashboard(name):
    assert name in set().union(*map(metric_names, queries(dashboard()["panels"])))


def test_an_old_name_of_a_renamed_metric_is_found_in_panels_and_variables():
    renamed = json.loads(json.dumps(dashboard()).replace(LAG.name, "deltamirror_lag"))

    assert "deltamirror_lag" in undeclared(renamed["panels"])
    assert "deltamirror_lag" in undeclared(renamed["templating"])


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("invented", {"invented"}),
        ("time() - invented", {"invented"}),
        ("sum by (source, topic) (rate(invented[5m])) or vector(0)", {"invented"}),
        ("60 * deltamirror_standby / on (instance) group_left (a) invented", {"invented"}),
        ('deltamirror_standby{pod="a=b"}', {"deltamirror_standby.pod"}),
        ('{__name__="invented"}', {".__name__"}),
        ("label_values(invented, source)", {"invented"}),
    ],
)
def test_an_invented_metric_or_label_is_found(query, found):
    key = "query" if query.startswith("label_values") else "expr"

    assert undeclared({"panels": [{"targets": [{key: query}]}]}) == found


def test_panels_of_the_dashboard_do_not_overlap():
    positions = [panel["gridPos"] for panel in dashboard()["panels"]]
    cells = [
        (x, y)
        for at in positions
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]

    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < WIDTH
