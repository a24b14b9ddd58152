"""The types of the clients' options, as `config.parse` returns them.

One key for each option of the tables in config.py and the two options.py; a test compares them.
What an option is for is documented there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, TypedDict

from .assignors import Assignor
from .interceptors import ProducerInterceptor
from .structs import OffsetAndMetadata, TopicPartition

# Duck-typed as in kafka-python: the converters of the options have checked what it can do.
TlsContext: TypeAlias = object  # an ssl.SSLContext; only TLS imports ssl
SerializerOption: TypeAlias = object  # a function, or an object with serialize or deserialize
PartitionerOption: TypeAlias = object  # a function, or an object with partition
CommitCallback: TypeAlias = Callable[
    [dict[TopicPartition, OffsetAndMetadata], BaseException | None], object
]
ConsumerInterceptorOption: TypeAlias = object  # with some of on_consume, on_commit and close


class TokenProvider(Protocol):
    """What gives tokens of OAUTHBEARER; `extensions`, if it has that, what is sent beside them."""

    def token(self) -> str: ...


class ClientConfig(TypedDict):
    """Options of every client (`config.COMMON`)."""

    bootstrap_servers: list[tuple[str, int]]
    client_id: str | None
    request_timeout_ms: int
    bootstrap_timeout_ms: int
    connections_max_idle_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    metadata_max_age_ms: int
    max_in_flight_requests_per_connection: int
    receive_message_max_bytes: int
    receive_buffer_bytes: int | None
    send_buffer_bytes: int | None
    socket_options: Sequence[tuple[int, int, int]] | None
    security_protocol: str
    ssl_context: TlsContext | None
    ssl_check_hostname: bool
    ssl_cafile: str | None
    ssl_certfile: str | None
    ssl_keyfile: str | None
    ssl_password: str | None
    ssl_crlfile: str | None
    ssl_ciphers: str | None
    ssl_keystore_type: str | None
    ssl_keystore_location: str | None
    ssl_keystore_password: str | None
    ssl_key_password: str | None
    ssl_keystore_key: str | None
    ssl_keystore_certificate_chain: str | None
    ssl_truststore_type: str | None
    ssl_truststore_location: str | None
    ssl_truststore_password: str | None
    ssl_truststore_certificates: str | None
    ssl_enabled_protocols: Sequence[str] | None
    ssl_cipher_suites: Sequence[str] | None
    ssl_endpoint_identification_algorithm: str | None
    sasl_mechanism: str | None
    sasl_plain_username: str | None
    sasl_plain_password: str | None
    sasl_jaas_config: str | None
    sasl_token_auth: bool
    sasl_oauth_token_provider: TokenProvider | None
    sasl_oauthbearer_token_endpoint_url: str | None
    sasl_oauthbearer_client_credentials_client_id: str | None
    sasl_oauthbearer_client_credentials_client_secret: str | None
    sasl_oauthbearer_scope: str | None
    sasl_oauthbearer_header_urlencode: bool
    sasl_login_callback_handler_class: str | None
    # Taken and ignored, or refused if they are set.
    client_dns_lookup: object
    api_version: object
    selector: object
    kafka_client: object
    metric_reporters: object
    metrics_enabled: object
    metrics_num_samples: object
    metrics_sample_window_ms: object
    sasl_kerberos_service_name: object
    sasl_kerberos_name: None
    sasl_kerberos_domain_name: None
    proxy_url: None
    socks5_proxy: None


class ProducerConfig(ClientConfig):
    """Options of the producer (`producer.options.PRODUCER`)."""

    key_serializer: SerializerOption
    value_serializer: SerializerOption
    partitioner: PartitionerOption
    interceptors: list[ProducerInterceptor]
    acks: int
    compression_type: int
    compression_level: int | None
    enable_idempotence: bool
    batch_size: int
    linger_ms: int
    buffer_memory: int
    max_block_ms: int
    max_request_size: int
    retries: float
    delivery_timeout_ms: int
    allow_auto_create_topics: bool
    transactional_id: str | None
    transaction_timeout_ms: int
    metric_group_prefix: str


class ConsumerConfig(ClientConfig):
    """Options of the consumer (`consumer.options.CONSUMER`)."""

    client_rack: str
    group_id: str | None
    group_protocol: str
    group_remote_assignor: str | None
    group_instance_id: str | None
    key_deserializer: SerializerOption
    value_deserializer: SerializerOption
    enable_incremental_fetch_sessions: object
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    auto_offset_reset: str
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    default_offset_commit_callback: CommitCallback | None
    check_crcs: bool
    isolation_level: str
    allow_auto_create_topics: bool
    partition_assignment_strategy: list[Assignor]
    max_poll_records: int
    max_poll_interval_ms: int
    session_timeout_ms: int
    heartbeat_interval_ms: int
    consumer_timeout_ms: float
    exclude_internal_topics: bool
    interceptors: list[ConsumerInterceptorOption]
    metric_group_prefix: str


class ShareConsumerConfig(ClientConfig):
    """Options of the share consumer (`share.options.SHARE_CONSUMER`)."""

    client_rack: str
    group_id: str
    key_deserializer: SerializerOption
    value_deserializer: SerializerOption
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    check_crcs: bool
    max_poll_records: int
    share_acknowledgement_mode: str
    share_acquire_mode: str
    consumer_timeout_ms: float
