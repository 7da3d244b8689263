"""Serve /metrics for Prometheus and /healthz for monitoring, while `deltamirror run` runs."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from typing import Any

from prometheus_client import make_wsgi_app

from deltamirror.monitoring.metrics_samples import registry_of
from deltamirror.monitoring.metrics_state import MetricsState
from pipeline.monitoring.health import FAILING, check_health
from resources.metrics_http import Page, serving

log = logging.getLogger(__name__)


@contextmanager
def serve_metrics(listen: tuple[str, int] | None, metrics_state: MetricsState) -> Iterator[None]:
    """Serve *metrics_state* at *listen* (host, port) until the block ends; None: do not serve."""
    if listen is None:
        yield
        return
    # Compression takes a third of a scrape's time, and helps only on a slow network.
    metrics = make_wsgi_app(registry_of(metrics_state), disable_compression=True)
    pages: dict[str, Page] = {"/metrics": metrics, "/healthz": partial(_health_page, metrics_state)}
    with serving(*listen, pages) as metrics_state.address:
        if url := metrics_state.address:
            log.info("served: %s/metrics and %s/healthz", url, url)
        yield


def health(metrics_state: MetricsState) -> tuple[HTTPStatus, dict[str, Any]]:
    """Return the status code and body of /healthz: 503 if a loop is failing."""
    loops = list(metrics_state.loops.values())
    found = check_health(loops, time.monotonic(), metrics_state.timings.failure_timeout_s)
    status = HTTPStatus.SERVICE_UNAVAILABLE if found.status == FAILING else HTTPStatus.OK
    rows = [
        {
            "loop": loop.name,
            "state": loop.state,
            "error": str(loop.error) if loop.state == "failed" else None,
        }
        for loop in loops
    ]
    return status, {"status": found.status, "sick": found.failing, "loops": rows}


def _health_page(
    metrics_state: MetricsState, environ: dict[str, Any], start_response: Callable[..., Any]
) -> Iterable[bytes]:
    status, body = health(metrics_state)
    start_response(f"{status.value} {status.phrase}", [("Content-Type", "application/json")])
    return [json.dumps(body).encode() + b"\n"]
