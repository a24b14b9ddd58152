"""`ottla secure`: certificates, a first user, and the files of options that go with them."""

from __future__ import annotations

import datetime
import os
import re
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.cli.failure import Failure, cannot_use_directory

if TYPE_CHECKING:
    from ottla.tls.authority import Authority

ADMIN, BROKER = "admin", "broker"  # the first users
DAYS = 397  # as long as browsers allow a certificate to be
PASSWORD_BYTES = 24
LOCAL = ("localhost", "127.0.0.1", "::1")  # in every certificate, for who works on the host itself
CA, CA_KEY = "ca.pem", "ca-key.pem"
BROKER_STORE, CLIENT_STORE = "broker.pem", "client.pem"
SERVER, CLIENT, CLIENT_CERTIFICATE = (
    "server.properties", "client.properties", "client-certificate.properties",
)  # fmt: skip
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*")


@click.command(context_settings={"max_content_width": 100})
@click.option("--dir", "directory", required=True, metavar="DIR", help="Where the files go.")
@click.option(
    "--hosts",
    required=True,
    metavar="NAME,…",
    help="Names and addresses under which clients know the broker; the first is advertised.",
)
@click.option(
    "--port",
    type=click.IntRange(1, 65_535),
    default=9092,
    show_default=True,
    metavar="PORT",
    help="Where the broker listens.",
)
@click.option(
    "--days",
    type=click.IntRange(1, 3650),
    default=DAYS,
    show_default=True,
    metavar="N",
    help="How long the certificates hold.",
)
@click.option(
    "--certificates",
    is_flag=True,
    help="A second listener, PORT + 1, where a client's certificate is its login.",
)
@click.option(
    "--renew", is_flag=True, help="New certificates by the authority in DIR; all else stays."
)
def secure(
    directory: str, hosts: str, port: int, days: int, certificates: bool, renew: bool
) -> None:
    """Make what a broker needs to be open to other machines: in one go, and it works together.

    An authority of one's own, certificates of the broker and of a client, the user admin with a
    password, a server.properties, and a client.properties for every client and tool:

    \b
    ottla secure --dir secured --hosts kafka.example.com
    ottla server --config secured/server.properties
    ottla topics --list -b kafka.example.com:9092 --command-config secured/client.properties

    All files are for this user alone (0600). ca-key.pem signs new certificates: keep it elsewhere.
    A broker that runs takes renewed certificates by itself.
    """
    names = hosts_of(hosts)
    folder = Path(directory).absolute()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if renew:
            authority = authority_in(folder)
        else:
            check_new(folder)
            authority = new_authority(folder)
        issue(folder, authority, names, days, replace=renew)
        if not renew:
            write_options(folder, names, port, certificates)
    except OSError as error:
        raise cannot_use_directory(error, str(folder)) from None
    told(folder, names[0], port, renew)


def hosts_of(text: str) -> list[str]:
    names = [each.strip().strip("[]") for each in text.split(",") if each.strip()]
    wrong = [each for each in names if not HOST.fullmatch(each)]
    if wrong or not names:
        raise Failure(
            f"--hosts: must be names or addresses, with commas between them (got {text!r})",
            "--hosts kafka.example.com,10.0.0.5",
            exit_code=2,
        )
    return names


def check_new(folder: Path) -> None:
    """What is there may be in use: nothing of it is written over."""
    there = [
        name
        for name in (CA, CA_KEY, BROKER_STORE, CLIENT_STORE, SERVER, CLIENT, CLIENT_CERTIFICATE)
        if (folder / name).exists()
    ]
    if there:
        raise Failure(
            f"{folder} holds {', '.join(there)} already",
            "another --dir, or --renew for new certificates of the same authority",
        )


def new_authority(folder: Path) -> Authority:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise Failure(
            "ottla secure needs the package cryptography", "pip install 'ottla[security]'"
        ) from None
    from ottla.tls.authority import Authority

    now = datetime.datetime.now(datetime.UTC)
    made = Authority.create(f"Ottla authority {now:%Y-%m-%d} {secrets.token_hex(4)}", now)
    write(folder / CA, made.pem.certificate)
    write(folder / CA_KEY, made.pem.key)
    return made


def authority_in(folder: Path) -> Authority:
    from ottla.tls.authority import Authority, Pem

    try:
        return Authority.of(Pem((folder / CA).read_text(), (folder / CA_KEY).read_text()))
    except FileNotFoundError as error:
        raise Failure(
            f"--renew: {error.filename} is not there", "put both parts of the authority there"
        ) from None
    except ImportError:
        raise Failure(
            "ottla secure needs the package cryptography", "pip install 'ottla[security]'"
        ) from None
    except ValueError as error:
        raise Failure(f"--renew: {folder} holds no authority: {error}", "without --renew") from None


