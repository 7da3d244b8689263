"""The dashboard deploy/grafana/deltamirror.json, made from the list of metrics."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from schemas.monitoring import metrics as m
from schemas.monitoring.metrics import Metric

FLOW = 'source=~"$source",target=~"$target"'
TOPIC = FLOW + ',topic=~"$topic"'
SOURCE = 'source=~"$source"'
FAILED = FLOW + ',state="failed"'
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH = 24  # of Grafana's grid
HEIGHT = 8


@dataclass(frozen=True)
class Panel:
    """A chart of *queries* (expression, legend); *unit* in Grafana's words; *width* of 24."""

    title: str
    queries: Sequence[tuple[str, str]]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8


def _of(metric: Metric, labels: str = TOPIC) -> str:
    return f"{metric.name}{{{labels}}}"


def _by(function: str, query: str, *labels: str) -> str:
    return f"{function} by ({', '.join(labels)}) ({query})"


_FLOW = "{{source}}->{{target}}"
_TOPIC = _FLOW + " {{topic}}"
_LOOP = "{{loop}} " + _FLOW
_NAME = ("source", "target")

ROWS: dict[str, tuple[Panel, ...]] = {
    "Is it well?": (
        Panel("Loops that failed last time", [
            (f"sum({_of(m.STATE, FAILED)})", "failed"),
        ], kind="stat", width=4),
        Panel("On standby", [(m.STANDBY.name, "{{instance}}")], kind="stat", width=4),
        Panel("State", [
            (f'{_of(m.STATE, FLOW)} == 1', _LOOP + " {{state}}"),
        ], kind="stat", width=16),
        Panel("Partitions left out, by error", [
            (_of(m.FAILING_PARTITIONS, FLOW), _LOOP + " {{type}}"),
        ]),
        Panel("Partitions that an operator paused", [(_of(m.PAUSED, FLOW), _FLOW)]),
        Panel("Last error", [
            (f"time() - {_of(m.LAST_ERROR, FLOW)}", _LOOP + " {{type}}"),
        ], "s", "stat"),
    ),
    "How far behind?": (
        Panel("Lag by topic", [(_by("sum", _of(m.LAG), *_NAME, "topic"), _TOPIC)]),
        Panel("Age of the oldest record on its way", [
            (_by("max", _of(m.LAG_SECONDS), *_NAME, "topic"), _TOPIC),
        ], "s"),
        Panel("Waiting on the source, and in the stage", [
            (_by("sum", f"{_of(m.SOURCE_END)} - {_of(m.STAGED)}", *_NAME), _FLOW + " source"),
            (_by("sum", f"{_of(m.STAGED)} - {_of(m.REPLAYED)}", *_NAME), _FLOW + " stage"),
        ]),
        Panel("Replication latency", [
            (_by("max", _of(m.REPLICATION_LATENCY[2]), *_NAME), _FLOW + " max"),
            (_by("avg", _of(m.REPLICATION_LATENCY[3]), *_NAME), _FLOW + " mean"),
            (_by("min", _of(m.REPLICATION_LATENCY[1]), *_NAME), _FLOW + " min"),
        ], "ms"),
        Panel("Age of records when they are staged", [
            (_by("max", _of(m.RECORD_AGE[2]), *_NAME), _FLOW + " max"),
            (_by("avg", _of(m.RECORD_AGE[3]), *_NAME), _FLOW + " mean"),
            (_by("min", _of(m.RECORD_AGE[1]), *_NAME), _FLOW + " min"),
        ], "ms"),
        Panel("Last record: age, latency", [
            (_by("max", _of(m.RECORD_AGE[0]), *_NAME), _FLOW + " age"),
            (_by("max", _of(m.REPLICATION_LATENCY[0]), *_NAME), _FLOW + " latency"),
        ], "ms"),
    ),
    "How much?": (
        Panel("Records per second, by topic", [
            (_by("sum", _of(m.RECORD_RATE), *_NAME, "topic"), _TOPIC),
        ], "rps"),
        Panel("Bytes of values per second, by topic", [
            (_by("sum", _of(m.BYTE_RATE), *_NAME, "topic"), _TOPIC),
        ], "Bps"),
        Panel("Since the start", [
            (_by("sum", _of(m.RECORD_COUNT), *_NAME), _FLOW + " records"),
            (_by("sum", _of(m.BYTE_COUNT), *_NAME), _FLOW + " bytes"),
        ], kind="stat"),
        Panel("Staged records per second", [
            (f"rate({_of(m.STAGED_RECORDS, SOURCE)}[5m])", "{{source}}"),
        ], "rps", width=12),
        Panel("Staged bytes per second", [
            (f"rate({_of(m.STAGED_BYTES, SOURCE)}[5m])", "{{source}}"),
        ], "Bps", width=12),
    ),
    "Groups": (
        Panel("Lag of groups on the source", [
            (_by("sum", _of(m.GROUP_LAG), *_NAME, "group"), _FLOW + " {{group}}"),
        ], width=12),
        Panel("Checkpoint latency", [
            (_by("max", _of(m.CHECKPOINT_LATENCY[2]), *_NAME), _FLOW + " max"),
            (_by("avg", _of(m.CHECKPOINT_LATENCY[3]), *_NAME), _FLOW + " mean"),
            (_by("min", _of(m.CHECKPOINT_LATENCY[1]), *_NAME), _FLOW + " min"),
            (_by("max", _of(m.CHECKPOINT_LATENCY[0]), *_NAME), _FLOW + " last"),
        ], "ms", width=12),
    ),
    "Loops": (
        Panel("Ticks per second", [(f"rate({_of(m.TICKS, FLOW)}[5m])", _LOOP)], "ops"),
        Panel("Length of a tick", [
            (f"rate({_of(m.TICK_SECONDS, FLOW)}[5m]) / rate({_of(m.TICKS, FLOW)}[5m])", _LOOP),
        ], "s"),
        Panel("Failed ticks per minute", [
            (f"60 * rate({_of(m.FAILURES, FLOW)}[5m])", _LOOP),
        ]),
        Panel("Since the last sign of life", [(_of(m.SILENT_SECONDS, FLOW), _LOOP)], "s", width=12),
        Panel("Versions", [
            (_by("count", m.INFO.name, "version"), "{{version}}"),
        ], kind="stat", width=12),
    ),
}  # fmt: skip


