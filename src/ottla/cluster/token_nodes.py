"""Delegation tokens in the metadata tree, at the path and in the JSON of Kafka 3. Pure.

/delegation_token/tokens/ID    whose it is and how long it holds; what proves it is kept nowhere
"""

import logging
from collections.abc import Mapping
from urllib.parse import unquote

from ottla.cluster.client_nodes import node_name
from ottla.cluster.nodes import UNEXPECTED, CorruptNode, dump, load
from ottla.security.principal import Principal, parse_principal
from ottla.security.tokens import Token

log = logging.getLogger(__name__)

PARENT = "/delegation_token"
TOKENS = "/delegation_token/tokens"
FIXED = (PARENT, TOKENS)
VERSION = 3
REQUESTER_FROM = 3


def path_of(token_id: str) -> str:
    return f"{TOKENS}/{token_id}"


def value_of(token: Token) -> bytes:
    return dump(
        {
            "version": VERSION,
            "owner": node_name(str(token.owner)),
            "tokenRequester": node_name(str(token.requester)),
            "renewers": [node_name(str(each)) for each in token.renewers],
            "issueTimestamp": token.issued_ms,
            "maxTimestamp": token.max_ms,
            "expiryTimestamp": token.expires_ms,
            "tokenId": token.id,
        }
    )


def read_value(path: str, data: bytes) -> Token:
    value = load(path, data)
    try:
        owner = principal_of(value["owner"])
        asked = value["tokenRequester"] if value["version"] >= REQUESTER_FROM else value["owner"]
        return Token(
            path.rpartition("/")[2],
            owner,
            principal_of(asked),
            tuple(map(principal_of, value["renewers"])),
            int(value["issueTimestamp"]),
            int(value["expiryTimestamp"]),
            int(value["maxTimestamp"]),
        )
    except UNEXPECTED as error:
        raise CorruptNode(path, data, error) from error


def principal_of(text: str) -> Principal:
    return parse_principal(unquote(text, errors="surrogatepass"))


def read_tokens(found: Mapping[str, tuple[bytes, int]]) -> dict[str, Token]:
    """The tokens among these nodes, in the order of their issue; what cannot be read is none."""
    tokens = []
    for path, (data, _) in found.items():
        if path.startswith(TOKENS + "/"):
            try:
                tokens.append(read_value(path, data))
            except CorruptNode as error:
                log.warning("nobody logs in by this delegation token: %s", error)
    return {each.id: each for each in sorted(tokens, key=lambda each: (each.issued_ms, each.id))}
