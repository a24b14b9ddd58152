"""Changes to the configs of topics, brokers and groups: the new configs, or why they are refused.

Pure. What a config may be is not known here: the rules are handed in (`settings.py` has them). The
checks around them, their order, codes and messages are those of Kafka's controller.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from ottla.cluster.image import EMPTY, ClusterImage
from ottla.cluster.names import name_error
from ottla.cluster.requests import Op, Refusal, Resource, ResourceType
from ottla.wire.errors import ErrorCode

VALUE_LENGTH_MAX = 32_767
MIN_ISR = "min.insync.replicas"
UNCLEAN_ELECTION = "unclean.leader.election.enable"
ELR_FEATURE = "eligible.leader.replicas.version"


class ConfigRules(Protocol):
    """The validation of configs, as the controller needs it."""

    def error(
        self, resource_type: int, name: str, configs: Mapping[str, str], old: Mapping[str, str]
    ) -> Refusal | str | None:
        """Why the resource may not have these configs as a whole; a text is INVALID_CONFIG."""
        ...

    def is_list(self, resource_type: int, config: str) -> bool:
        """Whether APPEND and SUBTRACT make sense for the config."""
        ...

    def default(self, resource_type: int, config: str) -> str | None:
        """The value that APPEND and SUBTRACT begin with when none is set."""
        ...


class AnyConfig:
    """Rules for tests: every config is valid, and one whose name ends with `policy` is a list."""

    def error(
        self, resource_type: int, name: str, configs: Mapping[str, str], old: Mapping[str, str]
    ) -> Refusal | str | None:
        return None

    def is_list(self, resource_type: int, config: str) -> bool:
        return config.endswith("policy")

    def default(self, resource_type: int, config: str) -> str | None:
        return None


def configs_of(image: ClusterImage, resource: Resource) -> Mapping[str, str]:
    """The dynamic configs that the resource has."""
    if resource.type == ResourceType.TOPIC:
        return image.topic_configs.get(resource.name, EMPTY)
    if resource.type == ResourceType.GROUP:
        return image.group_configs.get(resource.name, EMPTY)
    return image.broker_configs.get(resource.name, EMPTY)


def check_new_topic_configs(
    rules: ConfigRules, name: str, configs: Sequence[tuple[str, str | None]]
) -> dict[str, str] | Refusal:
    """The configs of a topic to be created, or why it is not."""
    without_value = [config for config, value in configs if value is None]
    if without_value:
        names = ",".join(without_value)
        message = f"Null value not supported for topic configs: {names}"
        return Refusal(ErrorCode.INVALID_CONFIG, message)
    wanted = {config: value for config, value in configs if value is not None}
    if not wanted:
        return wanted
    if any(len(value) > VALUE_LENGTH_MAX for value in wanted.values()):
        return value_too_long()
    refusal = as_refusal(rules.error(ResourceType.TOPIC, name, wanted, EMPTY))
    return refusal if refusal is not None else wanted


def altered(
    image: ClusterImage,
    rules: ConfigRules,
    resource: Resource,
    configs: Sequence[tuple[str, str | None]],
) -> dict[str, str] | Refusal:
    """All configs of the resource after AlterConfigs, which replaces them as a whole."""
    old = configs_of(image, resource)
    wanted: dict[str, str | None] = dict(configs)
    new = {config: value for config, value in wanted.items() if value is not None}
    removed = [config for config in old if config not in new]
    removed += [config for config in wanted if wanted[config] is None and config not in old]
    return checked(image, rules, resource, new, changed={**new, **dict.fromkeys(removed)})


def incrementally_altered(
    image: ClusterImage,
    rules: ConfigRules,
    resource: Resource,
    operations: Sequence[tuple[str, int, str | None]],
) -> dict[str, str] | Refusal:
    """All configs of the resource after IncrementalAlterConfigs: (config, Op, value) each."""
    new = dict(configs_of(image, resource))
    changed: dict[str, str | None] = {}
    for config, operation, value in operations:
        if operation == Op.SET:
            result = value
        elif operation == Op.DELETE:
            result = None
        else:
            op = Op(operation)
            if not rules.is_list(resource.type, config):
                message = f"Can't {op.name} to key {config} because its type is not LIST."
                return Refusal(ErrorCode.INVALID_CONFIG, message)
            current = new.get(config)
            if current is None:
                current = rules.default(resource.type, config)
            result = joined(op, current, value or "")
        if result is not None or config in new or resource.type == ResourceType.BROKER:
            changed[config] = result
        if result is None:
            new.pop(config, None)
        else:
            new[config] = result
    return checked(image, rules, resource, new, changed)


def joined(op: Op, current: str | None, value: str) -> str:
    """A list config with the parts of `value` added or taken away."""
    parts = [part.strip() for part in (current or "").split(",") if part.strip()]
    for part in java_split(value):
        if op == Op.APPEND and part not in parts:
            parts.append(part)
        elif op == Op.SUBTRACT and part in parts:
            parts.remove(part)
    return ",".join(parts)


def java_split(value: str) -> list[str]:
    """Split at commas as Java does: without the empty parts at the end, but '' has one part."""
    parts = [part.strip() for part in value.split(",")]
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts


def checked(
    image: ClusterImage,
    rules: ConfigRules,
    resource: Resource,
    new: dict[str, str],
    changed: Mapping[str, str | None],
) -> dict[str, str] | Refusal:
    """`new` if the resource may have these configs, else why not."""
    for config, value in changed.items():
        refusal = elr_error(image, resource, config, value)
        if refusal is not None:
            return refusal
        if value is not None and len(value) > VALUE_LENGTH_MAX:
            return value_too_long()
    old = configs_of(image, resource)
    refusal = (
        resource_error(resource)
        or as_refusal(rules.error(resource.type, resource.name, new, old))
        or existence_error(image, resource)
    )
    return refusal if refusal is not None else new


def elr_error(
    image: ClusterImage, resource: Resource, config: str, value: str | None
) -> Refusal | None:
    """With eligible leader replicas, min.insync.replicas is one for the cluster (KIP-966)."""
    if config != MIN_ISR or resource.type != ResourceType.BROKER:
        return None
    if not image.features.levels.get(ELR_FEATURE, 0):
        return None
    if resource.name:
        return Refusal(
            ErrorCode.INVALID_CONFIG,
            "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
        )
    if value is None:
        return Refusal(
            ErrorCode.INVALID_CONFIG,
            "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
        )
    return None


def resource_error(resource: Resource) -> Refusal | None:
    """Why there can be no such resource."""
    message: str | None = None
    if resource.type == ResourceType.TOPIC:
        if not resource.name:
            message = "Default topic resources are not allowed."
        elif (wrong := name_error(resource.name)) is not None:
            return Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, wrong)
    elif resource.type == ResourceType.BROKER:
        if resource.name:
            broker_id = parsed_int(resource.name)
            if broker_id is None:
                message = "Unable to parse broker name as a base 10 number."
            elif broker_id < 0:
                message = "Invalid negative broker ID."
    elif resource.type == ResourceType.GROUP:
        if not resource.name:
            message = "Default group resources are not allowed."
    else:
        message = f"Unknown resource type {type_name(resource.type)}"
    return Refusal(ErrorCode.INVALID_REQUEST, message) if message is not None else None


def existence_error(image: ClusterImage, resource: Resource) -> Refusal | None:
    """Why the resource, though well named, is not there."""
    if resource.type == ResourceType.TOPIC and resource.name not in image.topics:
        message = f"The topic '{resource.name}' does not exist."
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    if resource.type == ResourceType.BROKER and resource.name:
        broker_id = parsed_int(resource.name)
        if broker_id not in image.brokers:
            message = f"No node with id {broker_id} found."
            return Refusal(ErrorCode.BROKER_ID_NOT_REGISTERED, message)
    return None


def parsed_int(text: str) -> int | None:
    """A whole number of 32 bits as Java reads it."""
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not digits.isascii() or not digits.isdigit():
        return None
    value = int(text)
    return value if -(2**31) <= value < 2**31 else None


def type_name(resource_type: int) -> str:
    try:
        return ResourceType(resource_type).name
    except ValueError:
        return ResourceType.UNKNOWN.name


def as_refusal(error: Refusal | str | None) -> Refusal | None:
    return Refusal(ErrorCode.INVALID_CONFIG, error) if isinstance(error, str) else error


def value_too_long() -> Refusal:
    return Refusal(
        ErrorCode.INVALID_CONFIG,
        "The configuration value cannot be added because it exceeds the maximum value size of "
        f"{VALUE_LENGTH_MAX} bytes.",
    )
