"""How a producer ends without close(): dropped, forked, or at the end of the interpreter."""

from __future__ import annotations

import atexit
import logging
import os
import weakref
from typing import TYPE_CHECKING

from ..errors import KafkaError
from ..network.cluster_client import ProducerClient
from ..network.io_thread import FORKED
from .sender import Sender

if TYPE_CHECKING:
    from .producer import Producer

log = logging.getLogger("ottla.client")

EXIT_FLUSH_S = 5.0

PRODUCERS: weakref.WeakSet[Producer] = weakref.WeakSet()


def dropped(client: ProducerClient, sender: Sender) -> None:
    """The last reference to a producer is gone without a close()."""
    if not client.closed:
        client.call_soon(sender.abandon)


def _forked() -> None:
    """In a child process: locks may be held by threads that are not there, so touch none."""
    for producer in list(PRODUCERS):
        producer._closed = FORKED
        producer._elaborate = True
    PRODUCERS.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


@atexit.register
def _at_exit() -> None:
    """What a script sent and never flushed is still sent, unless no broker answers."""
    for producer in list(PRODUCERS):
        if producer._client.closed:
            continue
        if producer._sender.incomplete:
            try:
                producer.flush(EXIT_FLUSH_S)
            except KafkaError:
                log.warning("the interpreter ends with records that were not sent")
        producer.close(0)
