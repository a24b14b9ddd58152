"""The options of the clients, declared once: name, kind, default, what it is for.

Names are kafka-python's (Kafka's own with underscores). Options come as keyword arguments or as
Kafka's properties (`{"bootstrap.servers": …}`, where every value may be a string). `parse` gives a
complete dictionary or raises `KafkaConfigurationError`, which names option, value, rule and what to
try. The options of each client are the tables `COMMON`, and in options.py `PRODUCER`, `CONSUMER`
and `ADMIN`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from .argument_checks import check_properties
from .errors import KafkaConfigurationError

Convert = Callable[[object], object]

SASL_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
OAUTH_HANDLERS = "org.apache.kafka.common.security.oauthbearer."
LOGIN_HANDLERS = (
    OAUTH_HANDLERS + "OAuthBearerLoginCallbackHandler",
    OAUTH_HANDLERS + "internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler",
)
# Options whose values are shown to nobody, not even where they are refused.
SECRETS = frozenset(("sasl_jaas_config", "ssl_keystore_key"))
HIDDEN = "[hidden]"


class Option(NamedTuple):
    """One option. `convert` gives the value or raises ValueError with the rule it breaks."""

    name: str
    convert: Convert
    default: object
    doc: str
    properties: tuple[str, ...] = ()  # names in the properties form that are not the plain ones


def integer(low: int | None = None, high: int | None = None) -> Callable[[object], int]:
    """A whole number in a range."""
    rule = (
        "a whole number"
        + (f" of {low} or more" if low is not None and high is None else "")
        + (f" from {low} to {high}" if low is not None and high is not None else "")
    )

    def convert(value: object) -> int:
        if isinstance(value, str):
            try:
                value = int(value)
            except ValueError:
                raise ValueError(rule) from None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(rule)
        if (low is not None and value < low) or (high is not None and value > high):
            raise ValueError(rule)
        return value

    return convert


def endless(low: int = 0) -> Convert:
    """A whole number, or float("inf")."""
    whole = integer(low)

    def convert(value: object) -> object:
        if value in (math.inf, "inf"):
            return math.inf
        return whole(value)

    return convert


def boolean(value: object) -> bool:
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise ValueError("True or False")
    return value


def text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("a string")
    return value


def anything(value: object) -> object:
    return value


def optional(convert: Convert) -> Convert:
    """None, or what `convert` takes."""

    def converted(value: object) -> object:
        if value is None:
            return None
        try:
            return convert(value)
        except ValueError as rule:
            raise ValueError(f"{rule}, or None") from None

    return converted


def one_of(*choices: object) -> Convert:
    """One of a few values; strings in any case."""

    def convert(value: object) -> object:
        for choice in choices:
            if value == choice or (
                isinstance(value, str)
                and isinstance(choice, str)
                and value.lower() == choice.lower()
            ):
                return choice
        raise ValueError("one of " + ", ".join(repr(choice) for choice in choices))

    return convert


def callable_or_object(*methods: str) -> Convert:
    """A function, or an object that has one of these methods."""

    def convert(value: object) -> object:
        if isinstance(value, type) and any(hasattr(value, method) for method in methods):
            return value()
        if callable(value) or any(hasattr(value, method) for method in methods):
            return value
        named = " or ".join(f".{method}()" for method in methods)
        raise ValueError("a function" + (f", or an object with {named}" if methods else ""))

    return convert


def servers(value: object) -> list[tuple[str, int]]:
    """Hosts and ports, from "a:9092,b:9092" or a list of such."""
    parts = value.split(",") if isinstance(value, str) else value
    rule = 'addresses such as "localhost:9092" or ["one:9092", "two:9092"]'
    if not isinstance(parts, Iterable) or isinstance(parts, bytes | Mapping):
        raise ValueError(rule)
    found = []
    for part in parts:
        if isinstance(part, tuple) and len(part) == 2:
            found.append((str(part[0]), int(part[1])))
            continue
        if not isinstance(part, str) or not part.strip():
            raise ValueError(rule)
        _, _, address = part.strip().rpartition("://")
        host, colon, port = address.rpartition(":")
        if not colon or (address.count(":") > 1 and not host.endswith("]")):
            host, port = address, "9092"
        if not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError(f"{rule}; the port in {part!r} is no number from 1 to 65535")
        found.append((host.strip("[]"), int(port)))
    if not found:
        raise ValueError(rule)
    return found


def tls_context(value: object) -> object:
    if value is None or all(hasattr(value, name) for name in ("wrap_bio", "verify_mode")):
        return value
    raise ValueError("an ssl.SSLContext, or None")


def names(value: object) -> tuple[str, ...]:
    """Several words, from "a,b" or a list."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, Iterable) or not all(isinstance(part, str) for part in parts):
        raise ValueError('names such as "TLSv1.2,TLSv1.3"')
    return tuple(part.strip() for part in parts if part.strip())


