"""Options that go through to the Kafka client: `kafka.producer.…`, `kafka.consumer.…`.

The client's own rules hold. What Java's client knows and ours does not is ignored with a warning,
as Java's ignores what it does not know; but nobody who asks for encryption gets none.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.client.config import Option as ClientOption
from ottla.client.config import parse, servers
from ottla.client.consumer.options import CONSUMER
from ottla.client.errors import KafkaConfigurationError
from ottla.client.network.security import Security
from ottla.client.producer.options import PRODUCER, agree

from .options import BadValue, Rule, Value

CLIENTS: dict[str, tuple[ClientOption, ...]] = {
    "kafka.producer.": PRODUCER,
    "kafka.consumer.": CONSUMER,
}
SECURITY = ("security.", "ssl.", "sasl.")
UNKNOWN_SECURITY = "cannot be honoured: our clients have no such option"
UNKNOWN_SECURITY_HINT = (
    "keys and certificates in PEM or PKCS12, a login with PLAIN, SCRAM or OAUTHBEARER"
)
# Which of Java's own parts do the work.
JAVA_SECURITY = (
    "ssl.protocol", "ssl.provider", "ssl.keymanager.algorithm", "ssl.trustmanager.algorithm",
    "ssl.secure.random.implementation",
)  # fmt: skip
JAVA_CLASSES = ("interceptor.classes", "partitioner.class", "metric.reporters")
NO_JAVA = "cannot be honoured: Java's classes do not run here"
# Classes that turn strings and bytes into bytes: an agent's records are bytes already.
SERIALIZERS = ("key.serializer", "value.serializer", "key.deserializer", "value.deserializer")


def _are_servers(value: Value) -> bool:
    try:
        servers(value)
    except ValueError:
        return False
    return True


SERVERS = Rule("HOST:PORT, several with commas between them", _are_servers, "localhost:9092")


def check_client_option(family: str, name: str, value: str) -> str:
    """Why an option is ignored; empty if it is not. Raises BadValue."""
    if name in SERIALIZERS:
        return "records are bytes already"
    if name in JAVA_SECURITY:
        return "it chooses a part of Java's"
    if name in JAVA_CLASSES:
        raise BadValue(NO_JAVA, "", f"without {family}{name}")
    options = CLIENTS[family]
    word = name.replace(".", "_")
    known = next(
        (option for option in options if option.name == word or name in option.properties), None
    )
    if known is None and name.startswith(SECURITY):
        raise BadValue(UNKNOWN_SECURITY, "", UNKNOWN_SECURITY_HINT)
    if known is None:
        return f"it is no option of our {family.split('.')[1]}"
    try:
        known.convert(value)
    except (ValueError, TypeError) as rule:
        hint = "" if known.default is None else str(known.default)
        raise BadValue(f"must be {rule}", hint, f"without {family}{name}") from None
    return ""


def check_security(family: str, options: Mapping[str, object]) -> None:
    """Reads keys, certificates and logins as a connection would: ValueError says what is wrong."""
    own = {name: value for name, value in options.items() if name.startswith(SECURITY)}
    if own:
        Security.of(parse(CLIENTS[family], {}, own, who=family.split(".")[1]))  # type: ignore[arg-type]


def producer_conflict(options: Mapping[str, object]) -> str:
    """Why a producer cannot have these options together; empty if it can."""
    try:
        config = parse(PRODUCER, {}, options, who="Producer")
        agree(config, {name.replace(".", "_") for name in options})  # type: ignore[arg-type]
    except KafkaConfigurationError as error:
        return str(error).split("\n")[0].removeprefix("Producer: ")
    return ""
