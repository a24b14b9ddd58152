"""Kafka's paths in the metadata tree, and the JSON in its nodes. Pure.

A Kafka operator who looks at the tree finds what a ZooKeeper-based Kafka would have written. The
version of a partition's state node is its partition epoch, as it was there.
"""

import base64
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from ottla.cluster.image import NO_LEADER, ZERO_ID, BrokerInfo, Endpoint, FeatureImage, Levels
from ottla.metadata_store.tree import CorruptTree

CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
CLUSTER_ID = "/cluster/id"
BROKER_IDS = "/brokers/ids"
BROKER_SEQUENCE = "/brokers/seqid"  # its version is the last id that was drawn
TOPICS = "/brokers/topics"
TOPIC_CONFIGS = "/config/topics"
BROKER_CONFIGS = "/config/brokers"
CONFIG_CHANGES = "/config/changes"
DELETIONS = "/admin/delete_topics"
PREFERRED_ELECTION = "/admin/preferred_replica_election"
REASSIGNMENTS = "/admin/reassign_partitions"
PRODUCER_IDS = "/latest_producer_id_block"
FEATURES = "/feature"
# What Kafka has no place for. Where brokers have sessions of their own its version is the number of
# writes of controllers: a copy of the tree from an earlier time has fewer.
OURS = "/ottla"
# Kafka has configs of groups only where it has no ZooKeeper. They were below /config here at first.
GROUP_CONFIGS = "/ottla/groups"
FORMER_GROUP_CONFIGS = "/config/groups"
# Every broker that has registered, alive or not; its data is the last broker epoch that was given.
REGISTRATIONS = "/ottla/brokers"

METADATA_LEVEL = "ottla.metadata.version"  # the feature: see features.py

# What has to be there before anything else, parents first; some of it only because an operator
# expects it.
FIXED = (
    "/brokers",
    BROKER_IDS,
    TOPICS,
    BROKER_SEQUENCE,
    "/config",
    TOPIC_CONFIGS,
    BROKER_CONFIGS,
    "/config/clients",
    "/config/ips",
    "/config/users",
    CONFIG_CHANGES,
    "/admin",
    DELETIONS,
    "/cluster",
    "/consumers",
    "/isr_change_notification",
    "/log_dir_event_notification",
    OURS,
    REGISTRATIONS,
    GROUP_CONFIGS,
)
# Kafka's name for the configs of all brokers; on the wire it is the empty string.
ALL_BROKERS = "<default>"
NOTHING: Mapping[int, tuple[int, ...]] = {}
BROKER_ID_MAX = 2**31 - 1
# What reading JSON of another form than expected raises; a number may be infinite there.
UNEXPECTED = (KeyError, TypeError, AttributeError, ValueError, OverflowError)


class CorruptNode(CorruptTree):
    """A node whose value is not what its path asks for."""

    def __init__(self, path: str, value: bytes, error: Exception) -> None:
        super().__init__(
            f"metadata tree, node {path}",
            f"found {value[:200]!r}, which is not the JSON expected there ({error}); "
            "restore the tree from a backup",
        )


class Assignment(NamedTuple):
    """The value of a topic's node."""

    topic_id: bytes  # ZERO_ID: it has none yet
    replicas: list[tuple[int, ...]]  # by partition index
    adding: Mapping[str, Sequence[int]]
    removing: Mapping[str, Sequence[int]]


class ControllerAddress(NamedTuple):
    """Where the controller is reached, and which process it is."""

    host: str
    port: int
    incarnation: str


class State(NamedTuple):
    """The value of a partition's state node."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    last_known_leader: int = NO_LEADER
    recovering: bool = False
    wiped: tuple[int, ...] = ()


class Registration(NamedTuple):
    """The value of a broker's registration."""

    broker: BrokerInfo
    # How it had stopped before it registered: see `elections.Stopped`. Of use until it is unfenced.
    unclean: bool = False
    wiped: bool = False


def topic_path(name: str) -> str:
    return f"{TOPICS}/{name}"


def partitions_path(name: str) -> str:
    return f"{TOPICS}/{name}/partitions"


def topic_config_path(name: str) -> str:
    return f"{TOPIC_CONFIGS}/{name}"


