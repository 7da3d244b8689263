import shlex

import pytest

from schemas.errors.base import PartitionError, RequestRefusedError
from schemas.errors.environment import PermissionMissingError
from schemas.kafka.acl import Permission

IDS = Permission("Write", "transactional-id", "deltamirror.us-east->eu-west.", is_prefix=True)


@pytest.mark.parametrize(
    ("permission", "sentence"),
    [
        (Permission("Read", "topic", "orders"), "Read on topic orders"),
        (IDS, "Write on transactional-id deltamirror.us-east->eu-west.*"),
    ],
)
def test_a_permission_is_shown_as_operation_on_resource(permission, sentence):
    assert str(permission) == sentence


def test_the_arguments_of_a_permission_are_quoted_for_a_shell():
    assert shlex.split(IDS.arguments) == [
        *("--operation", "Write", "--resource-pattern-type", "prefixed"),
        *("--transactional-id", "deltamirror.us-east->eu-west."),
    ]


@pytest.mark.parametrize(
    ("code", "is_missed"),
    [
        ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", True),
        ("TOPIC_AUTHORIZATION_FAILED", False),
        ("UNKNOWN_TOPIC_OR_PART", False),
    ],
)
def test_kafkas_error_code_shows_the_resource_of_a_missing_permission(code, is_missed):
    assert IDS.is_missed_by(code) is is_missed


def test_an_error_for_a_missing_permission_names_cluster_and_resource_and_how_to_grant_it():
    error = PermissionMissingError("eu-west", "open a transaction", IDS)

    assert str(error).startswith("cluster eu-west refused to open a transaction: ")
    assert str(IDS) in str(error)
    assert IDS.arguments in error.hint
    assert isinstance(error, RequestRefusedError)
    assert isinstance(error, PartitionError)
