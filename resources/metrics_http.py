"""Serve a few WSGI pages over HTTP: GET and HEAD, no state, no secret."""

from __future__ import annotations

import io
import logging
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from socketserver import TCPServer
from threading import Thread
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client.exposition import ThreadingWSGIServer

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_S = 10.0  # of one read from a client, or one write to it

Page = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]  # a WSGI application
_Answer = tuple[str, list[tuple[str, str]], bytes]


@contextmanager
def serving(host: str, port: int, pages: Mapping[str, Page]) -> Iterator[str | None]:
    """Serve *pages* by path at *host* and *port* (0: any free one) until the block ends.

    Yield the URL. If the address cannot be bound, log one warning and yield None.
    """
    shown = f"[{host}]" if ":" in host else host
    try:
        server = _Server(host, port)
    except OSError as error:
        log.warning(
            "/metrics and /healthz are not served: %s:%d: %s. Set deltamirror.metrics.listen to a "
            "free address and restart.",
            *(shown, port, error.strerror or error),
        )
        yield None
        return
    server.set_app(partial(_route, pages))
    thread = Thread(target=server.serve_forever, name="http", daemon=True)
    with server:
        thread.start()
        try:
            yield f"http://{shown}:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def _route(
    pages: Mapping[str, Page], environ: dict[str, Any], start_response: Callable[..., Any]
) -> Iterable[bytes]:
    """Return the page of the path; for HEAD, without its body."""
    status, headers, body = _answer(pages, environ)
    length = ("Content-Length", str(len(body)))
    start_response(status, [*headers, length, ("Server", "deltamirror")])
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]


def _answer(pages: Mapping[str, Page], environ: dict[str, Any]) -> _Answer:
    path = environ["PATH_INFO"]
    if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
        return _refusal(HTTPStatus.METHOD_NOT_ALLOWED, ("Allow", "GET, HEAD"))
    if path not in pages:
        return _refusal(HTTPStatus.NOT_FOUND)
    head: list[Any] = []
    # prometheus_client's page rejects HEAD, and takes 1.5 times as long for OpenMetrics.
    request = {**environ, "REQUEST_METHOD": "GET", "HTTP_ACCEPT": ""}
    try:
        body = b"".join(pages[path](request, lambda *given: head.extend(given)))
    except Exception:  # a page that fails must not disturb the run
        log.exception("%s failed", path)
        return _refusal(HTTPStatus.INTERNAL_SERVER_ERROR)
    status, headers = head
    return status, headers, body


def _refusal(status: HTTPStatus, *headers: tuple[str, str]) -> _Answer:
    line = f"{status.value} {status.phrase}"
    return line, [("Content-Type", "text/plain; charset=utf-8"), *headers], f"{line}\n".encode()


class _Server(ThreadingWSGIServer):
    def __init__(self, host: str, port: int) -> None:
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        """Bind without HTTPServer's reverse lookup of the host name, which can take long."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "", self.server_address[1]
        self.setup_environ()

    def handle_error(self, request: object, client_address: object) -> None:
        """Log a client that timed out or disconnected at debug level only."""
        log.debug("%s", client_address, exc_info=True)


class _Handler(WSGIRequestHandler):
    timeout = REQUEST_TIMEOUT_S

    def get_stderr(self) -> io.StringIO:
        """Discard the traceback of a client that stops reading: it is no error of the run."""
        return io.StringIO()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Log requests at debug level only."""
        log.debug(format, *args)
