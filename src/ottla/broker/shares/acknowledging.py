"""Acknowledgements of one request: checked, given to their share partitions, gathered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ottla.broker.gather import Gather
from ottla.broker.shares.acknowledgements import RENEW, Said
from ottla.broker.shares.sessions import Place
from ottla.broker.shares.share_partition import Outcome
from ottla.security.acls import Operation, ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.rows import Rows

if TYPE_CHECKING:
    from ottla.broker.authorization.rights import Rights
    from ottla.broker.broker import Broker

Acknowledgements = dict[Place, list[Said]]


def acknowledgements_in(topics: Sequence[Any]) -> Acknowledgements:
    """What the topics of a ShareFetch or ShareAcknowledge request say."""
    return {
        (topic.topic_id, each.partition_index): said_in(each.acknowledgement_batches)
        for topic in topics
        for each in topic.partitions
        if each.acknowledgement_batches
    }


def said_in(batches: Sequence[Any]) -> list[Said]:
    if isinstance(batches, Rows):
        return list(batches.values())
    return [(each.first_offset, each.last_offset, each.acknowledge_types) for each in batches]


def are_valid(batches: list[Said], *, may_renew: bool) -> bool:
    """Whether the batches of a partition are in order and say something of every record."""
    end = -1
    types_max = RENEW if may_renew else RENEW - 1
    for first, last, types in batches:
        if first > last or first < end or not types:
            return False
        if len(types) > 1 and len(types) != last - first + 1:
            return False
        if not 0 <= types[0] <= types_max:
            return False
        if len(types) > 1 and not 0 <= min(types) <= max(types) <= types_max:
            return False
        end = last
    return True


def acknowledge(
    broker: Broker,
    group_id: str,
    member_id: str,
    said: Acknowledgements,
    *,
    is_renewal: bool,
    rights: Rights | None,
    then: Callable[[dict[Place, Outcome]], object],
) -> None:
    """Answer what came of the acknowledgement of each partition."""
    if not said:
        then({})
        return
    places = list(said)
    manager = broker.coordinators.share_manager
    may_renew = is_renewal and manager.configs.may_renew(group_id)
    gather = Gather(len(places), lambda outcomes: then(dict(zip(places, outcomes, strict=True))))
    for number, place in enumerate(places):
        part = gather.part(number, Outcome)
        topic = broker.image.topic_name(place[0])
        if topic is None:
            part.fail(ErrorCode.UNKNOWN_TOPIC_ID)
            continue
        if not are_valid(said[place], may_renew=may_renew):
            part.fail(ErrorCode.INVALID_REQUEST)
            continue
        if rights is not None and not rights.allows(Operation.READ, ResourceType.TOPIC, topic):
            part.fail(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            continue
        known = manager.known(group_id, place)
        if known is None:
            found = manager.find(group_id, place)
            error = found if isinstance(found, ErrorCode) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            part.fail(error)
            continue
        known.acknowledge(member_id, said[place], part.resolve)
