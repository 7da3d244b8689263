"""The proxy hands on, falls silent, cuts, and heals."""

import socket

import pytest

from demo.kafka.processes import free_ports
from tests.chaos.proxy import HOST, Proxy


@pytest.fixture
def listener():
    """The server behind the proxy."""
    with socket.create_server((HOST, 0)) as server:
        server.settimeout(5)
        yield server


@pytest.fixture
def proxy(listener):
    """A proxy before it."""
    (port,) = free_ports(1)
    made = Proxy(port, listener.getsockname()[1])
    yield made
    made.close()


@pytest.fixture
def line(proxy, listener):
    """Both ends of a connection through the proxy."""
    with socket.create_connection((HOST, proxy.port), 5) as here, listener.accept()[0] as there:
        there.settimeout(5)
        yield here, there


def test_bytes_sent_while_the_proxy_is_paused_arrive_afterwards(proxy, line):
    here, there = line
    here.sendall(b"before")
    assert there.recv(9) == b"before"
    proxy.hush()
    here.sendall(b"silent")
    there.settimeout(0.2)
    with pytest.raises(TimeoutError):
        there.recv(9)
    proxy.heal()
    there.settimeout(5)
    assert there.recv(9) == b"silent"


def test_a_cut_closes_open_and_new_connections_until_it_is_repaired(proxy, listener, line):
    here, _ = line
    proxy.cut()
    assert _is_ended(here)
    with socket.create_connection((HOST, proxy.port), 5) as new:
        assert _is_ended(new)
    proxy.heal()
    with socket.create_connection((HOST, proxy.port), 5) as new, listener.accept()[0] as there:
        new.sendall(b"again")
        assert there.recv(9) == b"again"


def _is_ended(end):
    try:
        return end.recv(9) == b""
    except ConnectionResetError:
        return True
