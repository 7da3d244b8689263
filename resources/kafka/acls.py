"""List and create ACLs of topics. ACLs are never deleted."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from confluent_kafka.admin import AclBinding, AclBindingFilter, AclOperation

from resources.kafka.admin_session import REQUEST_TIMEOUT_S, AdminSession
from schemas.errors.base import RequestRefusedError
from schemas.kafka.acl import Permission, TopicAcl

_ANY: Any = None  # the client's annotations forbid what its documentation allows
LITERAL_TOPIC_FILTER = AclBindingFilter("TOPIC", _ANY, "LITERAL", _ANY, _ANY, "ANY", "ANY")
CREATE_PERMISSION = Permission("Alter", "cluster", "kafka-cluster")


class AclAdmin:
    """The requests of `KafkaCluster` about ACLs."""

    _admin: AdminSession

    def topic_acls(self) -> set[TopicAcl]:
        """Return the ACLs of topics with a literal name, or `*`.

        The set is also empty if the cluster has no authorizer, or if the user lacks the permission
        (Describe on the cluster): librdkafka 2.16 ignores the error in the answer.
        """
        future = self._admin.client.describe_acls(
            LITERAL_TOPIC_FILTER, request_timeout=REQUEST_TIMEOUT_S
        )
        return {
            TopicAcl(
                acl.name, acl.principal, acl.host, acl.operation.name, acl.permission_type.name
            )
            for acl in self._admin.wait_result(future, "list its topics' ACLs")
            # librdkafka cannot create an ACL of an operation that it does not know.
            if acl.operation is not AclOperation.UNKNOWN
        }

    def create_acls(self, wanted: Collection[TopicAcl]) -> dict[TopicAcl, RequestRefusedError]:
        """Create *wanted*; return the refused ones with their errors. It may exist already."""
        if not wanted:
            return {}
        acls = {_binding(acl): acl for acl in wanted}
        futures = self._admin.client.create_acls(list(acls), request_timeout=REQUEST_TIMEOUT_S)
        refused = {}
        for binding, future in futures.items():
            try:
                self._admin.wait_result(future, "create ACLs", CREATE_PERMISSION)
            except RequestRefusedError as error:
                refused[acls[binding]] = error
        return refused


def _binding(acl: TopicAcl) -> AclBinding:
    who = (acl.principal, acl.host)
    return AclBinding("TOPIC", acl.topic, "LITERAL", *who, acl.operation, acl.permission)
