"""The table `oidc` of the console's file: which issuer's users may log in, and with which roles."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ..access.names import Refused, check_grants
from ..access.permissions import Grant, Role
from .client_options import text_of
from .options import ConfigError, OidcOptions, RoleOfClaim, is_loopback
from .tables import checked, known, strings

NEEDED = ("issuer", "url", "client_id", "roles")
TEXTS = ("issuer", "url", "client_id", "label", "name_claim", "roles_claim")
OPTIONS = (*TEXTS, "client_secret_file", "scopes", "roles")
OF_ROLE = ("value", "role", "clusters", "topics")
EXAMPLES = {
    "issuer": '"https://id.example.com"',
    "url": '"https://console.example.com"',
    "client_id": '"ottla-console"',
    "roles": '[{ value = "kafka-admins", role = "admin" }]',
}


def oidc_of(table: Mapping[str, Any], where: str, folder: Path) -> OidcOptions:
    """Raises ConfigError with the name of what is wrong; never with a secret."""
    known(table, OPTIONS, where)
    for name in NEEDED:
        if name not in table:
            raise ConfigError(f"{where}: {name} is missing\nTry: {name} = {EXAMPLES[name]}")
    texts = {each: text_in(table, each, where) for each in TEXTS if each in table}
    for name in ("issuer", "url"):
        check_address(texts[name], f"{where}.{name}", EXAMPLES[name])
    texts["url"] = texts["url"].rstrip("/")
    if urlsplit(texts["url"]).path:
        raise ConfigError(
            f"{where}.url must have no path (got {texts['url']!r})\nTry: {EXAMPLES['url']}"
        )
    scopes = tuple(strings(table.get("scopes", ["openid", "profile"]), f"{where}.scopes"))
    if "openid" not in scopes:
        raise ConfigError(
            f"{where}.scopes must have openid (got {', '.join(scopes)!r})\n"
            'Try: ["openid", "profile"]'
        )
    listed = checked(table["roles"], list, f"{where}.roles")
    if not listed:
        raise ConfigError(f"{where}.roles must not be empty\nTry: {EXAMPLES['roles']}")
    return OidcOptions(
        **texts,
        client_secret=secret_of(table, where, folder),
        scopes=scopes,
        roles=tuple(role_of(each, f"{where}.roles") for each in listed),
    )


def text_in(table: Mapping[str, Any], name: str, where: str) -> str:
    text: str = checked(table[name], str, f"{where}.{name}")
    if not text or not text.isprintable():
        raise ConfigError(
            f"{where}.{name} must be printable and not empty (got {text!r:.80})\n"
            "Try: the example in docs/console.md"
        )
    return text


def check_address(given: str, where: str, example: str) -> None:
    """Codes and tokens go there: encrypted, unless they do not leave this machine."""
    try:
        url = urlsplit(given)
        host, _ = url.hostname, url.port
    except ValueError:
        host = None
    encrypted = host and (url.scheme == "https" or (url.scheme == "http" and is_loopback(host)))
    if not encrypted or url.query or url.fragment or url.username is not None:
        raise ConfigError(
            f"{where} must be a URL of https without user, query and fragment (got {given!r:.200})"
            f"\nTry: {example}"
        )


def secret_of(table: Mapping[str, Any], where: str, folder: Path) -> str:
    if "client_secret_file" not in table:
        return ""
    path = folder / text_in(table, "client_secret_file", where)
    secret = text_of(path).strip()
    if not secret:
        raise ConfigError(
            f"{where}.client_secret_file: {path} is empty\n"
            "Try: the secret that the issuer shows for the client, or without this option where "
            "it has none"
        )
    return secret


def role_of(given: Any, where: str) -> RoleOfClaim:
    table = checked(given, dict, where)
    known(table, OF_ROLE, where)
    for name in ("value", "role"):
        if name not in table:
            raise ConfigError(f"{where}: {name} is missing\nTry: {EXAMPLES['roles']}")
    found = RoleOfClaim(**{each: text_in(table, each, where) for each in table})
    try:
        check_grants([Grant(Role(found.role), found.clusters, found.topics)])
    except ValueError:
        raise ConfigError(
            f"{where}: role must be one of {', '.join(Role)} (got {found.role!r:.80})\n"
            f"Try: {EXAMPLES['roles']}"
        ) from None
    except Refused as refused:
        raise ConfigError(f"{where}: {refused}\nTry: {EXAMPLES['roles']}") from None
    return found
