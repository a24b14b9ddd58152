"""kafka-storage.sh: format data directories, show whose they are, draw an id."""

from __future__ import annotations

import sys

from ottla.cli.failure import Failure
from ottla.cli.storage import (
    directories,
    format_directory,
    random_id,
    settings_of,
)
from ottla.cli.storage_scram import add_credentials, named
from ottla.client.kafka_releases import LATEST_STABLE, release_name

from . import features
from .commands import Command, Commands
from .options import Given, Option
from .running import entry

CONFIG = Option("config", "FILE", "server.properties", short="c", required=True)
ONE_NODE = "there is no quorum of controllers here to begin with"
FORMAT = (
    CONFIG,
    Option("cluster-id", "ID", "the cluster's id", short="t", required=True),
    Option("ignore-formatted", about="leave alone what is formatted", short="g"),
    Option("release-version", "RELEASE", "features begin as in this release", short="r"),
    Option("feature", "NAME=LEVEL", short="f", skipped="features are set on the running cluster"),
    Option(
        "add-scram",
        "CREDENTIAL",
        "a user to begin with, as 'SCRAM-SHA-512=[name=…,password=…]'",
        short="S",
    ),
    Option("standalone", about="taken: a node alone is what it is", short="s"),
    Option("no-initial-controllers", short="N", skipped=ONE_NODE),
    Option("initial-controllers", "LIST", short="I", skipped=ONE_NODE),
)


def info(given: Given) -> int:
    found = directories(settings_of(given.value("config")))
    there = [each for each in found if each.exists]
    if there:
        print("Found log directory:" if len(there) == 1 else "Found log directories:")
        for each in there:
            print(f"  {each.path}")
        print()
    meta = next((each.meta for each in found if each.meta is not None), None)
    if meta is not None:
        shown = ", ".join(f"{name}={value}" for name, value in meta.items())
        print(f"Found metadata: {{{shown}}}\n")
    problems = [
        f"{each.path} does not exist" if not each.exists else f"{each.path} is not formatted."
        for each in found
        if each.meta is None
    ]
    if problems:
        print("Found problem:" if len(problems) == 1 else "Found problems:")
        for problem in problems:
            print(f"  {problem}")
        print()
    return 1 if problems else 0


def format_storage(given: Given) -> int:
    settings = settings_of(given.value("config"))
    cluster_id = given.value("cluster-id")
    level = LATEST_STABLE
    if given.has("release-version"):
        level = release_name(features.level_of(given.value("release-version")))
        if level != LATEST_STABLE:
            raise Failure(
                f"--release-version: a new cluster begins with the features of {LATEST_STABLE}",
                "kafka-features.sh downgrade, when the server runs",
            )
    credentials = [named(each) for each in given.values("add-scram")]
    found = directories(settings)
    for each in found:
        if each.meta is not None and each.meta["cluster.id"] != cluster_id:
            raise Failure(
                f"Invalid cluster.id in: {each.path}/meta.properties. Expected {cluster_id}, "
                f"but read {each.meta['cluster.id']}",
                f"--cluster-id {each.meta['cluster.id']}, or another directory",
            )
    fresh = [each for each in found if each.meta is None]
    if len(fresh) < len(found) and not given.has("ignore-formatted"):
        done = next(each for each in found if each.meta is not None)
        print(
            f"Log directory {done.path} is already formatted. Use --ignore-formatted to ignore "
            "this directory and format the others.",
            file=sys.stderr,
        )
        return 1
    if not fresh:
        print("All of the log directories are already formatted.")
    in_zookeeper = settings.zookeeper_connect is not None
    if fresh and in_zookeeper:
        # First: what cannot be reached can be tried again. A broker takes no directory of a cluster
        # that is not ZooKeeper's.
        add_credentials(settings, cluster_id, credentials)
    for each in fresh:
        kind = "metadata" if each is found[0] else "data"
        print(f"Formatting {kind} directory {each.path} with metadata.version {level}.")
        format_directory(each.path, cluster_id, settings.node_id)
    if fresh and credentials and not in_zookeeper:
        add_credentials(settings, cluster_id, credentials)
    return 0


def random_uuid(given: Given) -> None:
    print(random_id())


TOOL = Commands(
    "kafka-storage.sh",
    "format data directories, and look at them",
    (),
    {
        "info": Command("show the data directories", (CONFIG,), info),
        "format": Command("make data directories a node's own", FORMAT, format_storage),
        "version-mapping": Command(
            "show the features of a release",
            (Option("release-version", "RELEASE", "such as 4.2", short="r"),),
            features.version_mapping,
        ),
        "feature-dependencies": Command(
            "show what a feature needs",
            (Option("feature", "NAME=LEVEL", "may be repeated", short="f", required=True),),
            features.feature_dependencies,
        ),
        "random-uuid": Command("print a random id", (), random_uuid),
    },
)
run = TOOL.run
main = entry(run)