def broker_config_path(name: str) -> str:
    return f"{BROKER_CONFIGS}/{name or ALL_BROKERS}"


def group_config_path(name: str) -> str:
    return f"{GROUP_CONFIGS}/{quoted(name)}"


def quoted(name: str) -> str:
    """A name of any characters as that of a node; a path has no '/', '.' or '..' for a name."""
    return quote(name, safe="").replace(".", "%2E")


def unquoted(node: str) -> str:
    """The name that `quoted` wrote."""
    return unquote(node)


def deletion_path(name: str) -> str:
    return f"{DELETIONS}/{name}"


def broker_path(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def registration_path(broker_id: int) -> str:
    return f"{REGISTRATIONS}/{broker_id}"


def uuid_text(uuid: bytes) -> str:
    """An id as Kafka writes it: 22 characters of base64url."""
    return base64.urlsafe_b64encode(uuid)[:22].decode()


def uuid_bytes(text: str) -> bytes:
    """The id that `uuid_text` wrote."""
    uuid = base64.urlsafe_b64decode(text + "==")
    if len(uuid) != 16:
        raise ValueError(f"an id has 16 bytes, {text!r} has {len(uuid)}")
    return uuid


def dump(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def load(path: str, data: bytes) -> dict[str, Any]:
    """The JSON object in a node."""
    try:
        value = json.loads(data)
        if not isinstance(value, dict):
            raise ValueError("not a JSON object")
    except (ValueError, RecursionError) as error:
        raise CorruptNode(path, data, error) from error
    return value


def broker_ids(value: Any) -> tuple[int, ...]:
    """A list of brokers. Raises ValueError for anything else."""
    if not isinstance(value, list) or not all(
        type(each) is int and 0 <= each <= BROKER_ID_MAX for each in value
    ):
        raise ValueError(f"{value!r} is not a list of broker ids")
    return tuple(value)


def topic_value(
    topic_id: bytes,
    replicas: Sequence[tuple[int, ...]],
    adding: Mapping[int, tuple[int, ...]] = NOTHING,
    removing: Mapping[int, tuple[int, ...]] = NOTHING,
) -> bytes:
    """`adding` and `removing`: of the partitions that are reassigned, by index (KIP-455)."""
    return (
        f'{{"removing_replicas":{{{replica_lists(removing.items())}}},'
        f'"partitions":{{{replica_lists(list(enumerate(replicas)))}}},'
        f'"topic_id":"{uuid_text(topic_id)}",'
        f'"adding_replicas":{{{replica_lists(adding.items())}}},"version":3}}'
    ).encode()


def replica_lists(partitions: Collection[tuple[int, tuple[int, ...]]]) -> str:
    # By hand: ten thousand partitions have few different lists of replicas among them, and the
    # event loop waits.
    lists = {ids: f":[{','.join(map(str, ids))}]" for ids in {ids for _, ids in partitions}}
    return ",".join([f'"{i}"{lists[ids]}' for i, ids in partitions])


def read_topic(path: str, data: bytes) -> Assignment:
    value = load(path, data)
    try:
        partitions = value["partitions"]
        shared: dict[tuple[int, ...], tuple[int, ...]] = {}
        replicas = []
        for i in range(len(partitions)):
            ids = tuple(partitions[str(i)])
            if ids not in shared:
                shared[ids] = broker_ids(partitions[str(i)])
            replicas.append(shared[ids])
        if not replicas or () in shared:
            raise ValueError("there is no partition, or one without replicas")
        topic_id = value.get("topic_id")  # Kafka before 2.8 wrote none
        return Assignment(
            ZERO_ID if topic_id is None else uuid_bytes(topic_id),
            replicas,
            {i: broker_ids(ids) for i, ids in value.get("adding_replicas", {}).items()},
            {i: broker_ids(ids) for i, ids in value.get("removing_replicas", {}).items()},
        )
    except UNEXPECTED as error:
        raise CorruptNode(path, data, error) from error


def state_value(state: State, controller_epoch: int) -> bytes:
    """Kafka's fields, and those of KIP-966 where they say something."""
    value: dict[str, object] = {
        "controller_epoch": controller_epoch,
        "leader": state.leader,
        "version": 1,
        "leader_epoch": state.leader_epoch,
        "isr": state.isr,
    }
    if state.elr:
        value["elr"] = state.elr
    if state.last_known_leader != NO_LEADER:
        value["last_known_leader"] = state.last_known_leader
    if state.recovering:
        value["leader_recovery_state"] = 1  # Kafka's number and name
    if state.wiped:
        value["wiped"] = state.wiped
    return dump(value)


def read_state(path: str, data: bytes) -> State:
    value = load(path, data)
    try:
        return State(
            int(value["leader"]),
            int(value["leader_epoch"]),
            broker_ids(value["isr"]),
            broker_ids(value.get("elr", [])),
            int(value.get("last_known_leader", NO_LEADER)),
            bool(value.get("leader_recovery_state", 0)),
            broker_ids(value.get("wiped", [])),
        )
    except UNEXPECTED as error:
        raise CorruptNode(path, data, error) from error


def config_value(configs: Mapping[str, str]) -> bytes:
    return dump({"version": 1, "config": dict(configs)})


def read_config(path: str, data: bytes) -> dict[str, str]:
    configs = load(path, data).get("config")
    if not isinstance(configs, dict):
        raise CorruptNode(path, data, ValueError("'config' is not an object"))
    return {str(name): str(value) for name, value in configs.items()}


def deletion_value(waiting: Mapping[bytes, Iterable[int]]) -> bytes:
    """By topic id, the brokers that have not confirmed yet that its directories are gone."""
    topics = {uuid_text(topic_id): sorted(ids) for topic_id, ids in waiting.items()}
    return dump({"version": 1, "topics": topics})


def read_deletion(path: str, data: bytes) -> dict[bytes, set[int]]:
    try:
        topics = load(path, data)["topics"]
        return {uuid_bytes(topic_id): set(ids) for topic_id, ids in topics.items()}
    except UNEXPECTED as error:
        raise CorruptNode(path, data, error) from error


def is_deletion_request(data: bytes) -> bool:
    """Whether an operator asks for a deletion, with whatever data: Kafka reads the name only.

    The controller's own notes are JSON objects with topics.
    """
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return True
    return not isinstance(value, dict) or not isinstance(value.get("topics"), dict)


def read_preferred_election(path: str, data: bytes) -> list[tuple[str, int]]:
    """Topics and indexes of the partitions."""
    try:
        return [
            (str(each["topic"]), int(each["partition"])) for each in load(path, data)["partitions"]
        ]
    except UNEXPECTED as error:
        raise CorruptNode(path, data, error) from error


def read_reassignments(path: str, data: bytes) -> list[tuple[str, int, list[int]]]:
    """Topic, index and wanted replicas of the partitions."""
    try:
        return [
            (str(each["topic"]), int(each["partition"]), [*map(int, each["replicas"])])
            for each in load(path, data)["partitions"]
        ]
    except UNEXPECTED as error:
        raise CorruptNode(path, data, error) from error


def read_config_change(path: str, data: bytes) -> str:
    """The path below /config of the configs that have changed; version 1 had two fields for it."""
    value = load(path, data)
    try:
        if value["version"] == 1:
            return f"{value['entity_type']}/{value['entity_name']}"
        return str(value["entity_path"])
    except UNEXPECTED as error:
        raise CorruptNode(path, data, error) from error


def producer_ids_value(broker_id: int, first: int, last: int) -> bytes:
    # Strings, as Kafka writes them: a JSON reader could take large numbers for floating point.
    return dump(
        {"version": 1, "broker": broker_id, "block_start": str(first), "block_end": str(last)}
    )


def read_producer_ids(path: str, data: bytes) -> int:
    """The last id of the newest block."""
    try:
        return int(load(path, data)["block_end"])
    except UNEXPECTED as error:
        raise CorruptNode(path, data, error) from error


def broker_value(broker: BrokerInfo, now_ms: int) -> bytes:
    first = next(iter(broker.endpoints.values()), Endpoint("", -1))
    lowest, highest = broker.levels
    value: dict[str, object] = {
        # As Kafka 3 writes what a broker supports.
        "features": {METADATA_LEVEL: {"min_version": lowest, "max_version": highest}},
        "listener_security_protocol_map": {
            name: endpoint.security_protocol for name, endpoint in broker.endpoints.items()
        },
        "endpoints": [
            f"{name}://{endpoint.host}:{endpoint.port}"
            for name, endpoint in broker.endpoints.items()
        ],
        "jmx_port": -1,
        "port": first.port,
        "host": first.host,
        "version": 5,
        "timestamp": str(now_ms),
    }
    if broker.rack is not None:
        value["rack"] = broker.rack
    return dump(value)


def registration_value(registration: Registration) -> bytes:
    """What a controller must know of a broker that another one registered."""
    broker = registration.broker
    return dump(
        {
            "version": 1,
            "epoch": broker.epoch,
            "incarnation": uuid_text(broker.incarnation),
            "fenced": broker.fenced,
            "in_controlled_shutdown": broker.in_controlled_shutdown,
            "unclean": registration.unclean,
            "wiped": registration.wiped,
            "rack": broker.rack,
            "endpoints": {name: list(endpoint) for name, endpoint in broker.endpoints.items()},
            "directories": [uuid_text(each) for each in broker.directories],
            "levels": list(broker.levels),
        }
    )


def read_registration(path: str, data: bytes) -> Registration:
    """The inverse of `registration_value`."""
    value = load(path, data)
    try:
        broker = BrokerInfo(
            int(path.rpartition("/")[2]),
            {
                str(name): Endpoint(str(host), int(port), str(protocol))
                for name, (host, port, protocol) in value["endpoints"].items()
            },
            None if value["rack"] is None else str(value["rack"]),
            int(value["epoch"]),
            bool(value["fenced"]),
            bool(value["in_controlled_shutdown"]),
            uuid_bytes(value["incarnation"]),
            tuple(uuid_bytes(each) for each in value["directories"]),
            Levels(*map(int, value.get("levels", ()))),  # none: of a version with one level
        )
        return Registration(broker, bool(value["unclean"]), bool(value["wiped"]))
    except UNEXPECTED as error:
        raise CorruptNode(path, data, error) from error


def read_controller_epoch(data: bytes) -> int:
    """The epoch of the last controller."""
    try:
        return int(data)
    except ValueError as error:
        raise CorruptNode(CONTROLLER_EPOCH, data, error) from error


def read_broker_epoch(data: bytes) -> int:
    """The last broker epoch that was given; 0 before the first."""
    try:
        return int(data or b"0")
    except ValueError as error:
        raise CorruptNode(REGISTRATIONS, data, error) from error


def cluster_id_value(cluster_id: str) -> bytes:
    return dump({"version": "1", "id": cluster_id})


def read_cluster_id(path: str, data: bytes) -> str:
    cluster_id = load(path, data).get("id")
    if not isinstance(cluster_id, str) or not cluster_id:
        raise CorruptNode(path, data, ValueError("'id' is not a text"))
    return cluster_id


def controller_value(broker_id: int, now_ms: int, address: ControllerAddress | None) -> bytes:
    """Kafka's fields, and where the controller is reached: it is elected before it registers."""
    value: dict[str, object] = {
        "version": 2,
        "brokerid": broker_id,
        "timestamp": str(now_ms),
        "kraftControllerEpoch": -1,
    }
    if address is not None:
        value |= address._asdict()
    return dump(value)


def read_controller(path: str, data: bytes) -> tuple[int, ControllerAddress | None]:
    """The broker that is the controller, and its address if it is one of ours."""
    value = load(path, data)
    try:
        broker_id = int(value["brokerid"])
        if "incarnation" not in value:
            return broker_id, None
        address = ControllerAddress(
            str(value["host"]), int(value["port"]), str(value["incarnation"])
        )
        return broker_id, address
    except UNEXPECTED as error:
        raise CorruptNode(path, data, error) from error


def features_value(features: FeatureImage) -> bytes:
    return dump({"version": 2, "status": 1, "features": dict(features.levels)})


def read_features(path: str, data: bytes) -> dict[str, int]:
    try:
        features = load(path, data)["features"]
        return {str(name): int(level) for name, level in features.items()}
    except UNEXPECTED as error:
        raise CorruptNode(path, data, error) from error
