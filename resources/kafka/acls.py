"""Access rules of a cluster's topics: told and made, never taken away."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from resources.kafka.admin_session import REQUEST_TIMEOUT_S, AdminSession
from schemas.errors import RequestRefusedError
from schemas.kafka.acl import Permission, TopicAcl

_ANY: Any = None  # the client's annotations forbid what its documentation allows
LITERAL_TOPIC_FILTER = AclBindingFilter(
    ResourceType.TOPIC,
    _ANY,
    ResourcePatternType.LITERAL,
    _ANY,
    _ANY,
    AclOperation.ANY,
    AclPermissionType.ANY,
)

CREATE_PERMISSION = Permission("Alter", "cluster", "kafka-cluster")


def list_acls(admin: AdminSession) -> set[TopicAcl]:
    """Return the rules that name a topic by its whole name.

    There are none also where the cluster has no authorizer, or does not let this user see them
    (Describe on the cluster): librdkafka 2.16 passes over the error in the answer.
    """
    future = admin.client.describe_acls(LITERAL_TOPIC_FILTER, request_timeout=REQUEST_TIMEOUT_S)
    return {
        TopicAcl(
            found.name,
            found.principal,
            found.host,
            found.operation.name,
            found.permission_type.name,
        )
        for found in admin.wait_result(future, "list its topics' ACLs")
        # An operation that librdkafka has no name for cannot be made elsewhere either.
        if found.operation is not AclOperation.UNKNOWN
    }


def create_acls(
    admin: AdminSession, acls: Collection[TopicAcl]
) -> dict[TopicAcl, RequestRefusedError]:
    """Make *acls*; one that is there already is no error. Return those refused, with why."""
    if not acls:
        return {}
    wanted = {_binding(acl): acl for acl in acls}
    futures = admin.client.create_acls(list(wanted), request_timeout=REQUEST_TIMEOUT_S)
    refused = {}
    for binding, future in futures.items():
        try:
            admin.wait_result(future, "make ACLs", CREATE_PERMISSION)
        except RequestRefusedError as error:
            refused[wanted[binding]] = error
    return refused


def _binding(acl: TopicAcl) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC,
        acl.topic,
        ResourcePatternType.LITERAL,
        acl.principal,
        acl.host,
        AclOperation[acl.operation],
        AclPermissionType[acl.permission],
    )
