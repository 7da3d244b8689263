"""An AdminClient without answers is replaced, after times that double."""

import pytest

from demo.kafka.processes import free_ports
from resources.kafka import admin_session as admin_module
from resources.kafka.admin_session import AdminSession
from schemas.errors.environment import UnreachableError


class Clock:
    """A clock that a test sets."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(admin_module, "time", made)
    return made


@pytest.fixture
def session(clock):
    (port,) = free_ports(1)  # no process listens there
    return AdminSession("eu-west", {"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})


def _ask(session):
    client = session.client
    with pytest.raises(UnreachableError), session.converted_errors("anything"):
        raise TimeoutError
    return client


def test_a_client_without_answers_is_replaced_after_a_while(session, clock):
    first = _ask(session)
    clock.now = 10
    assert _ask(session) is first
    clock.now = 16
    assert _ask(session) is first
    assert session.client is not first


def test_the_next_client_is_replaced_after_twice_that_time(session, clock):
    clients = set()
    for clock.now in range(0, 120, 2):
        clients.add(id(_ask(session)))
    assert len(clients) == 4  # created at 0, 16, 48 and 110 s


def test_an_answer_resets_the_time(session, clock):
    first = _ask(session)
    clock.now = 14
    with session.converted_errors("anything"):
        pass
    clock.now = 28
    assert _ask(session) is first
    assert session.client is first
