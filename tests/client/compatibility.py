"""kafka-python's options and methods that we do not take, each with the reason (for SKIPPED.md)."""

from __future__ import annotations

# Option → why. Everything else in its DEFAULT_CONFIG is accepted.
OPTIONS: dict[str, str] = {}

# Taken so that a script runs, but without effect.
WITHOUT_EFFECT = {
    "api_version": "versions are agreed with each broker",
    "client_dns_lookup": "every address of a name is tried",
    "kafka_client": "there is one kind of network client",
    "metric_reporters": "metrics() is the only way to see metrics",
    "metrics_enabled": "counting costs nothing worth switching off",
    "metrics_num_samples": "metrics are plain counts",
    "metrics_sample_window_ms": "metrics are plain counts",
    "metric_group_prefix": "metrics have the names of their client",
    "selector": "the platform's best selector is used",
}

# Only their defaults are taken until there is SASL and a proxy.
ONLY_THE_DEFAULT = {
    "sasl_mechanism", "sasl_plain_username", "sasl_plain_password",
    "sasl_kerberos_name", "sasl_kerberos_domain_name", "sasl_oauth_token_provider", "proxy_url",
    "socks5_proxy",
}  # fmt: skip

# Method → why there is none.
PRODUCER_METHODS = {
    "max_usable_produce_magic": "an internal of kafka-python; records are always of format v2",
}

# Module → classes that are not there.
MODULES = {
    "errors": {
        "MetadataEmptyBrokerList", "TooManyInFlightRequests", "UnknownBrokerIdError",
        "UnrecognizedBrokerVersion",
    },
    "structs": {"MemberState"},
    "admin": set[str](),
}  # fmt: skip
