"""Pages are served to who asks for them, and an address that is taken ends nothing."""

import logging
import threading
import urllib.error
import urllib.request

import pytest

from resources import metrics_http as http_pages
from resources.metrics_http import Page, PageServer

WAIT_S = 10.0


class Served:
    """Endpoints of one page each; their addresses as they hear them."""

    def __init__(self):
        self.made, self.url, self.has_url = [], None, threading.Event()

    def serve(self, port=0, host="127.0.0.1", page=lambda: Page(b"all is well\n", "text/plain")):
        endpoint = PageServer(host, port, {"/page": page}, self._opened)
        self.made.append(endpoint)
        endpoint.open()
        return endpoint

    def _opened(self, url):
        self.url = url
        self.has_url.set()

    @property
    def port(self):
        return int(self.url.rpartition(":")[2])


@pytest.fixture
def served():
    here = Served()
    yield here
    for endpoint in here.made:
        endpoint.close()


def ask(url, method="GET"):
    request = urllib.request.Request(url, method=method)
    try:
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


def test_a_page_is_served_with_its_type_and_length(served):
    served.serve()

    status, headers, body = ask(served.url + "/page?at=1")

    assert (status, headers["Content-Type"], body) == (200, "text/plain", b"all is well\n")
    assert headers["Content-Length"] == "12"


def test_head_tells_what_get_would_and_sends_no_body(served):
    served.serve()

    status, headers, body = ask(served.url + "/page", "HEAD")

    assert (status, headers["Content-Length"], body) == (200, "12", b"")


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [("/", "GET", 404), ("/page/", "GET", 404), ("/page", "POST", 405), ("/page", "DELETE", 405)],
)
def test_anything_else_is_refused(served, path, method, status):
    served.serve()

    assert ask(served.url + path, method)[0] == status


def test_a_page_that_cannot_be_made_is_an_error_of_that_request_alone(served, caplog):
    pages = iter([RuntimeError("not thought of"), Page(b"well again", "text/plain")])

    def page():
        made = next(pages)
        if isinstance(made, Exception):
            raise made
        return made

    served.serve(page=page)

    assert ask(served.url + "/page")[0] == 500
    assert ask(served.url + "/page")[2] == b"well again"


def test_an_address_that_is_taken_is_told_and_taken_over_once_it_is_free(
    served, monkeypatch, caplog
):
    monkeypatch.setattr(http_pages, "BIND_RETRY_INTERVAL_S", 0.01)
    first = served.serve()
    port = served.port
    served.has_url.clear()

    served.serve(port, page=lambda: Page(b"the second", "text/plain"))
    assert not served.has_url.is_set()
    first.close()

    assert served.has_url.wait(WAIT_S)
    assert ask(served.url + "/page")[2] == b"the second"
    (told,) = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert f"127.0.0.1:{port}" in told


def test_nothing_is_answered_after_the_end(served):
    served.serve().close()

    with pytest.raises(OSError, match="refused"):
        ask(served.url + "/page")


def test_one_that_waits_for_its_address_ends_at_once(served):
    served.serve()
    waiting = served.serve(served.port)

    waiting.close()

    assert not waiting._thread.is_alive()
