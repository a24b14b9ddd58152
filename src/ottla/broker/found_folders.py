"""The partitions' folders that a start finds, brought into line with the cluster's image."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.broker.metadata_checkpoint import METADATA_CHECKPOINT
from ottla.cluster.image import ZERO_ID

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.cluster.image import ClusterImage

log = logging.getLogger("ottla.broker")

NAMES_LOGGED_MAX = 5


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


def unknown_folders(broker: Broker, image: ClusterImage) -> list[tuple[str, int]]:
    """The partitions on disk that are no replicas of this broker's in the image of its cluster.

    Their topic may have been deleted while the broker was away, by controllers that have forgotten
    it since: a later topic of the name must not begin with them, and retention not go over them.
    Not those of deletions that are known, nor folders that are only named like partitions.
    """
    deleted_names = set(image.deletions.values())
    unknown = []
    for topic, index, topic_id in broker.logs.found():
        known = image.partition(topic, index)
        if known is not None and broker.node_id in known.replicas:
            continue
        if topic_id in image.deletions or (topic_id == ZERO_ID and topic in deleted_names):
            continue
        if topic_id != ZERO_ID or broker.logs.has_segments(topic, index):
            unknown.append((topic, index))
        else:
            log.warning("folder %s-%d has neither a segment nor a topic id", topic, index)
    return unknown


def keep_configs(broker: Broker) -> None:
    """Bring what the partitions' folders keep of their topics' configs up to date.

    A crash may have come between the tree and the folder, or an older version created it.
    """
    image, kept = broker.image, broker.logs.found_configs
    for topic, index, _ in broker.logs.found():
        if topic in image.topics and kept.get((topic, index)) != image.configs_of(topic):
            broker.logs.keep_configs(topic, [index])
    kept.clear()


def miss_partitions(
    broker: Broker, image: ClusterImage, noted: Mapping[str, str]
) -> dict[str, str]:
    """Find the partitions that have no folder; with a data directory missing, it has them.

    `noted` are the paths of data directories by their ids, at the last start. Returns those that
    are missed, if partitions are.
    """
    names = []
    for topic in image.topics.values():
        for partition in topic.partitions:
            here = broker.node_id in partition.replicas
            if here and broker.logs.topic_id(topic.name, partition.index) is None:
                broker.missing.add((topic.id, partition.index))
                names.append(f"{topic.name}-{partition.index}")
    directories = broker.logs.directory_ids()
    gone = {key: path for key, path in noted.items() if key not in directories}
    listed = ", ".join(names[:NAMES_LOGGED_MAX]) + (" …" if names[NAMES_LOGGED_MAX:] else "")
    if names and gone:
        log.error(
            "%d partitions are offline (%s): data directory %s is missing or empty; mount it "
            "and name it in log.dirs, or let them begin empty by deleting %s/%s",
            len(names),
            listed,
            " and ".join(gone.values()),
            broker.settings.data_directory,
            METADATA_CHECKPOINT,
        )
        return gone
    if names:
        broker.missing.clear()
        log.warning("%d partitions have no folder and begin empty: %s", len(names), listed)
    return {}
