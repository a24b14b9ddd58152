"""kafka-cluster.sh: the cluster's id and endpoints."""

from __future__ import annotations

from .commands import Command, Commands
from .group_tables import table
from .options import Given, Option
from .running import admin_of, entry

CONNECTION = (
    Option("bootstrap-server", "HOST:PORT", "brokers to ask first", short="b"),
    Option(
        "bootstrap-controller",
        "HOST:PORT",
        short="C",
        skipped="brokers and controllers are one here; use --bootstrap-server",
    ),
    Option("command-config", "FILE", "options of the client", short="c"),
    Option("config", "FILE", "the older name of --command-config"),
)


def cluster_id(given: Given) -> None:
    given.require("bootstrap-server")
    with admin_of(given, config_option(given)) as admin:
        print(f"Cluster ID: {admin.describe_cluster()['cluster_id']}")


def list_endpoints(given: Given) -> None:
    given.require("bootstrap-server")
    with admin_of(given, config_option(given)) as admin:
        brokers = admin.describe_cluster(given.has("include-fenced-brokers"))["brokers"]
    rows = [
        [
            str(broker["broker_id"]),
            broker["host"],
            str(broker["port"]),
            "null" if broker["rack"] is None else broker["rack"],
            "fenced" if broker["is_fenced"] else "unfenced",
            "broker",
        ]
        for broker in brokers
    ]
    host = max([0, *(len(row[1]) for row in rows)])
    rack = max([10, *(len(row[3]) for row in rows)])
    columns = [("ID", 10), ("HOST", host), ("PORT", 10), ("RACK", rack), ("STATE", 10)]
    for line in table([*columns, ("ENDPOINT_TYPE", 15)], rows):
        print(line)


def unregister(given: Given) -> None:
    given.require("bootstrap-server", "id")
    with admin_of(given, config_option(given)) as admin:
        admin.unregister_broker(given.value("id"))
    print(f"Broker {given.value('id')} is no longer registered.")


def config_option(given: Given) -> str:
    return "command-config" if given.has("command-config") else "config"


TOOL = Commands(
    "kafka-cluster.sh",
    "the cluster's id and endpoints",
    (),
    {
        "cluster-id": Command("print the cluster's id", CONNECTION, cluster_id),
        "list-endpoints": Command(
            "list where brokers listen",
            (*CONNECTION, Option("include-fenced-brokers", about="fenced ones too")),
            list_endpoints,
        ),
        "unregister": Command(
            "forget a broker",
            (*CONNECTION, Option("id", "ID", "the broker", kind=int, short="i")),
            unregister,
        ),
    },
)
run = TOOL.run
main = entry(run)
