"""What a test needs beyond Python: skip with a reason when it is missing.

Under `OTTLA_REQUIRE_ALL=1` (set by the CI) a missing part fails the test instead, so that nothing
is left out unnoticed.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from typing import NoReturn

import pytest

from tests.apache import flume as flume_jars
from tests.apache import jars, zookeeper

REQUIRE_ALL = "OTTLA_REQUIRE_ALL"
SYSTEM_PROGRAMS = "/usr/sbin:/sbin"  # not in everybody's PATH
LONG_REASON = "a long run: make test-long, or OTTLA_LONG=1"
LONG = os.environ.get("OTTLA_LONG") == "1"  # set by `make test-long`


def java() -> str:
    """The path of `java`."""
    return _program("java", "Java 17 or later")


def kcat() -> str:
    """The path of `kcat` (Debian's package of that name)."""
    return _program("kcat", "kcat, from the package of that name")


def chromium() -> str:
    """The path of a Chromium that Playwright can drive (Debian's package of that name)."""
    if importlib.util.find_spec("playwright") is None:
        missing("playwright is not installed (the extra `unit`)")
    return _program("chromium", "Chromium, from the package of that name")


def logrotate() -> str:
    """The path of `logrotate` (Debian's package of that name)."""
    return _program("logrotate", "logrotate, from the package of that name")


def apache() -> None:
    """Apache Kafka's jars and a JDK to use them; the jars are fetched when Maven can."""
    java()
    _program("javac", "from a JDK, 17 or later")
    if not jars.present():
        try:
            jars.fetch()
        except jars.JarsMissing as absent:
            missing(str(absent))


def flume() -> None:
    """Flume's jars and Java to run them; the jars are fetched when Maven can."""
    java()
    try:
        flume_jars.fetch()
    except jars.JarsMissing as absent:
        missing(str(absent))


def zookeeper_server() -> None:
    """ZooKeeper's jars, Java to run them, and kazoo; the jars are fetched when Maven can."""
    java()
    if importlib.util.find_spec("kazoo") is None:
        missing("kazoo is not installed (the extra `zookeeper`)")
    try:
        zookeeper.fetch()
    except jars.JarsMissing as absent:
        missing(str(absent))


def long() -> None:
    """A soak, or a run over many seeds: for one case of a test; whole tests get the mark `long`."""
    if not LONG:
        pytest.skip(LONG_REASON)


def rounds(usual: int, long: int) -> int:
    """How often a test repeats what chance decides."""
    return long if LONG else usual


def _program(name: str, what: str) -> str:
    path = shutil.which(name) or shutil.which(name, path=SYSTEM_PROGRAMS)
    return path if path is not None else missing(f"{name} is not installed ({what})")


def missing(reason: str) -> NoReturn:
    """Skip the test for this reason, or fail it where everything is asked for."""
    if os.environ.get(REQUIRE_ALL) == "1":
        pytest.fail(f"{reason}; {REQUIRE_ALL}=1 asks for everything", pytrace=False)
    pytest.skip(reason)
