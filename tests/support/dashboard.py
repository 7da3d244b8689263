"""What the Grafana dashboard queries."""

import json
import re
from pathlib import Path

from schemas.monitoring.metrics import METRICS

DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana" / "deltamirror.json"
STRING = r'"(?:\\.|[^"\\])*"'
KEYWORDS = {"and", "bool", "inf", "nan", "offset", "or", "unless"}


def dashboard():
    """Return the dashboard as Grafana imports it."""
    return json.loads(DASHBOARD.read_text(encoding="utf-8"))


def queries(node):
    """Yield the PromQL of every panel and variable in *node*, with each string emptied."""
    if isinstance(node, list):
        for each in node:
            yield from queries(each)
    elif isinstance(node, dict):
        for key, value in node.items():
            variable = re.fullmatch(r"label_values\((.+),\s*\w+\)", str(value))
            if key == "expr":
                yield re.sub(STRING, '""', value)
            elif variable:
                yield re.sub(STRING, '""', variable[1])
            else:
                yield from queries(value)


def metric_names(query):
    """Return the names of the metrics that *query* reads."""
    bare = re.sub(r"\{[^{}]*\}|\[[^]]*\]", " ", query)
    bare = re.sub(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)", " ", bare)
    return set(re.findall(r"\b[a-zA-Z_:][\w:]*\b(?!\s*\()", bare)) - KEYWORDS


def undeclared(node):
    """Return what *node* queries that is not declared: metrics, and labels in selectors."""
    found = set()
    for query in queries(node):
        found |= metric_names(query) - METRICS.keys()
        for name, selector in re.findall(r"([\w:]*)\{([^{}]*)\}", query):
            declared = METRICS[name].labels if name in METRICS else ()
            labels = re.findall(r"(\w+)\s*[=!]", selector)
            found |= {f"{name}.{label}" for label in labels if label not in declared}
    return found
