"""What `deltamirror run` serves over HTTP: /metrics for Prometheus, /healthz for who watches it."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus

from deltamirror.backoff import FAILURE_TIMEOUT_S
from deltamirror.monitoring.metrics_samples import collect_samples
from deltamirror.monitoring.metrics_state import MetricsState
from pipeline.monitoring.health import FAILING, check_health
from resources.metrics_http import CONTENT_TYPE, Page, PageServer, SampleCollector

log = logging.getLogger(__name__)


@contextmanager
def serve_metrics(listen: tuple[str, int] | None, metrics_state: MetricsState) -> Iterator[None]:
    """Serve what *metrics_state* knows at *listen* (None: nowhere) until the block ends."""
    if listen is None:
        yield
        return
    scrape = SampleCollector(partial(collect_samples, metrics_state))
    pages = {
        "/metrics": lambda: Page(scrape.text(), CONTENT_TYPE),
        "/healthz": lambda: health_page(metrics_state),
    }

    def opened(address: str) -> None:
        metrics_state.address = address
        log.info("served: %s/metrics and %s/healthz", address, address)

    endpoint = PageServer(*listen, pages, opened)
    endpoint.open()
    try:
        yield
    finally:
        endpoint.close()


def health_page(metrics_state: MetricsState) -> Page:
    """Return the health of the loops as JSON: 503 if one is unhealthy, which `failing` names."""
    loops = [loop_status.state for loop_status in metrics_state.loop_statuses()]
    health = check_health(loops, time.monotonic(), FAILURE_TIMEOUT_S)
    said = {
        "status": health.status,
        "sick": health.failing,
        "loops": [
            {
                "loop": loop.name,
                "state": loop.state,
                "error": str(loop.error) if loop.state == "failed" else None,
            }
            for loop in loops
        ],
    }
    status = HTTPStatus.SERVICE_UNAVAILABLE if health.status == FAILING else HTTPStatus.OK
    return Page(json.dumps(said).encode() + b"\n", "application/json", status)
