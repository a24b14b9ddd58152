"""Credentials that a cluster begins with: `kafka-storage.sh format --add-scram`.

    SCRAM-SHA-512=[name=alice,password=secret]
    SCRAM-SHA-512=[name=alice,iterations=8192,salt="c2FsdA==",saltedpassword="…"]

They are written into the metadata tree before a broker has opened it, so that brokers can log in to
each other by SCRAM. What is wrong with a credential is said without it.
"""

from __future__ import annotations

import asyncio
import base64
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.cli.failure import Failure

if TYPE_CHECKING:
    from ottla.cli.server_zookeeper import Connect
    from ottla.metadata_store.tree import Operation, Tree
    from ottla.security.credentials import Credential
    from ottla.settings import Settings

ARGUMENT = re.compile(r"([^=]+)=\[(.*)\]", re.DOTALL)
# A value in quotation marks may hold commas.
FIELD = re.compile(r'\s*([a-z]+)=(?:"([^"]*)"|([^,]*))\s*(?:,|$)')
FIELDS = ("name", "password", "salt", "saltedpassword", "iterations")
SALT_BYTES = 24
EXAMPLE = "--add-scram 'SCRAM-SHA-512=[name=admin,password=…]'"


class Named(NamedTuple):
    user: str
    mechanism: str
    credential: Credential


def named(text: str) -> Named:
    """One argument. Raises Failure."""
    from ottla.security.credentials import ITERATIONS_MAX, ITERATIONS_MIN, NUMBERS
    from ottla.security.sasl.scram import credential, credential_of_salted

    found = ARGUMENT.fullmatch(text.strip())
    if found is None:
        raise Failure("--add-scram: it is not MECHANISM=[name=…,password=…]", EXAMPLE)
    mechanism, fields = found[1], fields_in(found[2])
    if mechanism not in NUMBERS:
        raise Failure(f"The add-scram mechanism {mechanism} is not supported.", EXAMPLE)
    if not fields.get("name"):
        raise Failure("You must supply 'name' to add-scram", EXAMPLE)
    if ("password" in fields) == ("saltedpassword" in fields):
        raise Failure("You must supply one of 'password' or 'saltedpassword' to add-scram", EXAMPLE)
    iterations = fields.get("iterations", str(ITERATIONS_MIN))
    if not iterations.isdigit() or not ITERATIONS_MIN <= int(iterations) <= ITERATIONS_MAX:
        raise Failure(
            f"The 'iterations' value must be >= {ITERATIONS_MIN} and <= {ITERATIONS_MAX} for "
            "add-scram",
            EXAMPLE,
        )
    salt = decoded("salt", fields["salt"]) if "salt" in fields else b""
    if "password" in fields:
        salt = salt or secrets.token_bytes(SALT_BYTES)
        made = credential(mechanism, fields["password"], salt, int(iterations))
    elif not salt:
        raise Failure("You must supply 'salt' with 'saltedpassword' to add-scram", EXAMPLE)
    else:
        salted = decoded("saltedpassword", fields["saltedpassword"])
        made = credential_of_salted(mechanism, salted, salt, int(iterations))
    return Named(fields["name"], mechanism, made)


