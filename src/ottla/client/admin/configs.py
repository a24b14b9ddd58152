"""Configs of topics, brokers, loggers and groups: describe, change, reset."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from ..errors import KafkaError, error_for, raise_for
from ..network.cluster_client import ANY
from .base import AdminBase
from .types import (
    AlterConfigOp,
    ConfigFilterType,
    ConfigResource,
    ConfigResourceType,
    ConfigSourceType,
    ConfigType,
    to_dict,
)

if TYPE_CHECKING:
    from ottla.wire.api import alter_configs, incremental_alter_configs
    from ottla.wire.api.alter_configs import AlterConfigsRequest
    from ottla.wire.api.describe_configs import (
        DescribeConfigsResourceResult,
        DescribeConfigsResult,
    )
    from ottla.wire.api.incremental_alter_configs import IncrementalAlterConfigsRequest

    AlteredConfigs: TypeAlias = (
        alter_configs.AlterConfigsResourceResponse
        | incremental_alter_configs.AlterConfigsResourceResponse
    )

MODIFIED = {1, 2, 3, 6, 7, 8}  # sources that were set while the cluster ran
FILTERS = ("all", "dynamic", "modified", "default", "static")
PER_BROKER = (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)

# Of a broker's listeners each may have its own, which are shown only while they are set.
OF_LISTENERS = "listener.name."
# Brokers show these only while they are set (KIP-73, KIP-113; KIP-1191 is of a later Kafka).
NOT_SHOWN = {
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
    "errors.deadletterqueue.auto.create.topics.enable",
    "errors.deadletterqueue.copy.record.enable",
    "errors.deadletterqueue.group.enable",
    "errors.deadletterqueue.topic.name",
    "errors.deadletterqueue.topic.name.prefix",
}


class Configs(AdminBase):
    """The part of the admin that knows configs."""

    def describe_configs(
        self,
        config_resources: Iterable[ConfigResource],
        include_synonyms: bool = False,
        config_filter: str | ConfigFilterType = "modified",
        include_documentation: bool = False,
    ) -> dict[str, dict[str, dict[str, Any]]]:
        """`{"topic": {name: {config: {"value": …, "config_source": …}}}}` and so on.

        `config_filter` is "modified" (what was set), "dynamic" (what can be set), "static",
        "default" or "all".
        """
        if isinstance(config_filter, ConfigFilterType):
            config_filter = config_filter.name
        config_filter = str(config_filter).lower()
        if config_filter not in FILTERS:
            raise ValueError(f"config_filter must be one of {FILTERS} (got {config_filter!r})")
        found: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
        for result in self._described(config_resources, include_synonyms, include_documentation):
            raise_for(result.error_code, result.error_message)
            kind = ConfigResourceType(result.resource_type)
            found[kind.name.lower()][result.resource_name] = {
                config.name: readable(config)
                for config in result.configs
                if wanted(config, config_filter)
            }
        return dict(found)

    def _described(
        self,
        config_resources: Iterable[ConfigResource],
        include_synonyms: bool,
        include_documentation: bool,
    ) -> list[DescribeConfigsResult]:
        from ottla.wire.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

        results: list[DescribeConfigsResult] = []
        for node_id, resources in by_node(config_resources).items():
            request = DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(
                        resource_type=each.resource_type,
                        resource_name=each.name,
                        configuration_keys=None if each.configs is None else list(each.configs),
                    )
                    for each in resources
                ],
                include_synonyms=include_synonyms,
                include_documentation=include_documentation,
            )
            results += self._ask(request, self._known(node_id)).results
        return results

    def alter_configs(
        self,
        config_resources: Iterable[ConfigResource],
        validate_only: bool = False,
        raise_on_unknown: bool = True,
        incremental: bool | None = None,
    ) -> dict[str, dict[str, str]]:
        """Change configs: `{name: value}` or `{name: (AlterConfigOp, value)}` each.

        Gives "OK" or the error's text for each resource. `incremental=False` asks in the old way
        (KIP-133), in which configs that are not named go back to their defaults.
        """
        resources = list(config_resources)
        if raise_on_unknown:
            self._check_known(resources)
        results: dict[str, dict[str, str]] = defaultdict(dict)
        for node_id, theirs in by_node(resources).items():
            for response in self._altered(theirs, validate_only, incremental, node_id):
                kind = ConfigResourceType(response.resource_type).name.lower()
                code, text = response.error_code, response.error_message
                results[kind][response.resource_name] = str(error_for(code, text)) if code else "OK"
        return dict(results)

    def _altered(
        self,
        resources: list[ConfigResource],
        validate_only: bool,
        incremental: bool | None,
        node_id: int,
    ) -> Sequence[AlteredConfigs]:
        known = self._known(node_id)
        if incremental is False:
            return self._ask(old_request(resources, validate_only), known).responses
        return self._ask(incremental_request(resources, validate_only), known).responses

    def reset_configs(
        self,
        config_resources: Iterable[ConfigResource],
        validate_only: bool = False,
        raise_on_unknown: bool = True,
        incremental: bool | None = None,
    ) -> dict[str, dict[str, str]]:
        """Forget what was set: the configs named, or all of a resource's."""
        changed = []
        for resource in config_resources:
            names = resource.configs
            if not names:
                lookup = ConfigResource(resource.resource_type, resource.name)
                kind = resource.resource_type.name.lower()
                names = self.describe_configs([lookup])[kind][resource.name]
            deletions = dict.fromkeys(names, (AlterConfigOp.DELETE, None))
            changed.append(ConfigResource(resource.resource_type, resource.name, deletions))
        return self.alter_configs(changed, validate_only, raise_on_unknown)

    def list_config_resources(
        self, resource_types: Iterable[ConfigResourceType | str] | None = None
    ) -> dict[str, list[str]]:
        """The names of what has configs, by kind."""
        from ottla.wire.api.list_config_resources import ListConfigResourcesRequest

        kinds = [
            ConfigResourceType[each.upper()] if isinstance(each, str) else each
            for each in resource_types or ()
        ]
        answer = self._ask(ListConfigResourcesRequest(resource_types=[int(kind) for kind in kinds]))
        raise_for(answer.error_code)
        found: dict[str, list[str]] = defaultdict(list)
        for each in answer.config_resources:
            kind = ConfigResourceType(each.resource_type).name.lower()
            found[kind].append(each.resource_name)
        return dict(found)

    def _check_known(self, resources: list[ConfigResource]) -> None:
        """A misspelt name is an error of the caller, found before anything changes."""
        for resource in resources:
            lookup = ConfigResource(resource.resource_type, resource.name)
            kind = resource.resource_type.name.lower()
            try:
                known = self.describe_configs([lookup], config_filter="all")[kind][resource.name]
            except KafkaError:
                continue  # the change itself will say it better
            wanted = {name for name in resource.configs or () if not name.startswith(OF_LISTENERS)}
            unknown = sorted(wanted - set(known) - NOT_SHOWN)
            if known and unknown:
                raise ValueError(f"{kind} {resource.name!r} has no config {', '.join(unknown)}")

    def _known(self, node_id: int) -> int:
        if node_id != ANY and node_id not in self._client.cluster.brokers:
            self._client.bootstrap()
        return node_id


