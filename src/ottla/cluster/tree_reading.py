"""Reads all nodes that a controller begins with, with as few turns as the tree allows.

Where a subtree is not one read, a walk would ask for the children of every partition. The values of
the topics say which partitions there are: their states are read directly, many at a time, and only
a topic that is not whole is walked through.
"""

from ottla.cluster import acl_nodes, nodes, token_nodes
from ottla.metadata_store.tree import NoNode, Tree

WALKED = (
    "/cluster",
    "/config",
    "/admin",
    "/ottla",
    *acl_nodes.PARENTS.values(),
    token_nodes.TOKENS,
)
SINGLE = (nodes.TOPICS, nodes.FEATURES, nodes.PRODUCER_IDS, nodes.CONTROLLER_EPOCH)


async def read_nodes(tree: Tree) -> dict[str, tuple[bytes, int]]:
    """Data and version of the nodes by path; of whole topics only those that say something."""
    if tree.reads_at_once:
        return await tree.subtree("/")
    found = await tree.get_many(SINGLE)
    for path in WALKED:
        found.update(await tree.subtree(path))
    try:
        names = await tree.children(nodes.TOPICS)
    except NoNode:
        return found
    topics = await tree.get_many([nodes.topic_path(name) for name in names])
    found.update(topics)
    states = {name: state_paths(name, topics) for name in names}
    found.update(await tree.get_many([path for paths in states.values() for path in paths]))
    for name, paths in states.items():
        deleted = nodes.deletion_path(name) in found
        if deleted or not paths or not all(path in found for path in paths):
            found.update(await tree.subtree(nodes.topic_path(name)))
    return found


def state_paths(name: str, topics: dict[str, tuple[bytes, int]]) -> list[str]:
    """The paths of the states that a topic should have."""
    node = topics.get(nodes.topic_path(name))
    if node is None:
        return []
    partitions = nodes.load(nodes.topic_path(name), node[0]).get("partitions")
    if not isinstance(partitions, dict):
        return []  # who reads the topic's node says so
    parent = nodes.partitions_path(name)
    return [f"{parent}/{index}/state" for index in partitions]
