"""The rules for names of topics, with Kafka's error messages. Pure."""

import re

NAME_LENGTH_MAX = 249
LEGAL = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
SHARE_GROUP_STATE = "__share_group_state"
CLUSTER_METADATA = "__cluster_metadata"
INTERNAL = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE})


def name_error(name: str) -> str | None:
    """Kafka's message for a name that no topic may have; None for a valid one."""
    reason = name_reason(name)
    return None if reason is None else f"Topic name is invalid: {reason}"


def name_reason(name: str) -> str | None:
    """The part of the message after the colon."""
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > NAME_LENGTH_MAX:
        return f"the length of '{name}' is longer than the max allowed length {NAME_LENGTH_MAX}"
    if LEGAL.fullmatch(name) is None:
        return (
            f"'{name}' contains one or more characters other than "
            "ASCII alphanumerics, '.', '_' and '-'"
        )
    return None


def collides(name: str) -> bool:
    """Whether the name has a character (. or _) that is the same as another in metric names."""
    return "." in name or "_" in name


def unified(name: str) -> str:
    """The name as metrics show it: names that are equal here collide."""
    return name.replace(".", "_")
