"""SASL/SCRAM (RFC 5802, 7677) with SHA-256 and SHA-512, as Kafka uses it: without channel binding.

With the extension `tokenauth=true` the name is the id of a delegation token, the password its HMAC
in Base64, and who logs in is the token's owner (KIP-48).

The broker keeps neither passwords nor what would do to log in elsewhere: salt, stored key, server
key and iterations. A name that has no credential is answered like one that has, with a salt derived
from a secret of the broker, until its proof fails: who asks learns nothing about names.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import islice
from typing import NamedTuple

from ottla.security.credentials import HASHES, ITERATIONS_MIN, Credential
from ottla.security.principal import user
from ottla.security.sasl.mechanism import Authenticated, AuthenticationFailed, BadCredentials

ASKED_ITERATIONS_MAX = 1_000_000  # of what a broker asks a client to compute
NONCE_BYTES = 24
SALT_BYTES = 16
NO_BINDING = b"n,,"
TOKEN_EXTENSION = "tokenauth"  # also in lines of JAAS
KEPT_MAX = 10_000  # credentials of tokens; at more, all are made again
LETTERS = b"0123456789abcdefghijklmnopqrstuvwxyz"

_FIRST = re.compile(
    r"n,(?:a=(?P<authorization>(?:[^=,]|=2C|=3D)+))?,"
    r"(?P<bare>n=(?P<name>(?:[^=,]|=2C|=3D)+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?P<more>,.*)?)"
)
_FINAL = re.compile(
    r"(?P<bare>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,[^,]+)*?)"
    r",p=(?P<proof>[A-Za-z0-9+/=]+)"
)
_CHALLENGE = re.compile(
    r"r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+),s=(?P<salt>[A-Za-z0-9+/=]+),i=(?P<iterations>[0-9]{1,9})"
    r"(?:,.*)?"
)


def credential(mechanism: str, password: str, salt: bytes, iterations: int) -> Credential:
    salted = hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)
    return credential_of_salted(mechanism, salted, salt, iterations)


def credential_of_salted(
    mechanism: str, salted_password: bytes, salt: bytes, iterations: int
) -> Credential:
    """From the salted password, which is what AlterUserScramCredentials carries (KIP-554)."""
    hash_name = HASHES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", hash_name)
    server_key = hmac.digest(salted_password, b"Server Key", hash_name)
    stored_key = hashlib.new(hash_name, client_key).digest()
    return Credential(salt, stored_key, server_key, iterations)


class Shape(NamedTuple):
    """What a client sees of a credential without knowing it: the form of the salt, and the work."""

    salt_bytes: int
    letters: bool  # Kafka's tools make salts of digits and small letters
    iterations: int


USUAL_SHAPE = Shape(SALT_BYTES, letters=False, iterations=ITERATIONS_MIN)
LOOKED_AT_MAX = 1_000  # credentials


def shape_of(value: Credential) -> Shape:
    return Shape(len(value.salt), not value.salt.translate(None, LETTERS), value.iterations)


def usual_shape(kept: Iterable[Credential]) -> Shape:
    """That of most credentials, so that a made-up one does not stand out."""
    shapes = Counter(map(shape_of, islice(kept, LOOKED_AT_MAX)))
    return max(shapes, key=lambda each: (shapes[each], each)) if shapes else USUAL_SHAPE


def salt_of(digest: bytes, shape: Shape) -> bytes:
    """A salt of that form, always the same for the same digest."""
    stream = hashlib.shake_256(digest).digest(shape.salt_bytes)
    if not shape.letters:
        return stream
    return bytes(LETTERS[each % len(LETTERS)] for each in stream)


def is_by_token(extensions: str | None) -> bool:
    """Whether the client says so, as Java reads it."""
    given = dict(each.partition("=")[::2] for each in (extensions or "").split(",") if each)
    return given.get(TOKEN_EXTENSION, "").lower() == "true"


def random_nonce() -> str:
    return secrets.token_urlsafe(NONCE_BYTES)


class TokenLogin(NamedTuple):
    """What a delegation token logs in as, and until when."""

    owner: str
    password: str
    expires_ms: int

    def __repr__(self) -> str:
        return f"TokenLogin({self.owner}, [hidden], {self.expires_ms})"


class TokenCredentials:
    """The credentials of delegation tokens: made at their first login, and kept for the next."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], Credential] = {}  # by mechanism and id

    def of(self, mechanism: str, token_id: str, password: str, salt: bytes) -> Credential:
        """Costs some milliseconds when it is made. The password of an id is always the same: it
        follows from the key of the broker."""
        kept = self._kept.get((mechanism, token_id))
        if kept is None or kept.salt != salt:
            if len(self._kept) >= KEPT_MAX:
                self._kept.clear()
            kept = credential(mechanism, password, salt, ITERATIONS_MIN)
            self._kept[mechanism, token_id] = kept
        return kept


