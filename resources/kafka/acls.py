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

from resources.kafka.admin_session import WAIT_S, AdminSession
from schemas.errors import RequestRefusedError
from schemas.kafka.acl import Permission, TopicAcl

_ANY: Any = None  # the client's annotations forbid what its documentation allows
OF_WHOLE_NAMES = AclBindingFilter(
    ResourceType.TOPIC,
    _ANY,
    ResourcePatternType.LITERAL,
    _ANY,
    _ANY,
    AclOperation.ANY,
    AclPermissionType.ANY,
)

TO_MAKE = Permission("Alter", "cluster", "kafka-cluster")


def listed(admin: AdminSession) -> set[TopicAcl]:
    """Return the rules that name a topic by its whole name.

    There are none also where the cluster has no authorizer, or does not let this user see them
    (Describe on the cluster): librdkafka 2.16 passes over the error in the answer.
    """
    future = admin.client.describe_acls(OF_WHOLE_NAMES, request_timeout=WAIT_S)
    return {
        TopicAcl(
            found.name,
            found.principal,
            found.host,
            found.operation.name,
            found.permission_type.name,
        )
        for found in admin.answer(future, "list its topics' ACLs")
        # An operation that librdkafka has no name for cannot be made elsewhere either.
        if found.operation is not AclOperation.UNKNOWN
    }


def create(admin: AdminSession, acls: Collection[TopicAcl]) -> dict[TopicAcl, RequestRefusedError]:
    """Make *acls*; one that is there already is no error. Return those refused, with why."""
    if not acls:
        return {}
    wanted = {_binding(acl): acl for acl in acls}
    futures = admin.client.create_acls(list(wanted), request_timeout=WAIT_S)
    refused = {}
    for binding, future in futures.items():
        try:
            admin.answer(future, "make ACLs", TO_MAKE)
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
