"""The console's own file, in TOML: what the command line has, and clusters, rules and receivers.

port = 8084
[clusters.main]
bootstrap_servers = "host1:9092,host2:9092"
metrics = ["http://host1:9100/metrics"]
properties_file = "client.properties"
properties = { "security.protocol" = "SSL" }
[[alerts.rules]]
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from .client_options import client_options, properties_of, text_of
from .oidc import oidc_of
from .options import ClusterOptions, ConfigError, ConsoleOptions, check_metrics
from .tables import checked, known, strings

TOP: dict[str, tuple[str, type]] = {
    "host": ("host", str),
    "port": ("port", int),
    "data_dir": ("data_directory", str),
    "names": ("names", list),
    "read_only": ("read_only", bool),
    "login": ("login", bool),
    "certificate": ("certificate", str),
    "insecure": ("insecure", bool),
    "interval_s": ("interval_s", int),
}
TABLES = ("clusters", "alerts", "schemas", "oidc")
CLUSTER = ("bootstrap_servers", "metrics", "properties", "properties_file")


def options_of_toml(path: str) -> ConsoleOptions:
    """Raises ConfigError with the name of what is wrong. Paths in it begin where it lies."""
    try:
        given = tomllib.loads(text_of(path))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f'{path} is not TOML: {error}\nTry: [clusters.main] and bootstrap_servers = "…"'
        ) from None
    known(given, (*TOP, *TABLES), path)
    values: dict[str, Any] = {}
    for name, (option, kind) in TOP.items():
        if name in given:
            values[option] = checked(given[name], kind, f"{path}: {name}")
    values["names"] = tuple(strings(values.get("names", []), f"{path}: names"))
    folder = Path(path).parent
    for name in ("data_directory", "certificate"):
        if values.get(name):
            values[name] = str(folder / values[name])
    tables = checked(given.get("clusters", {}), dict, f"{path}: clusters")
    clusters, warnings = [], []
    for name, table in tables.items():
        where = f"{path}: clusters.{name}"
        cluster, unknown = cluster_of(name, checked(table, dict, where), where, folder)
        clusters.append(cluster)
        warnings += [f"{where}: {each} is no option of the clients here" for each in unknown]
    oidc = None
    if "oidc" in given:
        where = f"{path}: oidc"
        oidc = oidc_of(checked(given["oidc"], dict, where), where, folder)
        # Browsers ask for the console under the name that the issuer sends them back to.
        values["names"] = (*values["names"], urlsplit(oidc.url).hostname or "")
    alerts = checked(given.get("alerts", {}), dict, f"{path}: alerts")
    schemas = checked(given.get("schemas", []), list, f"{path}: schemas")
    return ConsoleOptions(
        tuple(clusters),
        alerts=alerts,
        oidc=oidc,
        schemas=tuple(checked(each, dict, f"{path}: schemas") for each in schemas),
        directory=str(folder),
        warnings=tuple(warnings),
        **values,
    )


def cluster_of(
    name: str, table: Mapping[str, Any], where: str, folder: Path
) -> tuple[ClusterOptions, list[str]]:
    known(table, CLUSTER, where)
    properties: dict[str, Any] = {}
    if "properties_file" in table:
        file = checked(table["properties_file"], str, f"{where}.properties_file")
        properties |= properties_of(folder / file)
    properties |= checked(table.get("properties", {}), dict, f"{where}.properties")
    options, unknown = client_options(properties, where)
    if "bootstrap_servers" in table:
        servers = table["bootstrap_servers"]
        options["bootstrap_servers"] = (
            ",".join(strings(servers, f"{where}.bootstrap_servers"))
            if isinstance(servers, list)
            else checked(servers, str, f"{where}.bootstrap_servers")
        )
    if not options.get("bootstrap_servers"):
        raise ConfigError(
            f'{where}: bootstrap_servers is missing\nTry: bootstrap_servers = "localhost:9092"'
        )
    given = table.get("metrics", [])
    metrics = strings([given] if isinstance(given, str) else given, f"{where}.metrics")
    for each in metrics:
        check_metrics(each, f"{where}.metrics")
    return ClusterOptions(name, options, tuple(metrics)), unknown