class ScramServer:
    def __init__(
        self,
        mechanism: str,
        find: Callable[[str], Credential | None],
        secret: bytes,
        nonce: str | None = None,
        shape: Shape = USUAL_SHAPE,
        find_token: Callable[[str], TokenLogin | None] = lambda token_id: None,
        token_credentials: TokenCredentials | None = None,
    ) -> None:
        """`secret` gives names without a credential a salt that stays the same, and `shape` is
        what that salt looks like. `find_token` knows the delegation tokens that hold."""
        self._mechanism = mechanism
        self._hash = HASHES[mechanism]
        self._find = find
        self._secret = secret
        self._shape = shape
        self._nonce = nonce or random_nonce()
        self._name = ""
        self._known = False
        self._find_token = find_token
        self._token_credentials = token_credentials or TokenCredentials()
        self._token: TokenLogin | None = None
        self._credential: Credential | None = None
        self._first_bare = self._challenge = ""

    def answer(self, token: bytes) -> tuple[bytes, Authenticated | None]:
        try:
            text = str(token, "utf-8")
        except UnicodeDecodeError:
            raise BadCredentials("a SCRAM message is not UTF-8") from None
        return self._final(text) if self._credential is not None else (self._begin(text), None)

    def _begin(self, text: str) -> bytes:
        found = _FIRST.fullmatch(text)
        if found is None:
            raise BadCredentials("the first SCRAM message of the client is malformed")
        self._name = _unescaped(found["name"])
        if found["authorization"] and _unescaped(found["authorization"]) != self._name:
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
        if is_by_token(found["more"]):
            self._credential = self._credential_of_token()
        else:
            kept = self._find(self._name)
            self._known = kept is not None
            self._credential = kept or self._made_up(self._name, self._shape)
        self._nonce = found["nonce"] + self._nonce
        self._first_bare = found["bare"]
        salt = base64.b64encode(self._credential.salt).decode()
        self._challenge = f"r={self._nonce},s={salt},i={self._credential.iterations}"
        return self._challenge.encode()

    def _made_up(self, name: str, shape: Shape) -> Credential:
        digest = hmac.digest(self._secret, f"{self._mechanism}:{name}".encode(), "sha512")
        size = hashlib.new(self._hash).digest_size
        return Credential(salt_of(digest, shape), digest[:size], digest[:size], shape.iterations)

    def _credential_of_token(self) -> Credential:
        """With a salt that a token has whether or not there is one of that id."""
        made_up = self._made_up(f"token:{self._name}", USUAL_SHAPE)
        token = self._token = self._find_token(self._name)
        self._known = token is not None
        if token is None:
            return made_up
        return self._token_credentials.of(self._mechanism, self._name, token.password, made_up.salt)

    def _final(self, text: str) -> tuple[bytes, Authenticated | None]:
        kept = self._credential
        assert kept is not None
        found = _FINAL.fullmatch(text)
        if found is None:
            raise BadCredentials("the final SCRAM message of the client is malformed")
        try:
            proof = base64.b64decode(found["proof"], validate=True)
            binding = base64.b64decode(found["binding"], validate=True)
        except binascii.Error:
            raise BadCredentials("the final SCRAM message of the client is malformed") from None
        if not hmac.compare_digest(found["nonce"].encode(), self._nonce.encode()):
            raise BadCredentials("the nonce of the final SCRAM message is another")
        if binding[:2] != NO_BINDING[:2] or len(proof) != len(kept.stored_key):
            raise BadCredentials("the final SCRAM message of the client is malformed")
        message = f"{self._first_bare},{self._challenge},{found['bare']}".encode()
        signature = hmac.digest(kept.stored_key, message, self._hash)
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        stored = hashlib.new(self._hash, client_key).digest()
        if not hmac.compare_digest(stored, kept.stored_key) or not self._known:
            raise BadCredentials("the proof of the client is wrong, or the user unknown")
        server_signature = hmac.digest(kept.server_key, message, self._hash)
        final = b"v=" + base64.b64encode(server_signature)
        if self._token is not None:
            return final, Authenticated(user(self._token.owner), self._token.expires_ms, True)
        return final, Authenticated(user(self._name))


