"""A few pages over HTTP, for machines that watch: GET and HEAD, no state, no secret."""

from __future__ import annotations

import logging
import socket
import socketserver
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from schemas.monitoring.metrics import Kind, Metric, Sample

log = logging.getLogger(__name__)

BIND_RETRY_INTERVAL_S = 5.0
"""How often an address that is taken is tried again."""

REQUEST_TIMEOUT_S = 10.0
"""How long a caller may take to say what it wants."""


@dataclass(frozen=True, slots=True)
class Page:
    """What is answered."""

    body: bytes
    content_type: str
    status: int = HTTPStatus.OK


Pages = Mapping[str, Callable[[], Page]]


class PageServer:
    """Serves *pages* at *host* and *port* (0: any that is free) until `close`.

    An address that cannot be had is logged once and tried again: who watches goes without, but
    nothing else does. So a standby takes over the port too. *opened* hears where it is served.
    """

    def __init__(self, host: str, port: int, pages: Pages, opened: Callable[[str], None]) -> None:
        self._address, self._pages, self._opened = (host, port), pages, opened
        self._server: _Server | None = None
        self._closed, self._lock = Event(), Lock()
        self._thread = Thread(target=self._run, name="http", daemon=True)

    def open(self) -> None:
        """Begin to serve; where the address is taken, as soon as it is free."""
        self._try_bind(is_first=True)
        self._thread.start()

    def close(self) -> None:
        """End; nothing is answered any more."""
        with self._lock:  # an address that is had at this moment is given back too
            self._closed.set()
        if self._server is not None:
            self._server.shutdown()
        self._thread.join(REQUEST_TIMEOUT_S)

    def _run(self) -> None:
        while self._server is None:
            if self._closed.wait(BIND_RETRY_INTERVAL_S):
                return
            self._try_bind(is_first=False)
        with self._server:
            self._server.serve_forever()

    def _try_bind(self, *, is_first: bool) -> None:
        host, port = self._address
        shown = f"[{host}]" if ":" in host else host
        try:
            with self._lock:
                if self._closed.is_set():
                    return
                self._server = _Server((host, port), self._pages)
        except OSError as error:
            if is_first:
                log.warning(
                    "/metrics and /healthz are not served: %s:%d: %s; it is tried again every %d s",
                    *(shown, port, error.strerror or error, BIND_RETRY_INTERVAL_S),
                )
            return
        self._opened(f"http://{shown}:{self._server.server_address[1]}")


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], pages: Pages) -> None:
        self.pages = pages
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Bind as TCP does: HTTPServer would ask the name service for this machine's name."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "", 0

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a caller that hung up."""
        log.debug("%s", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    timeout = REQUEST_TIMEOUT_S
    server_version, sys_version = "deltamirror", ""
    server: _Server

    def do_GET(self) -> None:
        """Answer with the page, or that there is none."""
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        """Answer as GET would, without the body."""
        self._answer(with_body=False)

    def _refuse(self) -> None:
        self.close_connection = True  # what else it sent is not read
        self._send(_status_page(HTTPStatus.METHOD_NOT_ALLOWED), with_body=True)

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _refuse  # noqa: N815 - http.server asks

    def _answer(self, *, with_body: bool) -> None:
        make = self.server.pages.get(self.path.partition("?")[0])
        try:
            page = make() if make else _status_page(HTTPStatus.NOT_FOUND)
        except Exception:  # the watched work goes on: who asks again may have more luck
            log.exception("%s: a defect", self.path)
            page = _status_page(HTTPStatus.INTERNAL_SERVER_ERROR)
        self._send(page, with_body=with_body)

    def _send(self, page: Page, *, with_body: bool) -> None:
        self.send_response(page.status)
        self.send_header("Content-Type", page.content_type)
        self.send_header("Content-Length", str(len(page.body)))
        if page.status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        self.end_headers()
        if with_body:
            self.wfile.write(page.body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Log a request where somebody debugs, and nowhere else."""
        log.debug(format, *args)


def _status_page(status: HTTPStatus) -> Page:
    return Page(f"{status.value} {status.phrase}\n".encode(), "text/plain; charset=utf-8", status)


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The text that every Prometheus reads, and every agent beside it."""


class SampleCollector(Collector):
    """Asks *samples* at each scrape; `process_*` tells of this process besides (not of Spark's)."""

    def __init__(self, samples: Callable[[], Iterable[Sample]]) -> None:
        self._samples = samples
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def text(self) -> bytes:
        """Return what there is to tell now."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Family]:
        """Yield a family for each metric that has a sample."""
        families: dict[str, Family] = {}
        for sample in self._samples():
            metric = sample.metric
            family = families.get(metric.name)
            if family is None:
                family = families[metric.name] = _family(metric)
            labels = dict(zip(metric.labels, sample.labels, strict=True))
            family.add_sample(metric.name, labels, float(sample.value))
        yield from families.values()


def _family(metric: Metric) -> Family:
    """Return the family of *metric*; a counter's goes without the suffix of its samples."""
    is_counter = metric.kind is Kind.COUNTER
    name = metric.name.removesuffix("_total") if is_counter else metric.name
    return Family(name, metric.help, metric.kind.value)