def by_node(resources: Iterable[ConfigResource]) -> dict[int, list[ConfigResource]]:
    """A broker answers for itself; any broker for the rest."""
    grouped: dict[int, list[ConfigResource]] = defaultdict(list)
    for each in resources:
        own = each.resource_type in PER_BROKER and each.name.isdigit()
        grouped[int(each.name) if own else ANY].append(each)
    return dict(grouped)


def wanted(config: DescribeConfigsResourceResult, config_filter: str) -> bool:
    source = config.config_source
    choice: dict[str, bool] = {
        "all": True,
        "dynamic": not config.read_only,
        "modified": source in MODIFIED,
        "default": source == ConfigSourceType.DEFAULT_CONFIG,
        "static": source == ConfigSourceType.STATIC_BROKER_CONFIG,
    }
    return choice[config_filter]


def readable(config: DescribeConfigsResourceResult) -> dict[str, Any]:
    plain: dict[str, Any] = to_dict(config)
    del plain["name"]
    plain["config_source"] = ConfigSourceType(config.config_source).name
    plain["config_type"] = ConfigType(config.config_type).name
    for synonym in plain["synonyms"]:
        synonym["source"] = ConfigSourceType(synonym["source"]).name
    return plain


def operations(resource: ConfigResource) -> list[tuple[str, AlterConfigOp, str | None]]:
    found = []
    changes = resource.configs or {}
    if not isinstance(changes, Mapping):
        raise TypeError(
            f"configs to change must be {{name: value}} (got {changes!r})\n"
            "Try: ConfigResource('topic', 'orders', {'retention.ms': 1000})"
        )
    for name, given in changes.items():
        operation, value = given if isinstance(given, tuple) else (AlterConfigOp.SET, given)
        if isinstance(operation, str):
            operation = AlterConfigOp[operation.upper()]
        deleted = operation == AlterConfigOp.DELETE
        found.append((name, AlterConfigOp(operation), None if deleted else as_text(value)))
    return found


def as_text(value: object) -> str | None:
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def incremental_request(
    resources: list[ConfigResource], validate_only: bool
) -> IncrementalAlterConfigsRequest:
    from ottla.wire.api.incremental_alter_configs import (
        AlterableConfig,
        AlterConfigsResource,
        IncrementalAlterConfigsRequest,
    )

    return IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=each.resource_type,
                resource_name=each.name,
                configs=[
                    AlterableConfig(name=name, config_operation=operation, value=value)
                    for name, operation, value in operations(each)
                ],
            )
            for each in resources
        ],
        validate_only=validate_only,
    )


def old_request(resources: list[ConfigResource], validate_only: bool) -> AlterConfigsRequest:
    from ottla.wire.api.alter_configs import (
        AlterableConfig,
        AlterConfigsRequest,
        AlterConfigsResource,
    )

    for each in resources:
        for name, operation, _ in operations(each):
            if operation != AlterConfigOp.SET:
                raise ValueError(f"{name}: AlterConfigs can only set")
    return AlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=each.resource_type,
                resource_name=each.name,
                configs=[
                    AlterableConfig(name=name, value=value) for name, _, value in operations(each)
                ],
            )
            for each in resources
        ],
        validate_only=validate_only,
    )
