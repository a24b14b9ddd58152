"""DescribeUserScramCredentials (key 50): mechanisms and iterations, never a key (KIP-554)."""

from ..schema import Int8, Int16, Int32, NullableString, RequestFor, String, Struct


class UserName(Struct):
    name: String = ""


class DescribeUserScramCredentialsRequest(
    RequestFor["DescribeUserScramCredentialsResponse"], key=50, versions=(0, 0), flexible=0
):
    users: list[UserName] | None = []


class CredentialInfo(Struct):
    mechanism: Int8 = 0  # 1 SCRAM-SHA-256, 2 SCRAM-SHA-512
    iterations: Int32 = 0


class DescribeUserScramCredentialsResult(Struct):
    user: String = ""
    error_code: Int16 = 0
    error_message: NullableString = ""
    credential_infos: list[CredentialInfo] = []


class DescribeUserScramCredentialsResponse(Struct, key=50, versions=(0, 0), flexible=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = ""
    results: list[DescribeUserScramCredentialsResult] = []