class ScramClient:
    def __init__(
        self,
        mechanism: str,
        name: str,
        password: str,
        nonce: str | None = None,
        *,
        by_token: bool = False,
    ) -> None:
        """`by_token`: name and password are those of a delegation token."""
        self._mechanism = mechanism
        self._hash = HASHES[mechanism]
        self._password = password
        self._nonce = nonce or random_nonce()
        extension = f",{TOKEN_EXTENSION}=true" if by_token else ""
        self._bare = f"n={_escaped(name)},r={self._nonce}{extension}"
        self._server_signature: bytes | None = None

    def first(self) -> bytes:
        return NO_BINDING + self._bare.encode()

    def answer(self, challenge: bytes) -> bytes | None:
        text = str(challenge, "utf-8", "replace")
        if self._server_signature is not None:
            self._check_server(text)
            return None
        found = _CHALLENGE.fullmatch(text)
        if found is None or not found["nonce"].startswith(self._nonce):
            raise AuthenticationFailed("the broker's SCRAM message is malformed")
        iterations = int(found["iterations"])
        if not ITERATIONS_MIN <= iterations <= ASKED_ITERATIONS_MAX:
            raise AuthenticationFailed(
                f"the broker asks for {iterations} iterations, and they must be between "
                f"{ITERATIONS_MIN} and {ASKED_ITERATIONS_MAX}"
            )
        try:
            salt = base64.b64decode(found["salt"], validate=True)
        except binascii.Error:
            raise AuthenticationFailed("the broker's SCRAM message is malformed") from None
        salted = hashlib.pbkdf2_hmac(self._hash, self._password.encode(), salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        server_key = hmac.digest(salted, b"Server Key", self._hash)
        bare = f"c={base64.b64encode(NO_BINDING).decode()},r={found['nonce']}"
        message = f"{self._bare},{text},{bare}".encode()
        stored = hashlib.new(self._hash, client_key).digest()
        signature = hmac.digest(stored, message, self._hash)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._server_signature = hmac.digest(server_key, message, self._hash)
        return f"{bare},p={base64.b64encode(proof).decode()}".encode()

    def _check_server(self, text: str) -> None:
        assert self._server_signature is not None
        expected = b"v=" + base64.b64encode(self._server_signature)
        given = text.partition(",")[0].encode()
        if text.startswith("e="):
            raise AuthenticationFailed(f"the broker refused the login: {text[2:]}")
        if not hmac.compare_digest(expected, given):
            raise AuthenticationFailed(
                "the broker could not prove that it knows the credential: it may be another's"
            )


def _escaped(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")
