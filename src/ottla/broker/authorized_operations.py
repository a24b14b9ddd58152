"""The fields named `authorized_operations`: bits by AclOperation (KIP-430).

Without an authorizer a client may do all that can be done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.security.acls import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import Context

TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
GROUP_OPERATIONS = sum(1 << operation for operation in (3, 6, 8, 10, 11))
CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))
NOT_ASKED = -(1 << 31)
NONE = 0  # to who may not even describe the cluster


def topic_operations(context: Context, name: str) -> int:
    if context.rights is None:
        return TOPIC_OPERATIONS
    return context.rights.operations(ResourceType.TOPIC, name)


def group_operations(context: Context, group_id: str) -> int:
    if context.rights is None:
        return GROUP_OPERATIONS
    return context.rights.operations(ResourceType.GROUP, group_id)


def cluster_operations(context: Context) -> int:
    if context.rights is None:
        return CLUSTER_OPERATIONS
    if not context.rights.allows_cluster(Operation.DESCRIBE):
        return NONE
    return context.rights.operations(ResourceType.CLUSTER, CLUSTER_NAME)
