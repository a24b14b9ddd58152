"""All broker options by name, and the names that older Kafka knew."""

from ottla.settings.cluster import CLUSTER_OPTIONS
from ottla.settings.groups import GROUPS_OPTIONS
from ottla.settings.network import NETWORK_OPTIONS
from ottla.settings.option import Option
from ottla.settings.security import SECURITY_OPTIONS
from ottla.settings.storage import STORAGE_OPTIONS

BROKER_OPTIONS: dict[str, Option] = {
    option.name: option
    for options in (
        CLUSTER_OPTIONS,
        NETWORK_OPTIONS,
        STORAGE_OPTIONS,
        GROUPS_OPTIONS,
        SECURITY_OPTIONS,
    )
    for option in options
}
