"""What a user may be called, and what a role may be given for."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .permissions import Grant

USER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}")
GRANTS_MAX = 50
PATTERN_CHARACTERS_MAX = 249  # the longest topic name


class Refused(Exception):
    """What was asked for cannot be, in a sentence for the one who asked."""


def check_user_name(name: str) -> None:
    if not USER_NAME.fullmatch(name):
        raise Refused(
            "A user's name has 1 to 64 characters: letters, digits and . _ @ + -, and begins "
            f"with a letter or digit (got {name[:80]!r})."
        )


def check_grants(grants: Sequence[Grant]) -> None:
    if len(grants) > GRANTS_MAX:
        raise Refused(f"At most {GRANTS_MAX} roles (got {len(grants)}).")
    for grant in grants:
        for what, pattern in (("clusters", grant.clusters), ("topics", grant.topics)):
            if not 0 < len(pattern) <= PATTERN_CHARACTERS_MAX or not pattern.isprintable():
                raise Refused(
                    f"The pattern of {what} has 1 to {PATTERN_CHARACTERS_MAX} printable "
                    f"characters (got {pattern[:80]!r})."
                )