def fields_in(text: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    position = 0
    while position < len(text):
        found = FIELD.match(text, position)
        if found is None or found[1] not in FIELDS or found[1] in fields:
            raise Failure(f"--add-scram: its fields are {', '.join(FIELDS)}, each once", EXAMPLE)
        fields[found[1]] = found[3] if found[2] is None else found[2]
        position = found.end()
    return fields


def decoded(name: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise Failure(f"--add-scram: {name} is not base64", EXAMPLE) from None


def add_credentials(settings: Settings, cluster_id: str, wanted: Sequence[Named]) -> None:
    """Write them into the tree that the server will open. Raises Failure."""
    if settings.zookeeper_connect is not None:
        add_to_zookeeper(settings, cluster_id, wanted)
        return
    shared = settings.values["ottla.cluster.directory"]
    directory = shared or settings.data_directory
    if shared:
        claim(str(shared), cluster_id)
    try:
        asyncio.run(write(str(directory).rstrip("/"), wanted))
    except Exception as error:
        from ottla.metadata_store.tree import TreeError
        from ottla.seams.disk import AlreadyLocked

        if not isinstance(error, OSError | TreeError | AlreadyLocked):
            raise
        hint = "stop the server that uses it, or use kafka-configs.sh --alter --user"
        raise Failure(f"--add-scram: {directory} cannot be written: {error}", hint) from None


def claim(directory: str, cluster_id: str) -> None:
    """Say whose the shared directory is, unless it is said already. Raises Failure."""
    from ottla.metadata_store.shared import SharedDirectory
    from ottla.metadata_store.tree import TreeError
    from ottla.seams.disk import RealDisk

    try:
        found = SharedDirectory(RealDisk(), directory)
        found.prepare()
        theirs = found.cluster_id(cluster_id)
    except TreeError as error:
        raise Failure(f"--add-scram: {error}", "is ottla.cluster.directory right?") from None
    if theirs != cluster_id:
        raise Failure(
            f"--add-scram: {directory} belongs to cluster {theirs}, not to {cluster_id}",
            f"--cluster-id {theirs}, or another ottla.cluster.directory",
        )


async def write(directory: str, wanted: Sequence[Named]) -> None:
    from ottla.metadata_store.local import LocalTree
    from ottla.metadata_store.shared import LOCK_FILE, TREE_FILE
    from ottla.seams.background import RealBackground
    from ottla.seams.disk import RealDisk

    disk = RealDisk()
    disk.mkdir(directory)
    lock = disk.lock(f"{directory}/{LOCK_FILE}")
    background = RealBackground(asyncio.get_running_loop())
    try:
        tree = await LocalTree.open(disk, f"{directory}/{TREE_FILE}", background)
        try:
            await put(tree, wanted)
        finally:
            await tree.close()
    finally:
        background.close()
        lock.release()


def add_to_zookeeper(settings: Settings, cluster_id: str, wanted: Sequence[Named]) -> None:
    """As `kafka-configs.sh --zookeeper` did before a broker of Kafka 3 ran. Raises Failure."""
    from ottla.cli.server_zookeeper import with_tree

    async def written(connect: Connect) -> None:
        tree = await connect()
        try:
            await claim_tree(tree, cluster_id, wanted)
            if wanted:
                await put(tree, wanted)
        finally:
            await tree.close()

    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(with_tree(settings, loop, written))
    finally:
        loop.close()


async def claim_tree(tree: Tree, cluster_id: str, wanted: Sequence[Named]) -> None:
    """Say whose the tree is, unless it is said already. Raises Failure where it is of another
    cluster, and credentials where there is a controller, which reads them when it begins."""
    from ottla.cluster import nodes
    from ottla.metadata_store.tree import Create

    parent = nodes.CLUSTER_ID.rpartition("/")[0]
    found = await tree.get_many([parent, nodes.CLUSTER_ID, nodes.CONTROLLER])
    if nodes.CLUSTER_ID not in found:
        made = [] if parent in found else [Create(parent)]
        await tree.multi([*made, Create(nodes.CLUSTER_ID, nodes.cluster_id_value(cluster_id))])
        return
    theirs = nodes.read_cluster_id(nodes.CLUSTER_ID, found[nodes.CLUSTER_ID][0])
    if theirs != cluster_id:
        raise Failure(
            f"ZooKeeper has cluster {theirs}, not {cluster_id}",
            f"--cluster-id {theirs}, or another path in zookeeper.connect",
        )
    if nodes.CONTROLLER in found and wanted:
        raise Failure(
            "--add-scram: brokers of this cluster are running", "kafka-configs.sh --alter --user"
        )


async def put(tree: Tree, wanted: Sequence[Named]) -> None:
    """Write the credentials beside what users have."""
    configs: dict[str, dict[str, str]] = {}
    paths = {each.user: path_of(each.user) for each in wanted}
    found = await tree.get_many(["/config", "/config/users", *paths.values()])
    for each in wanted:
        path = paths[each.user]
        if path not in configs:
            configs[path] = configs_in(path, found)
        configs[path][each.mechanism] = text_of(each.credential)
    await tree.multi(operations(found, configs))


def path_of(user: str) -> str:
    from ottla.cluster.client_nodes import path_of as path_of_entity

    return path_of_entity((("user", user),))


def configs_in(path: str, found: Mapping[str, tuple[bytes, int]]) -> dict[str, str]:
    from ottla.cluster.client_nodes import read_value

    return read_value(path, found[path][0]) if path in found else {}


def text_of(credential: Credential) -> str:
    from ottla.security.credentials import credential_text

    return credential_text(credential)


def operations(
    found: Mapping[str, tuple[bytes, int]], configs: Mapping[str, dict[str, str]]
) -> list[Operation]:
    from ottla.cluster.nodes import config_value
    from ottla.metadata_store.tree import Create, Set

    made: list[Operation] = [
        Create(each) for each in ("/config", "/config/users") if each not in found
    ]
    for path, own in configs.items():
        value = config_value(own)
        made.append(Set(path, value) if path in found else Create(path, value))
    return made
