"""What `deltamirror run` serves over HTTP: /metrics for Prometheus, /healthz for who watches it."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus

from deltamirror.backoff import GIVE_UP_S
from deltamirror.monitoring.metrics_samples import samples
from deltamirror.monitoring.metrics_state import Board
from pipeline.monitoring.health import FAILING, diagnose
from resources.metrics_http import CONTENT_TYPE, Endpoint, Page, Scrape

log = logging.getLogger(__name__)


@contextmanager
def served(listen: tuple[str, int] | None, board: Board) -> Iterator[None]:
    """Serve what *board* knows at *listen* (None: nowhere) until the block ends."""
    if listen is None:
        yield
        return
    scrape = Scrape(partial(samples, board))
    pages = {
        "/metrics": lambda: Page(scrape.text(), CONTENT_TYPE),
        "/healthz": lambda: health_page(board),
    }

    def opened(address: str) -> None:
        board.address = address
        log.info("served: %s/metrics and %s/healthz", address, address)

    endpoint = Endpoint(*listen, pages, opened)
    endpoint.open()
    try:
        yield
    finally:
        endpoint.close()


def health_page(board: Board) -> Page:
    """Return how the loops of *board* are, as JSON: 503 where one is sick, which `sick` names."""
    loops = [watch.state for watch in board.watches()]
    health = diagnose(loops, time.monotonic(), GIVE_UP_S)
    said = {
        "status": health.status,
        "sick": health.sick,
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
