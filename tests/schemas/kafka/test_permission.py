import shlex

import pytest

from schemas.errors import PartitionError, PermissionMissingError, RequestRefusedError
from schemas.kafka.acl import Permission

IDS = Permission("Write", "transactional-id", "deltamirror.us-east->eu-west.", is_prefix=True)


@pytest.mark.parametrize(
    ("permission", "sentence"),
    [
        (Permission("Read", "topic", "orders"), "Read on topic orders"),
        (IDS, "Write on transactional-id deltamirror.us-east->eu-west.*"),
    ],
)
def test_a_permission_is_said_as_a_sentence_has_it(permission, sentence):
    assert str(permission) == sentence


def test_a_permission_is_granted_by_arguments_that_a_shell_leaves_whole():
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
def test_kafkas_error_tells_on_which_kind_of_resource_a_permission_is_missing(code, is_missed):
    assert IDS.is_missed_by(code) is is_missed


def test_an_error_for_a_missing_permission_names_cluster_and_resource_and_how_to_grant_it():
    error = PermissionMissingError("eu-west", "open a transaction", IDS)

    assert str(error).startswith("cluster eu-west refused to open a transaction: ")
    assert str(IDS) in str(error)
    assert IDS.arguments in error.hint
    assert isinstance(error, RequestRefusedError)
    assert isinstance(error, PartitionError)
