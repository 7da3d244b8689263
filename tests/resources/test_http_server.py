"""Pages are served to who asks for them, and an address that is taken ends nothing."""

import logging
import socket
import threading
import urllib.error
import urllib.request
from contextlib import ExitStack

import pytest

from resources import metrics_http as http_pages
from resources.metrics_http import serving

WAIT_S = 10.0


def well(environ, start_response):
    assert environ["REQUEST_METHOD"] == "GET"  # prometheus_client's page refuses any other
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"all is well\n"]


@pytest.fixture
def serve():
    """Serve one page until the test ends."""
    with ExitStack() as stack:
        yield lambda page=well, host="127.0.0.1", port=0: stack.enter_context(
            serving(host, port, {"/page": page})
        )


def ask(url, method="GET"):
    request = urllib.request.Request(url, method=method)
    try:
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


def connected(url):
    return socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=WAIT_S)


def test_a_page_is_served_with_its_type_and_length(serve):
    status, headers, body = ask(serve() + "/page?at=1")

    assert (status, headers["Content-Type"], body) == (200, "text/plain", b"all is well\n")
    assert headers["Content-Length"] == "12"


def test_head_returns_the_headers_of_get_without_a_body(serve):
    with connected(serve()) as caller:
        caller.sendall(b"HEAD /page HTTP/1.0\r\n\r\n")
        answer = caller.makefile("rb").read()

    assert answer.startswith(b"HTTP/1.0 200 OK\r\n")
    assert b"\r\nContent-Length: 12\r\n" in answer
    assert answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [("/", "GET", 404), ("/page/", "GET", 404), ("/page", "POST", 405), ("/page", "DELETE", 405)],
)
def test_other_paths_and_methods_are_refused(serve, path, method, status):
    answer = ask(serve() + path, method)

    assert answer[0] == status
    assert answer[1]["Allow"] == ("GET, HEAD" if status == 405 else None)


def test_a_page_that_fails_is_an_error_of_that_request_only(serve, caplog, capfd):
    failures = [RuntimeError("not thought of")]

    def page(environ, start_response):
        if failures:
            raise failures.pop()
        return well(environ, start_response)

    url = serve(page)

    assert ask(url + "/page")[0] == 500
    assert ask(url + "/page")[2] == b"all is well\n"
    assert "/page failed" in caplog.text
    assert capfd.readouterr().err == ""


def test_an_address_in_use_is_logged_once_and_stops_nothing(serve, caplog):
    url = serve()
    port = int(url.rpartition(":")[2])

    assert serve(port=port) is None
    assert ask(url + "/page")[0] == 200
    (told,) = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert f"127.0.0.1:{port}: Address already in use" in told
    assert "deltamirror.metrics.listen" in told


def has_ipv6():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback address")
def test_an_ipv6_address_is_served(serve):
    url = serve(host="::1")

    assert url.startswith("http://[::1]:")
    assert ask(url + "/page")[0] == 200


@pytest.mark.parametrize("sent", [b"", b"GET /page HTT", b"GET /page HTTP/1.1\r\nHost: a\r\n"])
def test_a_client_that_stops_sending_is_disconnected_and_blocks_no_other_client(
    serve, monkeypatch, capfd, sent
):
    assert http_pages._Handler.timeout == http_pages.REQUEST_TIMEOUT_S
    monkeypatch.setattr(http_pages._Handler, "timeout", 0.2)
    url = serve()

    with connected(url) as caller:
        caller.sendall(sent)

        assert ask(url + "/page")[0] == 200
        assert caller.recv(1) == b""
    assert capfd.readouterr().err == ""


def test_a_client_that_stops_reading_is_disconnected_without_a_log_message(
    serve, monkeypatch, capfd
):
    monkeypatch.setattr(http_pages._Handler, "timeout", 0.2)
    handlers = []

    def page(environ, start_response):
        handlers.append(threading.current_thread())
        start_response("200 OK", [])
        return [bytes(100_000_000)]  # more than the connection's buffers take

    with connected(serve(page)) as caller:
        caller.sendall(b"GET /page HTTP/1.0\r\n\r\n")
        assert caller.recv(1) == b"H"
        (handler,) = handlers
        handler.join(WAIT_S)

        assert not handler.is_alive()
    assert capfd.readouterr().err == ""


def test_the_server_does_not_respond_after_its_end():
    with serving("127.0.0.1", 0, {"/page": well}) as url:
        pass

    with pytest.raises(OSError, match="refused"):
        ask(url + "/page")
    assert "http" not in [thread.name for thread in threading.enumerate()]