def protocol(value: object) -> object:
    return one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")(value)


def mechanism(value: object) -> object:
    if value in (None, ""):
        return None
    if value == "GSSAPI":
        raise ValueError(f"{', '.join(SASL_MECHANISMS)} (Kerberos is not supported)")
    return one_of(*SASL_MECHANISMS)(value)


def token_provider(value: object) -> object:
    if value is None or callable(getattr(value, "token", None)):
        return value
    raise ValueError("an object with .token()")


def login_handler(value: object) -> object:
    """Kafka's own two: what they do follows from the other options."""
    if value in (None, "", *LOGIN_HANDLERS):
        return value
    raise ValueError(f"one of {', '.join(LOGIN_HANDLERS)}: other classes of Java do not run here")


def api_version(value: object) -> object:
    if value is None or isinstance(value, tuple | str):
        return value
    raise ValueError("None: versions are agreed with each broker (a tuple is taken and ignored)")


def unset(value: object) -> None:
    """Part of Kerberos or proxies, which are not there yet: only the default will do."""
    if value not in (None, [], ""):
        raise ValueError("None (it is not there yet, see SKIPPED.md)")


def ignored(value: object) -> object:
    """Taken so that a script of kafka-python runs; it changes nothing here (SKIPPED.md)."""
    return value


def is_secret(name: str) -> bool:
    """Whether the value of an option may be shown to nobody."""
    return name in SECRETS or name.endswith(("_password", "_secret"))


def parse(
    options: Iterable[Option],
    keywords: Mapping[str, object],
    properties: Mapping[str, object] | None = None,
    *,
    who: str = "Client",
) -> dict[str, object]:
    """All options with their values: defaults, then properties, then keywords."""
    check_properties(properties, who)
    known = {option.name: option for option in options}
    aliases = {name: option for option in known.values() for name in option.properties}
    values = {option.name: option.default for option in known.values()}
    for given in (properties or {}), keywords:
        for name, value in given.items():
            option = known.get(name) or aliases.get(name) or known.get(name.replace(".", "_"))
            if option is None:
                raise KafkaConfigurationError(_unknown(name, known, who))
            try:
                values[option.name] = option.convert(value)
            except (ValueError, TypeError) as rule:
                got = HIDDEN if is_secret(option.name) else repr(value)
                raise KafkaConfigurationError(
                    f"{who}: {name} must be {rule} (got {got})\n"
                    f"{option.name}: {option.doc} (default {option.default!r})"
                ) from None
    if not isinstance(values.get("bootstrap_servers"), list):
        values["bootstrap_servers"] = servers(values["bootstrap_servers"])
    return values


def _unknown(name: str, known: Mapping[str, Option], who: str) -> str:
    import difflib  # only a mistake pays for it

    close = difflib.get_close_matches(name.replace(".", "_"), known, 1, 0.6)
    hint = f"did you mean {close[0]!r}?" if close else f"it knows: {', '.join(sorted(known))}"
    return f"{who}: there is no option {name!r}\nTry: {hint}"


