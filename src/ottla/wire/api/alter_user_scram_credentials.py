"""AlterUserScramCredentials (key 51): set and delete SCRAM credentials of users (KIP-554)."""

from ..schema import Bytes, Int8, Int16, Int32, NullableString, RequestFor, String, Struct


class ScramCredentialDeletion(Struct):
    name: String = ""
    mechanism: Int8 = 0


class ScramCredentialUpsertion(Struct):
    name: String = ""
    mechanism: Int8 = 0
    iterations: Int32 = 0
    salt: Bytes = b""
    salted_password: Bytes = b""


class AlterUserScramCredentialsRequest(
    RequestFor["AlterUserScramCredentialsResponse"], key=51, versions=(0, 0), flexible=0
):
    deletions: list[ScramCredentialDeletion] = []
    upsertions: list[ScramCredentialUpsertion] = []


class AlterUserScramCredentialsResult(Struct):
    user: String = ""
    error_code: Int16 = 0
    error_message: NullableString = ""


class AlterUserScramCredentialsResponse(Struct, key=51, versions=(0, 0), flexible=0):
    throttle_time_ms: Int32 = 0
    results: list[AlterUserScramCredentialsResult] = []
