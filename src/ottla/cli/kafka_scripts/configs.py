"""kafka-configs.sh: configs of topics, brokers and others; quotas; credentials of users."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ottla.cli.connecting import text_of

from . import quota_configs
from .options import COMMAND_CONFIG, Given, Option, Parser
from .running import admin_of, entry
from .user_configs import without_secrets

if TYPE_CHECKING:
    from ottla.client.admin import Admin

TYPES = {
    "topics": "topic",
    "clients": "client-id",
    "users": "user-principal",
    "brokers": "broker",
    "broker-loggers": "broker-logger",
    "ips": "ip",
    "client-metrics": "client-metric",
    "groups": "group",
}
RESOURCES = {
    "topics": "TOPIC",
    "brokers": "BROKER",
    "broker-loggers": "BROKER_LOGGER",
    "client-metrics": "CLIENT_METRICS",
    "groups": "GROUP",
}
# --topic NAME is short for --entity-type topics --entity-name NAME
SHORT = {
    "topic": "topics",
    "client": "clients",
    "user": "users",
    "broker": "brokers",
    "broker-logger": "broker-loggers",
    "ip": "ips",
    "client-metrics": "client-metrics",
    "group": "groups",
}
DEFAULTS = {
    "client-defaults": "clients",
    "user-defaults": "users",
    "broker-defaults": "brokers",
    "ip-defaults": "ips",
}
TOGETHER = {"users", "clients"}

PARSER = Parser(
    "kafka-configs.sh",
    "show and change configs of topics, brokers and others, quotas and credentials",
    [
        Option("bootstrap-server", "HOST:PORT", "brokers to ask first"),
        Option(
            "bootstrap-controller",
            "HOST:PORT",
            skipped="brokers and controllers are one here; use --bootstrap-server",
        ),
        COMMAND_CONFIG,
        Option("describe", about="show configs"),
        Option("alter", about="change configs"),
        Option("all", about="with --describe: also those that nobody has set"),
        Option("add-config", "K=V,K=[V1,V2]", "with --alter: configs to set"),
        Option("add-config-file", "FILE", "with --alter: configs to set, in a properties file"),
        Option("delete-config", "K1,K2", "with --alter: configs to forget"),
        Option("entity-type", "TYPE", f"one of {', '.join(TYPES)}"),
        Option("entity-name", "NAME", "whose configs"),
        Option("entity-default", about="those that hold for all that have none of their own"),
        Option("topic", "NAME", "a topic"),
        Option("broker", "ID", "a broker"),
        Option("broker-defaults", about="all brokers"),
        Option("broker-logger", "ID", "the log levels of a broker"),
        Option("group", "ID", "a group"),
        Option("client-metrics", "NAME", "a subscription to metrics of clients"),
        Option("client", "ID", "a client id, also together with a user"),
        Option("client-defaults", about="all client ids that have no quota of their own"),
        Option("user", "NAME", "a user, with --add-config SCRAM-SHA-512=[password=…]"),
        Option("user-defaults", about="all users that have no quota of their own"),
        Option("ip", "ADDRESS", "an address that connects"),
        Option("ip-defaults", about="all addresses that have no quota of their own"),
    ],
)


def run(arguments: Sequence[str]) -> int:
    from ottla.client.errors import KafkaError

    given = PARSER.parse(arguments)
    action = given.one_of("describe", "alter")
    given.require("bootstrap-server")
    entities = entities_of(given)
    kind, name = entities[0]
    if action == "alter":
        for each in entities:
            check_alter(given, *each)
    with admin_of(given) as admin:
        try:
            if kind in quota_configs.TYPES:
                quotas(admin, given, action, entities)
            elif action == "describe":
                describe(admin, kind, name, everything=given.has("all"))
            else:
                alter(admin, given, kind, name or "")
        except (KafkaError, ValueError) as error:
            words = without_secrets(arguments)
            print(f"Error while executing config command with args '{words}'", file=sys.stderr)
            print(text_of(error), file=sys.stderr)
            return 1
    return 0


def entities_of(given: Given) -> list[tuple[str, str | None]]:
    """Kinds and names; no name means all of the kind, an empty one the default.

    More than one are a user and a client id.
    """
    kinds = list(given.values("entity-type"))
    for kind in kinds:
        if kind not in TYPES:
            PARSER.refuse(
                f"Invalid entity type {kind}, the entity type must be one of {', '.join(TYPES)}"
            )
    if any(given.has(each) for each in ("entity-type", "entity-name", "entity-default")):
        for each in (*SHORT, *DEFAULTS):
            if given.has(each):
                PARSER.refuse(
                    "--entity-{type,name,default} should not be used in conjunction with "
                    "specific entity flags"
                )
    names: list[str | None] = []
    for option in given.names:
        if option == "entity-name":
            names += given.values(option)
        elif option == "entity-default":
            names.append("")
    if len(names) > len(kinds) and kinds:
        PARSER.refuse("More entity names specified than entity types")
    names += [None] * (len(kinds) - len(names))
    found = list(zip(kinds, names[: len(kinds)], strict=True))
    found += [(kind, given.value(option)) for option, kind in SHORT.items() if given.has(option)]
    found += [(kind, "") for option, kind in DEFAULTS.items() if given.has(option)]
    if not found:
        PARSER.refuse("At least one entity type must be specified")
    if len(found) > 1 and ({kind for kind, _ in found} != TOGETHER or len(found) > len(TOGETHER)):
        PARSER.refuse("Only 'users' and 'clients' entity types may be specified together")
    return found


def check_alter(given: Given, kind: str, name: str | None) -> None:
    if name is None:
        PARSER.refuse(f"An entity name must be specified with --alter of {kind}")
    if not any(given.has(option) for option in ("add-config", "add-config-file", "delete-config")):
        PARSER.refuse(
            "At least one of --add-config, --add-config-file, or --delete-config must be "
            "specified with --alter"
        )
    given.exclude("add-config", ["add-config-file"])


# quotas, credentials


def quotas(
    admin: Admin, given: Given, action: str, entities: Sequence[tuple[str, str | None]]
) -> None:
    if action == "describe":
        quota_configs.describe(admin, entities)
        return
    quota_configs.alter(admin, entities, additions(given), deletions(given))
    kind, name = entities[0]
    if name:
        print(f"Completed updating config for {kind.removesuffix('s')} {name}.")
    else:
        print(f"Completed updating default config for {kind} in the cluster.")


# describe


def describe(admin: Admin, kind: str, name: str | None, *, everything: bool) -> None:
    existing = names_of(admin, kind)
    if name is not None and name != "" and name not in existing:
        print(f"The {TYPES[kind]} '{name}' doesn't exist and doesn't have dynamic config.")
        return
    names = [name] if name is not None else existing
    if kind == "brokers" and name is None:
        names = [*existing, ""]
    for each in names:
        if each == "":
            print(f"Default configs for {kind} in the cluster are:")
        else:
            which = "All" if everything else "Dynamic"
            print(f"{which} configs for {TYPES[kind]} {each} are:")
        for line in config_lines(admin, kind, each, everything):
            print(f"  {line}")


def names_of(admin: Admin, kind: str) -> list[str]:
    if kind == "topics":
        return sorted(admin.list_topics())
    if kind in ("brokers", "broker-loggers"):
        return [str(broker["broker_id"]) for broker in admin.describe_cluster()["brokers"]]
    configured = admin.list_config_resources([RESOURCES[kind]]).get(RESOURCES[kind].lower(), [])
    if kind == "groups":
        return sorted({*configured, *(group["group_id"] for group in admin.list_groups())})
    return sorted(configured)


def config_lines(admin: Admin, kind: str, name: str, everything: bool) -> list[str]:
    from ottla.client.admin import ConfigResource

    resource = RESOURCES[kind]
    found = admin.describe_configs(
        [ConfigResource(resource, name)], include_synonyms=True, config_filter="all"
    )[resource.lower()][name]
    own = {
        "topics": "DYNAMIC_TOPIC_CONFIG",
        "brokers": "DYNAMIC_BROKER_CONFIG" if name else "DYNAMIC_DEFAULT_BROKER_CONFIG",
        "client-metrics": "DYNAMIC_CLIENT_METRICS_CONFIG",
        "groups": "DYNAMIC_GROUP_CONFIG",
    }.get(kind)
    return [
        config_line(config, entry)
        for config, entry in sorted(found.items())
        if everything or own is None or entry["config_source"] == own
    ]


def config_line(name: str, entry: dict[str, Any]) -> str:
    synonyms = ", ".join(
        f"{each['source']}:{each['name']}={shown(each['value'])}" for each in entry["synonyms"]
    )
    sensitive = str(entry["is_sensitive"]).lower()
    return f"{name}={shown(entry['value'])} sensitive={sensitive} synonyms={{{synonyms}}}"


def shown(value: str | None) -> str:
    return "null" if value is None else value


# alter


def alter(admin: Admin, given: Given, kind: str, name: str) -> None:
    from ottla.client.admin import AlterConfigOp, ConfigResource
    from ottla.client.errors import KafkaError

    changes: dict[str, Any] = {}
    for config in deletions(given):
        changes[config] = (AlterConfigOp.DELETE, None)
    for config, value in additions(given).items():
        changes[config] = (AlterConfigOp.SET, value)
    resource = ConfigResource(RESOURCES[kind], name, changes)
    outcome = admin.alter_configs([resource], raise_on_unknown=False)
    for result in outcome[RESOURCES[kind].lower()].values():
        if result != "OK":
            raise KafkaError(result.partition("] ")[2] or result)
    if name:
        print(f"Completed updating config for {TYPES[kind]} {name}.")
    else:
        print(f"Completed updating default config for {kind} in the cluster.")


def deletions(given: Given) -> list[str]:
    return [each.strip() for text in given.values("delete-config") for each in text.split(",")]


def additions(given: Given) -> dict[str, str]:
    """`a=1,b=[2,3]`: commas part configs, except in brackets."""
    found = given.file_properties("add-config-file") if given.has("add-config-file") else {}
    for text in given.values("add-config"):
        for part in re.split(r",(?![^\[\]]*\])", text):
            name, equals, value = part.partition("=")
            if not equals or not name.strip():
                PARSER.refuse(
                    "Invalid entity config: all configs to be added must be in the format "
                    '"key=val" or  "key=[val1,val2]" to group values which contain commas.'
                )
            found[name.strip()] = re.sub(r"[\[\]]", "", value.strip())
    return found


main = entry(run)
