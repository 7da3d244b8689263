"""List and create ACLs of topics. ACLs are never deleted."""

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
from schemas.errors.base import RequestRefusedError
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
    """Return the ACLs of topics with a literal name.

    The set is also empty if the cluster has no authorizer, or if the user lacks the permission
    (Describe on the cluster): librdkafka 2.16 ignores the error in the answer.
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
        # librdkafka cannot create an ACL of an operation that it does not know.
        if found.operation is not AclOperation.UNKNOWN
    }


def create_acls(
    admin: AdminSession, acls: Collection[TopicAcl]
) -> dict[TopicAcl, RequestRefusedError]:
    """Create *acls*; return the refused ones with their errors. An existing ACL is no error."""
    if not acls:
        return {}
    wanted = {_binding(acl): acl for acl in acls}
    futures = admin.client.create_acls(list(wanted), request_timeout=REQUEST_TIMEOUT_S)
    refused = {}
    for binding, future in futures.items():
        try:
            admin.wait_result(future, "create ACLs", CREATE_PERMISSION)
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
