"""What an operator writes into the tree by hand, with zkCli or Kafka's tools of old.

    /admin/delete_topics/T               delete topic T; anything but the controller's own notes
    /admin/preferred_replica_election    let preferred leaders lead these partitions
    /admin/reassign_partitions           let these partitions have these replicas
    /config/changes/config_change_…      the configs under /config that it names have changed

Each is carried out, and removed in the write that does so: a controller that takes over finds
either a request or what came of it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeVar

from ottla.cluster import (
    client_nodes,
    configs,
    leadership,
    names,
    nodes,
    reassignment_writes,
    registration,
    topic_writes,
)
from ottla.cluster.config_writes import config_step
from ottla.cluster.features import metadata_level
from ottla.cluster.image import Change, EntityConfigured
from ottla.cluster.requests import ElectionType, Reassignment, Refusal, Resource, ResourceType
from ottla.cluster.state import State
from ottla.cluster.steps import Step
from ottla.metadata_store.tree import Delete, Event, NoNode, Operation, Set, Watcher
from ottla.seams.clock import Clock, Timer
from ottla.security.quotas.entities import BadQuota, Entity, check_configs
from ottla.wire.errors import ErrorCode
from ottla.wire.feed_records import SECURITY_LEVEL

log = logging.getLogger(__name__)

AGAIN_S = 0.5  # after an attempt that failed

T = TypeVar("T")
Act: TypeAlias = Callable[[State], Awaitable[Any]]
Answer: TypeAlias = asyncio.Future[tuple[Any, int]]


class OperatorRequests:
    """Has the controller look at the requests when there may be some."""

    def __init__(self, clock: Clock, put: Callable[[Act, Answer], bool]) -> None:
        """`put` gives the controller something to do; False: it takes nothing now."""
        self._clock = clock
        self._put = put
        self._timer: Timer | None = None
        self._stopped = False
        self._last = 0  # the number of the last look

    def look(self) -> None:
        """Carry out what is there, and look again after the next change."""
        if self._stopped:
            return
        self._last += 1
        number, done = self._last, False

        def changed(event: Event) -> None:
            # A lost connection fires all watches, those of earlier looks too: one look is enough.
            if number == self._last:
                self.look()

        async def act(state: State) -> None:
            nonlocal done
            await carry_out(state, changed)
            done = True

        def again_unless_done(answer: Answer) -> None:
            # One that failed, or found the queue full, may have set no watch.
            if not done and not self._stopped and number == self._last:
                self._timer = self._clock.call_later(AGAIN_S, self.look)

        answer: Answer = asyncio.get_running_loop().create_future()
        answer.add_done_callback(again_unless_done)
        if not self._put(act, answer):
            answer.cancel()

    def stop(self) -> None:
        """Look no longer."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()


async def carry_out(state: State, watch: Watcher) -> None:
    """Carry out all requests that are there; `watch` is called when there may be another."""
    await delete_topics(state, watch)
    await elect_preferred_leaders(state, watch)
    await reassign(state, watch)
    await take_configs(state, watch)


async def delete_topics(state: State, watch: Watcher) -> None:
    found = await requests_below(state, nodes.DELETIONS, watch)
    paths = [nodes.deletion_path(name) for name in found if name not in state.waiting]
    for path, (data, version) in (await state.tree.get_many(paths)).items():
        if not nodes.is_deletion_request(data):
            continue
        name = path.rpartition("/")[2]
        topic = state.image.topics.get(name)
        if topic is None or not state.options.delete_topic_enable:
            why = "there is none" if topic is None else "delete.topic.enable is false"
            log.warning("topic %s is not deleted, as %s asks for: %s", name, path, why)
            await state.write([Step([Delete(path, version)])])
            continue
        log.info("deleting topic %s, as %s asks for", name, path)
        await state.write(topic_writes.deletion(state, topic, requested=True))


async def elect_preferred_leaders(state: State, watch: Watcher) -> None:
    path = nodes.PREFERRED_ELECTION
    node = await request_at(state, path, watch)
    if node is None:
        return
    partitions = read(nodes.read_preferred_election, path, node[0])
    log.info("electing %d preferred leaders, as %s asks for", len(partitions), path)
    work = leadership.elect_leaders(state, ElectionType.PREFERRED, partitions)
    await with_removal(state, Delete(path, node[1]), len(partitions), work)


async def reassign(state: State, watch: Watcher) -> None:
    path = nodes.REASSIGNMENTS
    node = await request_at(state, path, watch)
    if node is None:
        return
    wanted = [Reassignment(*each) for each in read(nodes.read_reassignments, path, node[0])]
    work = reassignment_writes.alter_reassignments(state, wanted, allow_factor_change=True)
    outcomes = await with_removal(state, Delete(path, node[1]), len(wanted), work)
    for each in outcomes:
        if each.error_code != ErrorCode.NONE:
            log.warning(
                "%s-%d is not reassigned, as %s asks for: %s",
                each.topic, each.partition, path, each.error_message,
            )  # fmt: skip


