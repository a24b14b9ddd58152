"""`--zookeeper HOSTS` of Kafka's scripts of old: the brokers that are registered there."""

from __future__ import annotations

import json
import socket

from ottla.cli.failure import Failure
from ottla.settings.zookeeper import split_connect

PORT = 2181  # ZooKeeper's own, where a host is given without one
TIMEOUT_S = 10.0
BROKER_IDS = "/brokers/ids"


def bootstrap_servers(connect: str, hint: str) -> str:
    """The addresses of the brokers, HOST:PORT with commas. `hint`: what to try when none is found.

    Raises Failure with one sentence.
    """
    try:
        from kazoo.client import KazooClient
        from kazoo.exceptions import KazooException, NoNodeError
    except ImportError:
        raise Failure(
            "--zookeeper needs the package kazoo: pip install 'ottla[zookeeper]'", hint
        ) from None
    hosts, root = split_connect(connect)
    if not any(map(answers, hosts.split(","))):
        raise Failure(f"--zookeeper: nothing answers at {hosts}", hint)
    client = KazooClient(hosts, timeout=TIMEOUT_S)
    try:
        client.start(TIMEOUT_S)
        ids = client.get_children(root + BROKER_IDS)
        values = [client.get(f"{root}{BROKER_IDS}/{each}")[0] for each in sorted(ids, key=int)]
    except NoNodeError:
        values = []
    except (KazooException, client.handler.timeout_exception) as error:
        raise Failure(f"--zookeeper: {hosts} does not answer: {error!r}", hint) from None
    finally:
        client.stop()
        client.close()
    servers = [address for value in values if (address := address_of(value))]
    if not servers:
        raise Failure(f"--zookeeper: no broker is registered at {connect}", hint)
    return ",".join(servers)


def answers(host: str) -> bool:
    """Whether somebody listens there: quicker to know than a session."""
    name, _, port = host.rpartition(":") if ":" in host else (host, "", str(PORT))
    try:
        with socket.create_connection((name.strip("[]"), int(port)), timeout=TIMEOUT_S):
            return True
    except (OSError, ValueError):
        return False


def address_of(value: bytes) -> str:
    """Where clients reach a broker, from its node: the first listener that is not encrypted."""
    node = json.loads(value)
    protocols = node.get("listener_security_protocol_map", {})
    for endpoint in node.get("endpoints", ()):
        name, _, address = endpoint.partition("://")
        if protocols.get(name, name) == "PLAINTEXT":
            return str(address)
    return ""
