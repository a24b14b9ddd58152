"""The end of a broker in order: others lead what it led before its clients lose their connections.

Before the server stops to accept requests, the controller is asked to move leadership away, again
and again until all brokers have applied that (KIP-841). A broker that nobody can take over from, or
that finds no controller in time, stops all the same.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from ottla.seams.waiting import pause, within
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.cluster.channel import ControllerChannel

log = logging.getLogger("ottla.broker")

# Then the broker stops, whoever has applied what: those who kill processes give them ten seconds.
SHUTDOWN_S_MAX = 5.0
ASK_AGAIN_S = 0.02
# Nothing was decided: the controller may be on its way to another broker, or has its tree away.
UNDECIDED = (
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.KAFKA_STORAGE_ERROR,
)


async def move_leaders_away(broker: Broker, channel: ControllerChannel) -> None:
    """Return when other brokers lead, or when that takes too long."""
    end_s = broker.clock.monotonic() + SHUTDOWN_S_MAX
    while (left_s := end_s - broker.clock.monotonic()) > 0:
        asked = asyncio.ensure_future(channel.controlled_shutdown(broker.node_id, broker.epoch))
        if not await within(broker.clock, left_s, asked):
            break  # a controller that cannot write now: its tree may be away
        outcome = asked.result()
        if outcome.error_code == ErrorCode.NONE and not outcome.behind:
            return
        if outcome.error_code not in (ErrorCode.NONE, *UNDECIDED):
            name = ErrorCode(outcome.error_code).name
            log.warning("leaders cannot be moved away before the stop: %s", name)
            return
        await pause(broker.clock, ASK_AGAIN_S)
    log.warning("leaders were not all moved away in %g s; stopping all the same", SHUTDOWN_S_MAX)