COMMON: tuple[Option, ...] = (
    Option(
        "bootstrap_servers", servers, "localhost:9092", "brokers to ask first",
        ("metadata.broker.list",),
    ),
    Option("client_id", optional(text), None, "the name that brokers log for this client"),
    Option("request_timeout_ms", integer(1), 30_000, "how long to wait for one answer"),
    Option("bootstrap_timeout_ms", integer(0), 30_000, "how long to look for a first broker"),
    Option("connections_max_idle_ms", integer(0), 540_000, "close a connection unused so long"),
    Option("reconnect_backoff_ms", integer(0), 50, "wait before connecting again"),
    Option("reconnect_backoff_max_ms", integer(0), 1_000, "the most that this wait grows to"),
    Option("retry_backoff_ms", integer(0), 100, "wait before asking again"),
    Option("retry_backoff_max_ms", integer(0), 1_000, "the most that this wait grows to"),
    Option("metadata_max_age_ms", integer(0), 300_000, "refresh the metadata of the cluster"),
    Option(
        "max_in_flight_requests_per_connection", integer(1), 5, "requests sent and not answered",
        ("max.in.flight", "max.in.flight.requests.per.connection"),
    ),
    Option("receive_message_max_bytes", integer(1), 100_000_000, "the largest answer taken"),
    Option("receive_buffer_bytes", optional(integer(-1)), None, "SO_RCVBUF"),
    Option("send_buffer_bytes", optional(integer(-1)), None, "SO_SNDBUF"),
    Option("socket_options", anything, [(6, 1, 1)], "triples for setsockopt"),
    Option("client_dns_lookup", ignored, "use_all_dns_ips", "every address of a name is tried"),
    Option("security_protocol", protocol, "PLAINTEXT", "the protocol of connections"),
    Option("ssl_context", tls_context, None, "a context in place of the options below"),
    Option("ssl_check_hostname", boolean, True, "check the server's name"),
    Option(
        "ssl_cafile", optional(text), None, "the authorities trusted, a file in PEM",
        ("ssl.ca.location",),
    ),
    Option(
        "ssl_certfile", optional(text), None, "the certificate to show, a file in PEM",
        ("ssl.certificate.location",),
    ),
    Option("ssl_keyfile", optional(text), None, "its key, a file in PEM", ("ssl.key.location",)),
    Option("ssl_password", optional(text), None, "the password of the key"),
    Option(
        "ssl_crlfile", optional(text), None, "revoked certificates, a file in PEM",
        ("ssl.crl.location",),
    ),
    Option("ssl_ciphers", optional(text), None, "cipher suites of TLS 1.2, by OpenSSL's names"),
    Option("ssl_keystore_type", optional(text), None, "PEM or PKCS12"),
    Option("ssl_keystore_location", optional(text), None, "the key store's file"),
    Option("ssl_keystore_password", optional(text), None, "the key store's password"),
    Option("ssl_key_password", optional(text), None, "the password of the key in it"),
    Option("ssl_keystore_key", optional(text), None, "the key itself, in PEM", ("ssl.key.pem",)),
    Option(
        "ssl_keystore_certificate_chain", optional(text), None, "the certificates, in PEM",
        ("ssl.certificate.pem",),
    ),
    Option("ssl_truststore_type", optional(text), None, "PEM or PKCS12"),
    Option("ssl_truststore_location", optional(text), None, "the trust store's file"),
    Option("ssl_truststore_password", optional(text), None, "the trust store's password"),
    Option(
        "ssl_truststore_certificates", optional(text), None, "the authorities trusted, in PEM",
        ("ssl.ca.pem",),
    ),
    Option("ssl_enabled_protocols", optional(names), None, "of TLSv1.2 and TLSv1.3"),
    Option("ssl_cipher_suites", optional(names), None, "cipher suites of TLS 1.2, by Java's names"),
    Option(
        "ssl_endpoint_identification_algorithm", optional(text), None,
        "https, or empty: the server's name is not checked",
    ),
    Option(
        "sasl_mechanism", mechanism, None, "one of " + ", ".join(SASL_MECHANISMS),
        ("sasl.mechanisms",),
    ),
    Option("sasl_plain_username", optional(text), None, "who logs in", ("sasl.username",)),
    Option("sasl_plain_password", optional(text), None, "the password", ("sasl.password",)),
    Option("sasl_jaas_config", optional(text), None, "both of them, as Kafka's tools take them"),
    Option("sasl_token_auth", boolean, False, "whether they are a delegation token's id and HMAC"),
    Option(
        "sasl_oauth_token_provider", token_provider, None,
        "what gives tokens, an object with token() and perhaps extensions()",
    ),
    Option("sasl_oauthbearer_token_endpoint_url", optional(text), None, "where tokens come from"),
    Option(
        "sasl_oauthbearer_client_credentials_client_id", optional(text), None,
        "who asks for tokens", ("sasl.oauthbearer.client.id",),
    ),
    Option(
        "sasl_oauthbearer_client_credentials_client_secret", optional(text), None,
        "that one's secret", ("sasl.oauthbearer.client.secret",),
    ),
    Option("sasl_oauthbearer_scope", optional(text), None, "the scope that is asked for"),
    Option(
        "sasl_oauthbearer_header_urlencode", boolean, False,
        "whether id and secret are URL-encoded where they are shown",
    ),
    Option(
        "sasl_login_callback_handler_class", login_handler, None,
        "Kafka's own by name; it changes nothing here",
    ),
    Option("api_version", api_version, None, "taken and ignored: agreed with each broker"),
    Option("selector", ignored, None, "taken and ignored"),
    Option("kafka_client", ignored, None, "taken and ignored"),
    Option("metric_reporters", ignored, [], "taken and ignored"),
    Option("metrics_enabled", ignored, True, "taken and ignored"),
    Option("metrics_num_samples", ignored, 2, "taken and ignored"),
    Option("metrics_sample_window_ms", ignored, 30_000, "taken and ignored"),
    Option("sasl_kerberos_service_name", ignored, "kafka", "taken and ignored"),
    *(
        Option(name, unset, None, "not there yet")
        for name in (
            "sasl_kerberos_name", "sasl_kerberos_domain_name", "proxy_url", "socks5_proxy",
        )
    ),
)  # fmt: skip
