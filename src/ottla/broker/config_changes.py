"""Changes to configs: what a broker checks before it asks the controller, and what it does itself.

As Kafka splits it: the broker refuses resources named twice, configs named twice and values left
out, validates changes to its own configs (only it has its other settings), and sets levels of
loggers. Topics and groups are the controller's. Answers keep the request's order.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.context import Context
from ottla.broker.loggers import change_levels
from ottla.cluster.configs import parsed_int
from ottla.cluster.requests import ConfigOutcome, Op, Refusal, Resource, ResourceType
from ottla.security import acls
from ottla.settings import BROKER_OPTIONS, Option, Type, validate_broker_configs
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.authorization.rights import Rights

OK = Refusal(ErrorCode.NONE)
ALTER_CONFIGS = acls.Operation.ALTER_CONFIGS
# What the configs of a resource are protected by; by the cluster if they are here not.
KINDS = {
    ResourceType.TOPIC: (acls.ResourceType.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ResourceType.GROUP: (acls.ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
}


class Change(NamedTuple):
    """What a request asks for one resource: (config, operation, value) each."""

    resource: Resource
    configs: Sequence[tuple[str, int, str | None]]


Persist = Callable[[list[Change]], Awaitable[list[ConfigOutcome]]]
Preprocess = Callable[[Change], Refusal | None]


async def change_configs(
    changes: Sequence[Change], preprocess: Preprocess, persist: Persist, rights: Rights | None
) -> list[Refusal]:
    """An answer for each change: the broker's own where it has one, else the controller's."""
    answers: list[Refusal | None] = []
    counts: dict[Resource, int] = {}
    for change in changes:
        counts[change.resource] = counts.get(change.resource, 0) + 1
    for change in changes:
        if counts[change.resource] > 1:
            message = "Each resource must appear at most once."
            answers.append(Refusal(ErrorCode.INVALID_REQUEST, message))
        else:
            answers.append(_malformed(change) or preprocess(change) or _denied(change, rights))
    left = [change for change, answer in zip(changes, answers, strict=True) if answer is None]
    outcomes = iter(await persist(left) if left else ())
    return [answer if answer is not None else _refusal(next(outcomes)) for answer in answers]


def preprocess_incremental(context: Context, validate_only: bool) -> Preprocess:
    def preprocess(change: Change) -> Refusal | None:
        resource, configs = change
        if resource.type == ResourceType.BROKER_LOGGER:
            denied = _denied(change, context.rights)
            if denied is not None:
                return Refusal(denied.error_code)
            wrong = _wrong_node(context, resource.name, "Unexpected node id. Expected {}")
            return wrong or change_levels(configs, validate_only=validate_only) or OK
        if resource.type == ResourceType.BROKER:
            wrong = _wrong_node_of_configs(context, resource.name)
            if wrong is not None:
                return wrong
            old = context.broker.image.broker_configs.get(resource.name, {})
            new = _incremented(old, configs)
            return new if isinstance(new, Refusal) else _validated(context, resource, new)
        return _unknown_type(resource)

    return preprocess


def preprocess_whole(context: Context) -> Preprocess:
    def preprocess(change: Change) -> Refusal | None:
        resource, configs = change
        if resource.type == ResourceType.BROKER:
            wrong = _wrong_node_of_configs(context, resource.name)
            if wrong is not None:
                return wrong
            new = {name: value or "" for name, _, value in configs}
            return _validated(context, resource, new)
        return _unknown_type(resource)

    return preprocess


def _malformed(change: Change) -> Refusal | None:
    names = [name for name, _, _ in change.configs]
    if len(set(names)) != len(names):
        return Refusal(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    without_value = [
        name
        for name, operation, value in change.configs
        if value is None and operation != Op.DELETE
    ]
    if without_value:
        message = f"Null value not supported for : {', '.join(without_value)}"
        return Refusal(ErrorCode.INVALID_REQUEST, message)
    return None


def _denied(change: Change, rights: Rights | None) -> Refusal | None:
    """What Kafka's controller asks, behind what the broker has checked."""
    if rights is None:
        return None
    if change.resource.type in KINDS:
        kind, error = KINDS[ResourceType(change.resource.type)]
        allowed = rights.allows(ALTER_CONFIGS, kind, change.resource.name)
    else:
        error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        allowed = rights.allows_cluster(ALTER_CONFIGS)
    return None if allowed else Refusal(error, error.message)


def _unknown_type(resource: Resource) -> Refusal | None:
    # Client metrics are not stored, so a change to them is an unknown type.
    if resource.type in (ResourceType.TOPIC, ResourceType.GROUP):
        return None
    message = f"Unknown resource type {resource.type}"
    return Refusal(ErrorCode.INVALID_REQUEST, message)


def _wrong_node_of_configs(context: Context, name: str) -> Refusal | None:
    if not name:
        return None
    return _wrong_node(context, name, "Unexpected broker id, expected {}")


def _wrong_node(context: Context, name: str, words: str) -> Refusal | None:
    node_id = parsed_int(name)
    if node_id is None:
        message = f"Node id must be an integer, but it is: {name}"
        return Refusal(ErrorCode.INVALID_REQUEST, message)
    own = context.broker.settings.node_id
    if node_id != own:
        message = f"{words.format(own)}, but received {name}"
        return Refusal(ErrorCode.INVALID_REQUEST, message)
    return None


def _validated(context: Context, resource: Resource, configs: Mapping[str, str]) -> Refusal | None:
    settings = context.broker.settings
    per_broker = bool(resource.name)
    complaint = validate_broker_configs(settings, configs, per_broker=per_broker)
    if complaint is None and context.broker.config_checks:
        default = settings.dynamic_default if per_broker else configs
        own = configs if per_broker else settings.dynamic
        wanted = context.broker.settings_with(default, own)
        found = (check(wanted) for check in context.broker.config_checks)
        complaint = next((each for each in found if each is not None), None)
    return None if complaint is None else Refusal(ErrorCode.INVALID_REQUEST, complaint)


def _incremented(
    old: Mapping[str, str], configs: Sequence[tuple[str, int, str | None]]
) -> dict[str, str] | Refusal:
    """The dynamic configs of a broker after the operations, to be validated."""
    new = dict(old)
    for name, operation, value in configs:
        if operation == Op.SET:
            new[name] = value or ""
        elif operation == Op.DELETE:
            new.pop(name, None)
        elif operation in (Op.APPEND, Op.SUBTRACT):
            option = BROKER_OPTIONS.get(name)
            refusal = _not_a_list(name, option, operation)
            if refusal is not None:
                return refusal
            assert option is not None
            current = new.get(name) or option.text(option.default) or ""
            parts = [part for part in current.split(",") if part]
            asked = (value or "").split(",")
            if operation == Op.APPEND:
                parts += [part for part in asked if part not in parts]
            else:
                parts = [part for part in parts if part not in asked]
            new[name] = ",".join(parts)
        else:
            message = f"Unknown operations type {operation}"
            return Refusal(ErrorCode.INVALID_REQUEST, message)
    return new


def _not_a_list(name: str, option: Option | None, operation: int) -> Refusal | None:
    if option is None:
        return Refusal(ErrorCode.INVALID_CONFIG, f"Unknown config name: {name}")
    if option.type is not Type.LIST:
        verb = Op(operation).name.lower()
        message = f"Config value {verb} is not allowed for config key: {name}"
        return Refusal(ErrorCode.INVALID_CONFIG, message)
    return None


def _refusal(outcome: ConfigOutcome) -> Refusal:
    return Refusal(outcome.error_code, outcome.error_message)
