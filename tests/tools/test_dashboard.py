"""The Grafana dashboard queries what a run serves, and all of it."""

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


def test_a_metric_that_is_renamed_in_the_code_alone_is_found_in_panels_and_variables():
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


def test_panels_of_the_dashboard_lie_beside_one_another():
    places = [panel["gridPos"] for panel in dashboard()["panels"]]
    cells = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]

    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < WIDTH
