"""Errors can be pickled: Spark tasks return them to the loop."""

import pickle

import pytest

from schemas.errors import (
    BatchRejectedError,
    RecordRefusedError,
    RecordsExpiredError,
    UnreachableError,
)
from schemas.kafka.partition import TopicPartition

ORDERS = TopicPartition("orders", 0)


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(UnreachableError("eu-west", "host:9092", "timed out"), id="of a cluster"),
        pytest.param(RecordRefusedError(ORDERS, 10, 20, "too large"), id="of a partition"),
        pytest.param(RecordsExpiredError(ORDERS, wanted=10, low=20), id="made from keywords"),
        pytest.param(BatchRejectedError({ORDERS: "too large"}, "why"), id="with partitions"),
    ],
)
def test_a_pickled_error_is_equal_to_the_original(error):
    again = pickle.loads(pickle.dumps(error))

    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)
