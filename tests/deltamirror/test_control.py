"""Read operators' requests in the order in which they were added, by scope."""

import shutil

import pytest

from deltamirror.control import ACCEPT_GAP, PAUSE, RESUME, ControlTable, is_paused
from resources.delta.lake import DeltaLake
from resources.delta.table_maintenance import optimize
from schemas.kafka.partition import TopicPartition

ORDERS, USERS = TopicPartition("orders", 0), TopicPartition("users", 1)


@pytest.fixture
def lake_(lake):
    return DeltaLake(lake)


def test_requests_are_returned_in_the_order_in_which_they_were_added(lake_):
    operator, loop = ControlTable(lake_.control), ControlTable(lake_.control)
    assert loop.requests_for("us-east") == []

    operator.add_request(PAUSE, "us-east", "orders", 0)
    operator.add_request(PAUSE, "us-east->eu-west")
    operator.add_request(RESUME, "us-east")

    first, third = loop.requests_for("us-east")
    (second,) = loop.requests_for("us-east->eu-west")
    assert (first.order, third.order) == (PAUSE, RESUME)
    assert first.number < second.number < third.number


def test_requests_of_the_same_millisecond_keep_their_order_after_optimize(lake_, monkeypatch):
    monkeypatch.setattr("deltamirror.control.time.time", lambda: 1.0)
    operator = ControlTable(lake_.control)
    topics = [f"t{i}" for i in range(25)]
    for topic in topics:
        operator.add_request(ACCEPT_GAP, "us-east", topic)

    assert [o.topic for o in ControlTable(lake_.control).requests_for("us-east")] == topics
    optimize(lake_.control)
    assert [o.topic for o in ControlTable(lake_.control).requests_for("us-east")] == topics


def test_numbers_do_not_change_when_the_clock_is_set_back(lake_, monkeypatch):
    operator, loop = ControlTable(lake_.control), ControlTable(lake_.control)
    operator.add_request(PAUSE, "us-east", "first")
    (first,) = loop.requests_for("us-east")

    monkeypatch.setattr("deltamirror.control.time.time", lambda: 1.0)
    operator.add_request(PAUSE, "us-east", "second")

    again, second = loop.requests_for("us-east")
    assert (again, second.topic) == (first, "second")
    assert second.number > first.number


def test_a_request_has_a_larger_number_than_those_of_a_lost_table(lake_):
    ControlTable(lake_.control).add_request(PAUSE, "us-east", "first")
    (lost,) = ControlTable(lake_.control).requests_for("us-east")
    shutil.rmtree(lake_.control.path)

    ControlTable(lake_.control).add_request(ACCEPT_GAP, "us-east", "first")

    (request,) = ControlTable(lake_.control).requests_for("us-east")
    assert request.number > lost.number


@pytest.mark.parametrize(
    ("topic", "partition", "meant"),
    [
        pytest.param(None, None, {ORDERS, USERS}, id="all"),
        pytest.param("orders", None, {ORDERS}, id="a topic"),
        pytest.param("users", 1, {USERS}, id="a partition"),
        pytest.param("users", 0, set(), id="another partition"),
    ],
)
def test_a_request_applies_to_all_to_a_topic_or_to_a_partition(lake_, topic, partition, meant):
    ControlTable(lake_.control).add_request(PAUSE, "us-east", topic, partition)
    (request,) = ControlTable(lake_.control).requests_for("us-east")

    assert {p for p in (ORDERS, USERS) if request.applies_to(p)} == meant


def test_the_last_request_decides_whether_a_partition_is_paused(lake_):
    operator = ControlTable(lake_.control)

    def paused():
        return is_paused(operator.requests_for("us-east"), ORDERS)

    assert not paused()
    operator.add_request(PAUSE, "us-east")
    assert paused()
    operator.add_request(ACCEPT_GAP, "us-east")
    operator.add_request(RESUME, "us-east", "users")
    assert paused()
    operator.add_request(RESUME, "us-east", "orders")
    assert not paused()
