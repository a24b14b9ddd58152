"""`system-config.properties` of Kafka-Eagle, later EFAK: which clusters, how they are reached, the
port. What a console of ours does otherwise (a database above all) is answered with a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from .client_options import client_options, properties_of
from .options import ClusterOptions, ConfigError, ConsoleOptions, check_metrics

NAMES = ("efak.", "kafka.eagle.")  # of its own options, the later name first
ALIASES = ("efak.zk.cluster.alias", "kafka.eagle.zk.cluster.alias", "kafka.zk.cluster.alias")
ZOOKEEPER = re.compile(r"(?P<alias>[^.]+)\.zk\.list")
DATABASE = ("driver", "url", "username", "password")
SENTENCE = (
    "{name}: no database is needed, SQLite is built in; its user and password are the database's "
    "and let nobody in here"
)
CLIENT_NAMES = {"sasl.protocol": "security.protocol", "ssl.protocol": "security.protocol"}
DEFAULT_PORT = 9092  # of brokers, where ZooKeeper does not tell


def options_of_eagle(path: str) -> ConsoleOptions:
    """Raises ConfigError."""
    given = properties_of(path)
    warnings = database_sentence(given)
    charts = own(given, "metrics.charts")
    if charts is not None and charts.strip().lower() == "false":
        warnings.append("kafka.eagle.metrics.charts=false: charts cost nothing here and stay")
    aliases = aliases_of(given)
    if not aliases:
        raise ConfigError(
            f"{path} names no cluster\n"
            "Try: cluster1.zk.list=HOST:2181, or cluster1.bootstrap.servers=HOST:9092"
        )
    clusters = [cluster_of(alias, given, path, warnings) for alias in aliases]
    values: dict[str, object] = {}
    port = own(given, "webui.port")
    if port is not None:
        if not port.strip().isdecimal():
            raise ConfigError(f"{path}: webui.port must be a number (got {port!r})\nTry: 8084")
        values["port"] = int(port)
    return ConsoleOptions(tuple(clusters), warnings=tuple(warnings), **values)  # type: ignore[arg-type]


def own(given: Mapping[str, str], name: str, prefix: str = "") -> str | None:
    """An option under its later or its earlier name."""
    return next(
        (given[prefix + each + name] for each in NAMES if prefix + each + name in given), None
    )


def database_sentence(given: Mapping[str, str]) -> list[str]:
    """One, however many of the database's options there are."""
    found = [each + name for each in NAMES for name in DATABASE if each + name in given]
    return (
        [SENTENCE.format(name=found[0] if len(found) == 1 else ", ".join(found))] if found else []
    )


def aliases_of(given: Mapping[str, str]) -> list[str]:
    """Those that are listed; without a list, those that have an address."""
    listed = next((given[each] for each in ALIASES if each in given), "")
    aliases = [each.strip() for each in listed.split(",") if each.strip()]
    if aliases:
        return list(dict.fromkeys(aliases))
    found = [match["alias"] for each in given if (match := ZOOKEEPER.fullmatch(each))]
    found += [each.removesuffix(".bootstrap.servers") for each in given
              if each.endswith(".bootstrap.servers") and each.count(".") == 2]  # fmt: skip
    return list(dict.fromkeys(found))


def cluster_of(
    alias: str, given: Mapping[str, str], path: str, warnings: list[str]
) -> ClusterOptions:
    zookeeper = given.get(f"{alias}.zk.list", "").strip()
    servers = given.get(f"{alias}.bootstrap.servers", "").strip()
    if not zookeeper and not servers:
        raise ConfigError(
            f"{path}: nothing says where {alias} is\nTry: {alias}.bootstrap.servers=HOST:9092"
        )
    properties, unknown = client_options(security_of(alias, given), path)
    warnings += [f"{path}: {alias}: {each} is no option of the clients here" for each in unknown]
    if servers:
        properties["bootstrap_servers"] = servers
    metrics = tuple(
        each.strip() for each in given.get(f"{alias}.metrics", "").split(",") if each.strip()
    )
    for each in metrics:
        check_metrics(each, f"{path}: {alias}.metrics")
    return ClusterOptions(alias, properties, metrics, "" if servers else zookeeper)


def security_of(alias: str, given: Mapping[str, str]) -> dict[str, str]:
    """The clients' options for SASL or TLS, of those that are switched on."""
    found: dict[str, str] = {}
    for kind in ("ssl", "sasl"):
        if (own(given, f"{kind}.enable", f"{alias}.") or "").strip().lower() != "true":
            continue
        for each in NAMES:
            prefix = f"{alias}.{each}"
            for name, value in given.items():
                option = name.removeprefix(prefix)
                if option == name or not option.startswith(f"{kind}.") or not value:
                    continue
                if option in (f"{kind}.enable", "sasl.client.id", "sasl.cgroup.enable"):
                    continue
                found[CLIENT_NAMES.get(option, option)] = value
    return found


def servers_beside(zookeeper: str) -> str:
    """Where brokers are usually: on the hosts of ZooKeeper, at Kafka's own port."""
    hosts = zookeeper.partition("/")[0].split(",")
    return ",".join(
        f"{each.strip().rpartition(':')[0] or each.strip()}:{DEFAULT_PORT}" for each in hosts
    )