def dashboard() -> str:
    """Return the dashboard as Grafana imports it."""
    said = {
        "title": "deltamirror",
        "uid": "deltamirror",
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": list(_variables())},
        "panels": list(_panels()),
    }
    return json.dumps(said, indent=2) + "\n"


def _variables() -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
    asked = {"source": m.PAUSED.name, "target": m.PAUSED.name, "topic": _of(m.LAG, FLOW)}
    for name, metric in asked.items():
        yield {
            "name": name,
            "type": "query",
            "datasource": DATASOURCE,
            "query": f"label_values({metric}, {name})",
            "refresh": 2,  # whenever the time range changes
            "includeAll": True,
            # Staging has no target: everything matches that too.
            "allValue": ".*",
            "multi": True,
            "current": {"text": "All", "value": "$__all"},
        }


def _panels() -> Iterator[dict[str, Any]]:
    number = y = 0
    for row, panels in ROWS.items():
        number += 1
        yield {"id": number, "type": "row", "title": row, "gridPos": _grid_position(0, y, WIDTH, 1)}
        x, y = 0, y + 1
        for panel in panels:
            if x + panel.width > WIDTH:
                x, y = 0, y + HEIGHT
            number += 1
            yield _panel(panel, number, _grid_position(x, y, panel.width, HEIGHT))
            x += panel.width
        y += HEIGHT


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "datasource": DATASOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + i), "expr": query, "legendFormat": legend}
            for i, (query, legend) in enumerate(panel.queries)
        ],
    }


def _grid_position(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}
