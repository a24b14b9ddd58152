"""ApiVersions (key 18): what this broker can do; the first request of nearly every client.

v1 throttle time · v3 flexible, the client's name and version, features · v4 features whose lowest
version is 0 may be listed. A version that is not known is answered in v0 with UNSUPPORTED_VERSION,
and the response header never has tagged fields (KIP-511).
"""

from ..schema import Bool, Int16, Int32, Int64, RequestFor, String, Struct, since, tagged


class ApiVersionsRequest(RequestFor["ApiVersionsResponse"], key=18, versions=(0, 4), flexible=3):
    client_software_name: String = since(3)
    client_software_version: String = since(3)


class ApiVersion(Struct):
    api_key: Int16 = 0
    min_version: Int16 = 0
    max_version: Int16 = 0


class SupportedFeatureKey(Struct):
    name: String = ""
    min_version: Int16 = 0
    max_version: Int16 = 0


class FinalizedFeatureKey(Struct):
    name: String = ""
    max_version_level: Int16 = 0
    min_version_level: Int16 = 0


class ApiVersionsResponse(Struct, key=18, versions=(0, 4), flexible=3):
    error_code: Int16 = 0
    api_keys: list[ApiVersion] = []
    throttle_time_ms: Int32 = since(1)
    supported_features: list[SupportedFeatureKey] = tagged(0, since=3)
    finalized_features_epoch: Int64 = tagged(1, since=3, default=-1)
    finalized_features: list[FinalizedFeatureKey] = tagged(2, since=3)
    zk_migration_ready: Bool = tagged(3, since=3)
