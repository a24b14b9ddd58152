"""The cluster as a whole: brokers, log directories, versions, features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import IllegalArgumentError, error_for, raise_for
from .base import AdminBase, Chosen
from .types import FeatureLevels, Features, UpdateFeatureType, to_dict

if TYPE_CHECKING:
    from ottla.wire.api.api_versions import ApiVersionsResponse


class ClusterView(AdminBase):
    """The part of the admin that knows the cluster."""

    def describe_cluster(
        self, include_fenced_brokers: bool = False, controllers: bool = False
    ) -> dict[str, Any]:
        """Cluster id, controller and brokers."""
        from ottla.wire.api.describe_cluster import DescribeClusterRequest

        answer = self._ask(
            DescribeClusterRequest(
                include_fenced_brokers=include_fenced_brokers, endpoint_type=2 if controllers else 1
            ),
            check=lambda got: raise_for(got.error_code, got.error_message),
        )
        plain: dict[str, Any] = to_dict(answer)
        for name in ("throttle_time_ms", "error_code", "error_message"):
            del plain[name]
        for broker in plain["brokers"]:
            broker["node_id"] = broker["broker_id"]
        return plain

    def describe_log_dirs(
        self,
        topic_partitions: Chosen | None = None,
        brokers: Iterable[int] | None = None,
    ) -> list[dict[str, Any]]:
        """What lies in the data directories of each broker."""
        from ottla.wire.api.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest

        topics = None
        if topic_partitions is not None:
            topics = [
                DescribableLogDirTopic(topic=name, partitions=indexes)
                for name, indexes in self._chosen(topic_partitions).items()
            ]
        found = []
        known = self._broker_ids()
        for broker_id in known if brokers is None else brokers:
            answer = self._ask(
                DescribeLogDirsRequest(topics=topics),
                broker_id,
                check=lambda got: raise_for(got.error_code),
            )
            found.append({"broker": broker_id, "log_dirs": to_dict(answer.results)})
        return found

    def api_versions(self, broker_id: int | None = None) -> dict[int, tuple[int, int]]:
        """The APIs that a broker has, each with its lowest and highest version."""
        answer = self._versions(broker_id)
        return {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}

    get_broker_version_data = api_versions

    def describe_features(
        self, send_request_to_controller: bool = False, broker_id: int | None = None
    ) -> Features:
        """Features as `{name: {"finalized": …, "supported": (low, high)}}`, and their epoch; of
        this broker, or of any one."""
        answer = self._versions(broker_id)
        found: dict[str, FeatureLevels] = {
            each.name: {"supported": (each.min_version, each.max_version), "finalized": 0}
            for each in answer.supported_features
        }
        for each in answer.finalized_features:
            levels = found.setdefault(each.name, {"supported": None, "finalized": 0})
            levels["finalized"] = each.max_version_level
        return {"features": found, "epoch": answer.finalized_features_epoch}

    def _versions(self, broker_id: int | None) -> ApiVersionsResponse:
        from ottla import __version__
        from ottla.wire.api.api_versions import ApiVersionsRequest

        request = ApiVersionsRequest(
            client_software_name="ottla", client_software_version=__version__
        )
        if broker_id is not None:
            known = self._broker_ids()
            if broker_id not in known:
                names = ", ".join(map(str, known))
                raise IllegalArgumentError(f"there is no broker {broker_id}\nTry: one of {names}")
            return self._ask(request, broker_id, check=lambda got: raise_for(got.error_code))
        return self._ask(request, check=lambda got: raise_for(got.error_code))

    def unregister_broker(self, broker_id: int) -> None:
        """Have the cluster forget a broker that does not come back."""
        from ottla.wire.api.unregister_broker import UnregisterBrokerRequest

        self._ask_controller(
            UnregisterBrokerRequest(broker_id=broker_id),
            lambda got: raise_for(got.error_code, got.error_message),
        )

    def update_features(
        self,
        feature_updates: Mapping[str, int | tuple[int, UpdateFeatureType | str | int]],
        validate_only: bool = False,
        timeout_ms: int = 60_000,
    ) -> dict[str, str]:
        """Finalize features: `{name: level}` or `{name: (level, UpdateFeatureType)}`."""
        from ottla.wire.api.update_features import FeatureUpdateKey, UpdateFeaturesRequest

        updates = []
        for name, given in feature_updates.items():
            level, kind = given if isinstance(given, tuple) else (given, UpdateFeatureType.UPGRADE)
            if isinstance(kind, str):
                kind = UpdateFeatureType[kind.upper()]
            updates.append(
                FeatureUpdateKey(
                    feature=name,
                    max_version_level=level,
                    upgrade_type=int(kind),
                    allow_downgrade=kind != UpdateFeatureType.UPGRADE,
                )
            )
        answer = self._ask_controller(
            UpdateFeaturesRequest(
                feature_updates=updates, validate_only=validate_only, timeout_ms=timeout_ms
            ),
            lambda got: raise_for(got.error_code, got.error_message),
        )
        return dict.fromkeys(feature_updates, "OK") | {
            each.feature: str(error_for(each.error_code, each.error_message))
            for each in answer.results
            if each.error_code
        }