def issue(
    folder: Path, authority: Authority, names: list[str], days: int, *, replace: bool
) -> None:
    now = datetime.datetime.now(datetime.UTC)
    broker = authority.issue(BROKER, [*names, *LOCAL], now, days)
    client = authority.issue(ADMIN, [], now, days)
    write(folder / BROKER_STORE, broker.store, replace=replace)
    write(folder / CLIENT_STORE, client.store, replace=replace)


def write(path: Path, text: str, *, replace: bool = False) -> None:
    """For this user alone; what is replaced is whole at every moment."""
    target = path.with_name(f"{path.name}.new") if replace else path
    if replace:
        target.unlink(missing_ok=True)
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    if replace:
        target.replace(path)


def write_options(folder: Path, names: list[str], port: int, certificates: bool) -> None:
    passwords = {name: secrets.token_urlsafe(PASSWORD_BYTES) for name in (ADMIN, BROKER)}
    write(folder / SERVER, server_properties(folder, names, port, passwords, certificates))
    write(folder / CLIENT, client_properties(folder, names[0], port, passwords[ADMIN]))
    if certificates:
        write(folder / CLIENT_CERTIFICATE, certificate_properties(folder, names[0], port + 1))


def server_properties(
    folder: Path, names: list[str], port: int, passwords: dict[str, str], certificates: bool
) -> str:
    bound = "127.0.0.1" if all(each in LOCAL for each in names) else ""
    host = shown(names[0])
    users = " ".join(f'user_{name}="{password}"' for name, password in passwords.items())
    login = f'{PLAIN} required username="{BROKER}" password="{passwords[BROKER]}" {users};'
    listeners = {"SASL_SSL": port} | ({"SSL": port + 1} if certificates else {})
    lines = [
        "# Made by `ottla secure`. It holds passwords: for the broker's user alone.",
        "listeners=" + ",".join(f"{each}://{bound}:{at}" for each, at in listeners.items()),
        "advertised.listeners="
        + ",".join(f"{each}://{host}:{at}" for each, at in listeners.items()),
        "inter.broker.listener.name=SASL_SSL",
        "",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={folder / BROKER_STORE}",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={folder / CA}",
        "# The user of a certificate is its CN.",
        "ssl.principal.mapping.rules=RULE:^CN=([^,]+).*$/$1/,DEFAULT",
    ]
    if certificates:
        lines.append("listener.name.ssl.ssl.client.auth=required")
    return "\n".join(
        [
            *lines,
            "",
            "# Users are those of the next line, and those that kafka-configs.sh adds for SCRAM.",
            "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512",
            "sasl.mechanism.inter.broker.protocol=PLAIN",
            f"listener.name.sasl_ssl.plain.sasl.jaas.config={login}",
            "",
        ]
    )


def client_properties(folder: Path, host: str, port: int, password: str) -> str:
    return "\n".join(
        [
            "# Made by `ottla secure`, for Kafka's clients and tools. It holds a password.",
            f"bootstrap.servers={shown(host)}:{port}",
            "security.protocol=SASL_SSL",
            "ssl.truststore.type=PEM",
            f"ssl.truststore.location={folder / CA}",
            "sasl.mechanism=PLAIN",
            f'sasl.jaas.config={PLAIN} required username="{ADMIN}" password="{password}";',
            "",
        ]
    )


def certificate_properties(folder: Path, host: str, port: int) -> str:
    return "\n".join(
        [
            "# Made by `ottla secure`: the certificate of a client in place of a password.",
            f"bootstrap.servers={shown(host)}:{port}",
            "security.protocol=SSL",
            "ssl.truststore.type=PEM",
            f"ssl.truststore.location={folder / CA}",
            "ssl.keystore.type=PEM",
            f"ssl.keystore.location={folder / CLIENT_STORE}",
            "",
        ]
    )


def shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def told(folder: Path, host: str, port: int, renew: bool) -> None:
    if renew:
        click.echo(f"renewed {folder / BROKER_STORE} and {folder / CLIENT_STORE}")
        return
    where = f"-b {shown(host)}:{port} --command-config {folder / CLIENT}"
    click.echo(f"made an authority, certificates and the user {ADMIN} in {folder}")
    click.echo(f"ottla server --config {folder / SERVER}")
    click.echo(f"ottla topics --list {where}")
