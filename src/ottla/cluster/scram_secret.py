"""What brokers derive salts from for names that have no SCRAM credential: a node of ours. Pure."""

import base64
from collections.abc import Mapping

from ottla.cluster.nodes import CorruptNode
from ottla.metadata_store.tree import Create, Operation

PATH = "/ottla/scram-secret"
SECRET_BYTES = 32


def creation(secret: bytes) -> Operation:
    return Create(PATH, base64.b64encode(secret))


def read(found: Mapping[str, tuple[bytes, int]]) -> bytes:
    """Empty where there is none yet."""
    data, _ = found.get(PATH, (b"", 0))
    try:
        return base64.b64decode(data, validate=True)
    except ValueError:
        raise CorruptNode(PATH, b"[hidden]", ValueError("not base64")) from None
