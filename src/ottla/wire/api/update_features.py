"""UpdateFeatures (key 57): raise or lower the finalized level of a feature.

v1 upgrade type instead of a flag, dry run · v2 no results per feature any more.
"""

from ..schema import Bool, Int8, Int16, Int32, NullableString, RequestFor, String, Struct, since


class FeatureUpdateKey(Struct):
    feature: String = ""
    max_version_level: Int16 = 0
    allow_downgrade: Bool = since(0, 0)
    upgrade_type: Int8 = since(1, default=1)  # 1 upgrade, 2 safe downgrade, 3 unsafe downgrade


class UpdateFeaturesRequest(
    RequestFor["UpdateFeaturesResponse"], key=57, versions=(0, 2), flexible=0
):
    timeout_ms: Int32 = 60000
    feature_updates: list[FeatureUpdateKey] = []
    validate_only: Bool = since(1)


class UpdatableFeatureResult(Struct):
    feature: String = ""
    error_code: Int16 = 0
    error_message: NullableString = ""


class UpdateFeaturesResponse(Struct, key=57, versions=(0, 2), flexible=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = ""
    results: list[UpdatableFeatureResult] = since(0, 1)
