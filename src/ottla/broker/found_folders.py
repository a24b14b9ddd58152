"""The partitions' folders that a start finds, brought into line with the cluster's image."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cluster.image import ZERO_ID

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.cluster.image import ClusterImage


async def finish_deletions(broker: Broker, image: ClusterImage) -> None:
    """Delete the folders of deleted topics that are left; confirm it."""
    await delete_folders(broker, image)
    if image.deletions:
        await broker.controller.confirm_deletions(broker.node_id, list(image.deletions))


async def delete_folders(broker: Broker, image: ClusterImage) -> None:
    """Delete the folders of deleted topics that are left. Raises OSError.

    The folder of a topic that has another id in the tree, and was not deleted there, is kept as
    a stray one: the tree may come from an older backup. So is a folder whose id a crash has taken,
    if a topic of its name was deleted and there is another one now: it may be of either.
    """
    deleted_names = set(image.deletions.values())
    deleted, stray = [], []
    for topic, index, topic_id in broker.logs.found():
        known = image.topics.get(topic)
        if topic_id in image.deletions:
            deleted.append((topic, index))
        elif known is None:
            # A power cut may have removed the id: then the name decides, or what was deleted
            # would be adopted.
            if topic_id == ZERO_ID and topic in deleted_names:
                deleted.append((topic, index))
        elif topic_id != known.id and (topic_id != ZERO_ID or topic in deleted_names):
            stray.append((topic, index))
    # Also without any: what was deleted may not be on the device yet.
    await broker.logs.delete(deleted)
    if stray:
        await broker.logs.delete(stray, stray=True)


def keep_configs(broker: Broker) -> None:
    """Bring what the partitions' folders keep of their topics' configs up to date.

    A crash may have come between the tree and the folder, or an older version created it.
    """
    image, kept = broker.image, broker.logs.found_configs
    for topic, index, _ in broker.logs.found():
        if topic in image.topics and kept.get((topic, index)) != image.configs_of(topic):
            broker.logs.keep_configs(topic, [index])
    kept.clear()