async def requests_below(state: State, path: str, watch: Watcher) -> list[str]:
    """The names of the nodes below one that an operator may have deleted as a whole."""
    try:
        return await state.tree.children(path, watch)
    except NoNode:
        log.warning("%s was deleted, and is made again", path)
        await registration.restore_fixed(state)
        return await state.tree.children(path, watch)


async def request_at(state: State, path: str, watch: Watcher) -> tuple[bytes, int] | None:
    """Data and version of a request, if there is one."""
    if await state.tree.exists(path, watch) is None:
        return None
    return (await state.tree.get_many([path])).get(path)


def read(reader: Callable[[str, bytes], list[T]], path: str, data: bytes) -> list[T]:
    """What a request asks for; nothing, if it cannot be read."""
    try:
        return reader(path, data)
    except nodes.CorruptNode as error:
        log.warning("%s", error)
        return []


async def with_removal(state: State, done: Operation, partitions: int, work: Awaitable[T]) -> T:
    """Do the work, and remove the request in the write that it leads to.

    More work than one write takes is begun again by a controller that takes over: then the request
    goes after it.
    """
    if partitions <= leadership.PARTITIONS_PER_WRITE:
        state.with_next.append(done)
    result = await work
    removed = partitions <= leadership.PARTITIONS_PER_WRITE and not state.with_next
    state.with_next.clear()
    if not removed:
        await state.write([Step([done])])
    return result


async def take_configs(state: State, watch: Watcher) -> None:
    found = await requests_below(state, nodes.CONFIG_CHANGES, watch)
    paths = [f"{nodes.CONFIG_CHANGES}/{name}" for name in found]
    for path, (data, version) in sorted((await state.tree.get_many(paths)).items()):
        done: Operation = Delete(path, version)
        try:
            entity = nodes.read_config_change(path, data)
        except nodes.CorruptNode as error:
            log.warning("%s", error)
            entity = ""
        resource = resource_of(entity)
        client = client_nodes.entity_at(entity)
        if client is not None:
            await take_entity_configs(state, client, f"/config/{entity}", done)
        elif resource is None:
            log.warning("%s names configs that are not there: %r", path, entity)
            await state.write([Step([done])])
        else:
            await take_config(state, resource, f"/config/{entity}", done)


async def take_config(state: State, resource: Resource, path: str, done: Operation) -> None:
    """Publish the configs that a node has now; refuse them by writing the former ones."""
    old = configs.configs_of(state.image, resource)
    found = await state.tree.get_many([path])
    try:
        wanted = nodes.read_config(path, found[path][0]) if path in found else {}
        decided = configs.altered(state.image, state.rules, resource, list(wanted.items()))
    except nodes.CorruptNode as error:
        decided = Refusal(ErrorCode.INVALID_CONFIG, str(error))
    operations = [done]
    if isinstance(decided, Refusal):
        log.warning("the configs at %s are refused: %s", path, decided.error_message)
        if path in found:
            version = found[path][1]
            restored = Set(path, nodes.config_value(old), version)
            operations.append(restored if old else Delete(path, version))
        await state.write([Step(operations)])
        return
    if not decided and path in found:
        operations.append(Delete(path, found[path][1]))  # it has a node only while it has configs
    first = []
    if old.get(configs.MIN_ISR) != decided.get(configs.MIN_ISR):
        first = list(leadership.without_elr(state, resource))
    changes = config_step(state, resource, decided).changes
    await state.write([*first, Step(operations, changes)])
    if old.get(configs.UNCLEAN_ELECTION) != decided.get(configs.UNCLEAN_ELECTION):
        await leadership.settle(state)


async def take_entity_configs(state: State, entity: Entity, path: str, done: Operation) -> None:
    """Publish the quotas that a node has now; refuse them by writing the former configs."""
    old = state.image.entity_configs.get(entity, {})
    found = await state.tree.get_many([path])
    try:
        new = client_nodes.read_value(path, found[path][0]) if path in found else {}
        check_configs(entity, new)
    except (nodes.CorruptNode, BadQuota) as error:
        log.warning("the configs at %s are refused: %s", path, error)
        operations = [done]
        if path in found:
            operations.append(Set(path, nodes.config_value(old), found[path][1]))
        await state.write([Step(operations)])
        return
    changes: list[Change] = [EntityConfigured(entity, new)]
    if metadata_level(state.image.features) < SECURITY_LEVEL:
        log.warning("the configs at %s are left alone until level %d", path, SECURITY_LEVEL)
        changes = []
    await state.write([Step([done], changes)])


def resource_of(entity: str) -> Resource | None:
    """The resource of a path below /config; None for what nobody knows."""
    kind, _, name = entity.partition("/")
    if kind == "topics" and names.name_error(name) is None:
        return Resource(ResourceType.TOPIC, name)
    if kind == "brokers" and (name == nodes.ALL_BROKERS or name.isdecimal()):
        return Resource(ResourceType.BROKER, "" if name == nodes.ALL_BROKERS else name)
    return None
