"""Configs of users, client ids and addresses in the metadata tree, where Kafka 3 had them. Pure.

/config/users/USER                    quotas, and credentials
/config/users/USER/clients/CLIENT_ID
/config/clients/CLIENT_ID
/config/ips/ADDRESS

Names are written as Kafka's Sanitizer does it; `<default>` stands for all others.
"""

import logging
from collections.abc import Mapping
from urllib.parse import quote, unquote

from ottla.cluster.nodes import CorruptNode, read_config
from ottla.security.quotas.entities import CLIENT_ID, IP, USER, Configs, Entity

log = logging.getLogger(__name__)

CONFIG = "/config"
FOLDERS = {USER: "users", CLIENT_ID: "clients", IP: "ips"}
KINDS = {folder: kind for kind, folder in FOLDERS.items()}
DEFAULT = "<default>"


def path_of(entity: Entity) -> str:
    return "/".join((CONFIG, *(f"{FOLDERS[kind]}/{node_name(name)}" for kind, name in entity)))


def node_name(name: str | None) -> str:
    if name is None:
        return DEFAULT
    if name in (".", ".."):  # which a tree has not
        return name.replace(".", "%2E")
    return quote(name, safe="", errors="surrogatepass").replace("~", "%7E")


def entity_at(path: str) -> Entity | None:
    """The entity of a path below /config; None: it is of none."""
    parts = path.split("/")
    if len(parts) == 2:
        folder, name = parts
        kind = KINDS.get(folder)
        return ((kind, name_at(name)),) if kind is not None and name else None
    if len(parts) == 4 and parts[0] == FOLDERS[USER] and parts[2] == FOLDERS[CLIENT_ID]:
        return ((USER, name_at(parts[1])), (CLIENT_ID, name_at(parts[3])))
    return None


def name_at(node: str) -> str | None:
    return None if node == DEFAULT else unquote(node, errors="surrogatepass")


def read_value(path: str, data: bytes) -> dict[str, str]:
    """The configs of a node; one between others may have no data.

    Raises CorruptNode, which does not show them: credentials may be among them.
    """
    try:
        return read_config(path, data) if data else {}
    except CorruptNode:
        raise CorruptNode(path, b"[hidden]", ValueError("not the configs of a user")) from None


def read_configs(found: Mapping[str, tuple[bytes, int]]) -> Configs:
    """The configs among these nodes, by path; what cannot be read is left alone."""
    configs: dict[Entity, Mapping[str, str]] = {}
    for path, (data, _) in found.items():
        if not path.startswith("/config/"):
            continue
        entity = entity_at(path.removeprefix("/config/"))
        if entity is None:
            continue
        try:
            value = read_value(path, data)
        except CorruptNode as error:
            log.warning("no quotas are taken from it: %s", error)
            continue
        if value:
            configs[entity] = value
    return configs
