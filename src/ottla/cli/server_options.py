"""The options of `ottla server`: defaults, a file, the environment, the command line."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from ottla.cli.failure import Failure

if TYPE_CHECKING:
    from ottla.settings import Entry, Settings

DATA_DIRECTORY = "ottla-data"  # in the directory where the server was started


class MetricsAddress(NamedTuple):
    host: str
    port: int
    secured: bool = False  # by TLS, and asks for a certificate

    def __str__(self) -> str:
        from ottla.server.listener import address_text

        return ("https://" if self.secured else "") + address_text(self.host, self.port)


def read_settings(
    config: str | None, assignments: tuple[str, ...], data_dir: str | None, listen: str | None
) -> Settings:
    """Default, file, environment, --set, flag: the later wins."""
    from ottla.settings import (
        Entry,
        MalformedProperties,
        Settings,
        SettingsError,
        entries_of_environment,
        entry_of_assignment,
        parse_properties,
    )

    try:
        entries = [
            *(parse_properties(read_text(config), config) if config is not None else []),
            *entries_of_environment(os.environ),
            *(entry_of_assignment(text) for text in assignments),
        ]
        if data_dir is not None:
            entries.append(Entry("log.dirs", data_dir, "--data-dir"))
        if listen is not None:
            split_option("--listen", listen, "ottla server --listen 127.0.0.1:9092")
            name = protocol_between_brokers(entries)
            entries.append(Entry("listeners", f"{name}://{listen}", "--listen"))
        if not any(entry.name in ("log.dir", "log.dirs") for entry in entries):
            entries.append(Entry("log.dirs", DATA_DIRECTORY, "the default"))
        return Settings.load([entry._replace(value=absolute(entry)) for entry in entries])
    except MalformedProperties as error:
        raise Failure(str(error), "mend that line") from None
    except SettingsError as error:
        problems = str(error).replace("\nTry: ", "\0").replace("\n", "\nottla: ")
        raise Failure(problems.replace("\0", "\nTry: ")) from None


def protocol_between_brokers(entries: list[Entry]) -> str:
    """What the listener of --listen speaks: as the brokers among themselves."""
    given = [each.value for each in entries if each.name == "security.inter.broker.protocol"]
    return given[-1].strip().upper() if given else "PLAINTEXT"


def absolute(entry: Entry) -> str:
    """Directories are reported to clients, which compare them: absolute, as in Kafka."""
    if entry.name == "ottla.cluster.directory" and entry.value:
        return os.path.abspath(entry.value)
    if entry.name not in ("log.dir", "log.dirs"):
        return entry.value
    parts = (part.strip() for part in entry.value.split(","))
    return ",".join(os.path.abspath(part) if part else part for part in parts)


def read_text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise Failure(
            f"cannot read {path}: {(reason or str(error)).lower()}",
            "ottla server --config server.properties, with a file that is there",
        ) from None


def split_option(option: str, text: str, hint: str) -> tuple[str, int]:
    from ottla.server.listener import split_address

    try:
        return split_address(text)
    except ValueError as error:
        raise Failure(f"{option}: {error} (got {text!r})", hint, exit_code=2) from None


def metrics_address(option: str | None) -> MetricsAddress | None:
    if option is not None:
        secured = option.startswith("https://")
        where = option.removeprefix("https://").removeprefix("http://").rstrip("/")
        hint = "ottla server --metrics 127.0.0.1:9404"
        return MetricsAddress(*split_option("--metrics", where, hint), secured)
    port = os.environ.get("JMX_PORT", "")  # as operators of Kafka know it
    if port and not port.isdecimal():
        raise Failure(f"JMX_PORT: must be a port (got {port!r})", "JMX_PORT=9404", exit_code=2)
    if not port:
        return None
    return MetricsAddress(*split_option("JMX_PORT", f"127.0.0.1:{port}", "JMX_PORT=9404"))
