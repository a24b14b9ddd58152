"""Changes of delegation tokens (KIP-48): decided by Kafka's rules, into the tree, out in the feed.

Who may ask at all, and for whom, is decided by the broker that the client asked.
"""

import logging
from collections.abc import Iterable

from ottla.cluster import nodes, token_nodes
from ottla.cluster.features import metadata_level
from ottla.cluster.image import Change, ClusterImage, TokenChanged, TokenGone
from ottla.cluster.requests import (
    NewToken,
    TokenOutcome,
    TokenRenewal,
    TokenRequest,
)
from ottla.cluster.state import State
from ottla.cluster.steps import Step
from ottla.metadata_store.tree import Create, Delete, Operation, Set
from ottla.security.principal import Principal
from ottla.security.tokens import (
    USER,
    Token,
    TokenOptions,
    Tokens,
    expiring,
    is_too_long,
    issued,
    renewed,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.feed_records import TOKENS_LEVEL

log = logging.getLogger(__name__)

# Of a cluster: every broker keeps them all. Kafka has no limit.
TOKENS_MAX = 100_000
# That one user has asked for, so that nobody takes them all: not even a super user may end those of
# another.
TOKENS_OF_ONE_MAX = 10_000
# In the tree, nearly all of it names of renewers; every broker has all tokens in its memory.
TOKEN_BYTES_MAX = 10_000
# Removed in one write.
EXPIRED_PER_STEP = 1_000


def error_of(options: TokenOptions, image: ClusterImage) -> ErrorCode:
    """Why there are no tokens in this cluster, if there are none."""
    if not options.enabled:
        return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    if metadata_level(image.features) < TOKENS_LEVEL:
        return ErrorCode.UNSUPPORTED_VERSION
    return ErrorCode.NONE


def wrong_with(wanted: NewToken) -> ErrorCode:
    """What no right helps: an owner or a renewer that is no user, or whose name is too long."""
    # Who logs in by SCRAM is a user: by a token of Group:admin one is User:admin, whom the right to
    # make it does not name. Kafka lets that happen. A kind with a colon would be worse: of
    # "User:etl-x" and "admin" the right is that to User:etl-x:admin, which a prefix may give.
    if any(each.kind != USER for each in (wanted.owner, *wanted.renewers)):
        return ErrorCode.INVALID_PRINCIPAL_TYPE
    if any(map(is_too_long, (wanted.owner, wanted.requester, *wanted.renewers))):
        return ErrorCode.POLICY_VIOLATION
    return ErrorCode.NONE


async def change_token(state: State, wanted: TokenRequest) -> TokenOutcome:
    outcome, change = decided(state, wanted)
    if change is not None:
        await write(state, [change])
    return outcome


def decided(state: State, wanted: TokenRequest) -> tuple[TokenOutcome, Change | None]:
    """The outcome, and what is to be written, in the order in which Kafka looks."""
    options = state.options.tokens
    error = error_of(options, state.image)
    if error:
        return TokenOutcome(error), None
    now_ms = state.clock.now_ms()
    if isinstance(wanted, NewToken):
        return creation(state, wanted, now_ms)
    token = state.tokens.find(state.image.tokens, wanted.hmac)
    if token is None:
        return TokenOutcome(ErrorCode.DELEGATION_TOKEN_NOT_FOUND), None
    over = token.is_over(now_ms)
    ours = token.may_be_changed_by(wanted.requester)
    if isinstance(wanted, TokenRenewal):
        if over:
            return TokenOutcome(ErrorCode.DELEGATION_TOKEN_EXPIRED), None
        if not ours:
            return TokenOutcome(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH), None
        new: Token | None = renewed(options, token, wanted.period_ms, now_ms)
    else:
        if not ours:
            return TokenOutcome(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH), None
        new = expiring(token, wanted.period_ms, now_ms)
        if new is not None and over:
            return TokenOutcome(ErrorCode.DELEGATION_TOKEN_EXPIRED), None
    if new is None:
        return TokenOutcome(token=token._replace(expires_ms=now_ms)), TokenGone(token.id)
    return TokenOutcome(token=new), TokenChanged(new)


def creation(
    state: State, wanted: NewToken, now_ms: int
) -> tuple[TokenOutcome, TokenChanged | None]:
    options = state.options.tokens
    error = wrong_with(wanted)
    if error:
        return TokenOutcome(error), None
    token_id = nodes.uuid_text(state.chance.uuid())
    token = issued(
        options,
        token_id,
        wanted.owner,
        wanted.requester,
        wanted.renewers,
        wanted.lifetime_ms,
        now_ms,
    )
    large = len(token_nodes.value_of(token)) > TOKEN_BYTES_MAX
    if large or has_enough(state.image.tokens, wanted.requester):
        return TokenOutcome(ErrorCode.POLICY_VIOLATION), None
    return TokenOutcome(token=token, hmac=options.hmac_of(token_id)), TokenChanged(token)


def has_enough(tokens: Tokens, requester: Principal) -> bool:
    """Whether the cluster keeps no more tokens that this user asks for."""
    if len(tokens) < TOKENS_OF_ONE_MAX:
        return False
    of_one = sum(each.requester == requester for each in tokens.values())
    return of_one >= TOKENS_OF_ONE_MAX or len(tokens) >= TOKENS_MAX


async def remove_expired(state: State) -> None:
    """Remove the tokens that hold no more."""
    if error_of(state.options.tokens, state.image):
        return
    now_ms = state.clock.now_ms()
    over = [each for each in state.image.tokens.values() if each.is_over(now_ms)]
    for start in range(0, len(over), EXPIRED_PER_STEP):
        some = over[start : start + EXPIRED_PER_STEP]
        for each in some:
            log.info("delegation token %s of %s has expired", each.id, each.owner)
        await write(state, [TokenGone(each.id) for each in some])


async def write(state: State, changes: Iterable[Change]) -> None:
    changes = list(changes)
    await state.write([Step([operation_of(state, each) for each in changes], changes)])


def operation_of(state: State, change: Change) -> Operation:
    if isinstance(change, TokenGone):
        return Delete(token_nodes.path_of(change.id))
    assert isinstance(change, TokenChanged)
    path, value = token_nodes.path_of(change.token.id), token_nodes.value_of(change.token)
    return Set(path, value) if change.token.id in state.image.tokens else Create(path, value)
