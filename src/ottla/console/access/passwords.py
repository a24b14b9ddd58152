"""Passwords: scrypt (RFC 7914), rules for new ones, and one-time ones.

A hash bears its own parameters, so that they can be raised later; `verify` of one who does not
exist costs the same as of one who does (`NOBODY`).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
import threading

COST = 2**15  # with BLOCK_SIZE 32 MiB, about 0.1 s
BLOCK_SIZE = 8
PARALLEL = 1
SALT_BYTES = 16
KEY_BYTES = 32
MEMORY_BYTES_MAX = 64 * 1024 * 1024
CHARACTERS_MIN = 10
CHARACTERS_MAX = 256  # more is never hashed
HASHES_AT_ONCE_MAX = 2  # memory of logins that come together
ONE_TIME_BYTES = 12

_turns = threading.BoundedSemaphore(HASHES_AT_ONCE_MAX)


def hash_password(password: str) -> str:
    salt = os.urandom(SALT_BYTES)
    key = _scrypt(password, salt, COST, BLOCK_SIZE, PARALLEL)
    parts = (base64.b64encode(each).decode() for each in (salt, key))
    return "$".join(["scrypt", str(COST), str(BLOCK_SIZE), str(PARALLEL), *parts])


def verify(password: str, hashed: str) -> bool:
    """Whether it is the password; takes as long for a wrong one. Not on the event loop."""
    _, cost, block_size, parallel, salt, key = hashed.split("$")
    if len(password) > CHARACTERS_MAX:
        return False
    found = _scrypt(password, base64.b64decode(salt), int(cost), int(block_size), int(parallel))
    return hmac.compare_digest(found, base64.b64decode(key))


def one_time() -> str:
    return secrets.token_urlsafe(ONE_TIME_BYTES)


def complaint(password: str, user: str) -> str | None:
    """What is wrong with a new password, in a sentence; None if nothing."""
    if len(password) < CHARACTERS_MIN:
        return f"A password has at least {CHARACTERS_MIN} characters (got {len(password)})."
    if len(password) > CHARACTERS_MAX:
        return f"A password has at most {CHARACTERS_MAX} characters."
    if len(set(password)) < 4:
        return "A password has at least four different characters."
    if user.lower() in password.lower() and len(password) < len(user) + CHARACTERS_MIN:
        return "A password is more than the name of the user with a few characters."
    return None


def _scrypt(password: str, salt: bytes, cost: int, block_size: int, parallel: int) -> bytes:
    with _turns:
        return hashlib.scrypt(
            password.encode("utf-8", "surrogatepass"),
            salt=salt,
            n=cost,
            r=block_size,
            p=parallel,
            maxmem=MEMORY_BYTES_MAX,
            dklen=KEY_BYTES,
        )


# The hash of a password that nobody has: to verify against where no such user exists.
NOBODY = "$".join(
    ["scrypt", str(COST), str(BLOCK_SIZE), str(PARALLEL)]
    + [base64.b64encode(b"\0" * size).decode() for size in (SALT_BYTES, KEY_BYTES)]
)
