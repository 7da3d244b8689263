"""A call is bounded by a timeout."""

import threading

import pytest

from resources.kafka.quota import NoResponseError, call_with_timeout


def test_the_result_of_a_call_is_returned():
    assert call_with_timeout(lambda: 7, 20) == 7


@pytest.mark.parametrize("error", [ValueError("no"), TimeoutError("its own")])
def test_the_error_of_a_call_is_raised(error):
    def fails():
        raise error

    with pytest.raises(type(error)) as raised:
        call_with_timeout(fails, 20)

    assert raised.value is error


def test_a_call_that_does_not_return_raises_an_error_after_its_timeout():
    over = threading.Event()

    with pytest.raises(NoResponseError):
        call_with_timeout(over.wait, 0.05)

    over.set()
