"""Errors travel from Spark tasks to the loop as they are."""

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
        pytest.param(
            UnreachableError("eu-west", servers="host:9092", reason="timed out"), id="of a cluster"
        ),
        pytest.param(
            RecordRefusedError(ORDERS, start=10, end=20, reason="too large"), id="of a partition"
        ),
        pytest.param(RecordsExpiredError(ORDERS, wanted=10, low=20), id="made from keywords"),
        pytest.param(
            BatchRejectedError("why", partitions={ORDERS: "too large"}), id="with partitions"
        ),
    ],
)
def test_an_error_that_was_pickled_is_the_same_again(error):
    again = pickle.loads(pickle.dumps(error))

    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)
