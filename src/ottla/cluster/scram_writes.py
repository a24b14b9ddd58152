"""Changes of SCRAM credentials (KIP-554): by Kafka's rules, into the tree, out in the feed."""

from collections.abc import Mapping, Sequence

from ottla.cluster.features import metadata_level
from ottla.cluster.image import ClusterImage
from ottla.cluster.nodes import METADATA_LEVEL
from ottla.cluster.quota_writes import NAME_BYTES_MAX, write_configs
from ottla.cluster.requests import CredentialDeletion, CredentialUpsertion, Refusal, UserOutcome
from ottla.cluster.state import State
from ottla.security.credentials import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    NAMES,
    credential_of,
    credential_text,
)
from ottla.security.quotas.entities import USER, entity_of
from ottla.wire.errors import ErrorCode
from ottla.wire.feed_records import SECURITY_LEVEL

TWICE = Refusal(
    ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
)
NO_LEVEL = Refusal(
    ErrorCode.UNSUPPORTED_VERSION,
    f"SCRAM needs level {SECURITY_LEVEL} of {METADATA_LEVEL}, which the cluster has not",
)
NO_USER = Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
LONG_NAME = Refusal(
    ErrorCode.UNACCEPTABLE_CREDENTIAL,
    f"A username of more than {NAME_BYTES_MAX} bytes is not supported",
)
NO_MECHANISM = Refusal(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
NOT_FOUND = Refusal(
    ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
)
TOO_FEW = Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
TOO_MANY = Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")

Alteration = CredentialDeletion | CredentialUpsertion


async def alter_credentials(
    state: State,
    deletions: Sequence[CredentialDeletion],
    upsertions: Sequence[CredentialUpsertion],
) -> list[UserOutcome]:
    """The outcome of each user: what was deleted, then what was set, then what was refused."""
    accepted, refused = decided(state.image, deletions, upsertions)
    for each in accepted:
        entity = entity_of([(USER, each.user)])
        configs = state.image.entity_configs.get(entity, {})
        await write_configs(state, entity, altered(configs, each))
    return [
        *(UserOutcome(each.user) for each in accepted),
        *(UserOutcome(user, *refusal) for user, refusal in refused.items()),
    ]


def decided(
    image: ClusterImage,
    deletions: Sequence[CredentialDeletion],
    upsertions: Sequence[CredentialUpsertion],
) -> tuple[list[Alteration], dict[str, Refusal]]:
    """What is to be done, and the users of whom nothing is, in Kafka's order."""
    accepted: dict[str, Alteration] = {}
    refused: dict[str, Refusal] = {}
    wanted: list[Alteration] = [*deletions, *upsertions]
    for each in wanted:
        if each.user in refused:
            continue
        if accepted.pop(each.user, None) is not None:
            refused[each.user] = TWICE
        elif metadata_level(image.features) < SECURITY_LEVEL:
            refused[each.user] = NO_LEVEL
        elif (refusal := refusal_of(image, each)) is not None:
            refused[each.user] = refusal
        else:
            accepted[each.user] = each
    return list(accepted.values()), refused


def refusal_of(image: ClusterImage, wanted: Alteration) -> Refusal | None:
    if not wanted.user:
        return NO_USER
    if len(wanted.user.encode("utf-8", "surrogatepass")) > NAME_BYTES_MAX:
        return LONG_NAME
    mechanism = NAMES.get(wanted.mechanism)
    if mechanism is None:
        return NO_MECHANISM
    if isinstance(wanted, CredentialDeletion):
        known = credential_of(image.entity_configs, wanted.user, mechanism)
        return NOT_FOUND if known is None else None
    if wanted.iterations < ITERATIONS_MIN:
        return TOO_FEW
    return TOO_MANY if wanted.iterations > ITERATIONS_MAX else None


def altered(configs: Mapping[str, str], wanted: Alteration) -> dict[str, str]:
    """The configs that a user has then; its quotas stay."""
    new = dict(configs)
    mechanism = NAMES[wanted.mechanism]
    if isinstance(wanted, CredentialUpsertion):
        from ottla.security.sasl.scram import credential_of_salted

        made = credential_of_salted(
            mechanism, wanted.salted_password, wanted.salt, wanted.iterations
        )
        new[mechanism] = credential_text(made)
    else:
        new.pop(mechanism, None)
    return new
