"""Which broker of a host is the controller: this one while it has the lock, else another.

With the lock of the shared directory this broker opens the tree, starts a controller, and publishes
its address; without it, it reads the address that the holder has published. The lock is tried when
the controller cannot be reached (`look`), and now and then in any case. A process that dies
releases the lock, so the first broker that tries again is the next controller, with an epoch that
has risen. An address may still be that of the controller before: nobody answers there, and whoever
asked looks again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

from ottla.cluster.state import NotController
from ottla.metadata_store.shared import ControllerAddress, SharedDirectory
from ottla.metadata_store.tree import ConnectionLoss, CorruptTree, TreeError
from ottla.seams.waiting import pause

if TYPE_CHECKING:
    from ottla.cluster.controller import Controller
    from ottla.metadata_store.local import LocalTree
    from ottla.seams.clock import Clock, Timer

log = logging.getLogger("ottla.broker")

# Between two attempts while there is no controller, and while there is one.
RETRY_S = 0.05
LOOK_EVERY_S = 1.0
# After a look that somebody asked for and that found nothing new; twice as long each time. A
# process that is killed may end its connections before it releases the lock, and the next
# controller has to open the tree before it can be found.
LOOK_AGAIN_S = 0.01
# The holder of the lock renews it so often within a session time-out.
RENEWALS = 6
# A broker that cannot use the shared directory says so once in so many attempts.
COMPLAIN_EVERY = 100


class Leadership(NamedTuple):
    """This broker as the controller: the tree is closed after the controller was stopped."""

    controller: Controller
    tree: LocalTree


class Campaign:
    """Keeps one broker informed of who is the controller, and makes it the controller if it can be.

    `lead` opens the tree at a path and starts a controller. `on_change` is called after another
    controller was found: with the one in this process, or None.
    """

    def __init__(
        self,
        shared: SharedDirectory,
        clock: Clock,
        *,
        lead: Callable[[str], Awaitable[Leadership]],
        own_address: Callable[[int], ControllerAddress],
        on_change: Callable[[Controller | None], object],
        session_timeout_s: float,
    ) -> None:
        self._shared = shared
        self._clock = clock
        self._lead = lead
        self._own_address = own_address
        self._on_change = on_change
        self._renew_every_s = session_timeout_s / RENEWALS
        self._renewal: Timer | None = None
        self._leadership: Leadership | None = None
        self._address: ControllerAddress | None = None
        self._wanted = asyncio.Event()
        self._asked = False
        self._task: asyncio.Task[None] | None = None
        self._failures = 0

    @property
    def address(self) -> tuple[str, int] | None:
        """Where the controller is, as far as this broker knows."""
        return None if self._address is None else (self._address.host, self._address.port)

    async def start(self, timeout_s: float) -> None:
        """Return when there is a controller. Raises TreeError if there can be none, or is none."""
        end_s = self._clock.monotonic() + timeout_s
        while True:
            await self._try()
            if self._address is not None:
                break
            if self._clock.monotonic() >= end_s:
                raise ConnectionLoss(
                    self._shared.path,
                    f"no controller within {timeout_s:g} s: another process holds the lock and "
                    "does not go on; look for it, and end it if it is suspended",
                )
            await pause(self._clock, RETRY_S)
        self._task = asyncio.create_task(self._keep_looking(), name="campaign")

    def look(self) -> None:
        """The controller cannot be reached: find out whether there is another one."""
        self._asked = True
        self._wanted.set()

    async def close(self) -> None:
        """Look no longer, and be the controller no longer: another broker may be at once."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._resign()

    async def _keep_looking(self) -> None:
        pause_s = LOOK_EVERY_S
        while True:
            timer = self._clock.call_later(pause_s, self._wanted.set)
            await self._wanted.wait()
            timer.cancel()
            self._wanted.clear()
            asked, self._asked, before = self._asked, False, (self._address, self._failures)
            pause_s = LOOK_AGAIN_S if asked else min(2 * pause_s, LOOK_EVERY_S)
            try:
                await self._try()
            except CorruptTree as error:
                self._complain(error)
            except Exception:
                # Another broker may do better; this one goes on as a follower.
                log.exception("this broker cannot become the controller")
            if (self._address, self._failures) != before:
                pause_s = LOOK_EVERY_S  # also after a failure: a tree is not opened all the time

    async def _try(self) -> None:
        """Be the controller, or know the address of whoever is, if there is one."""
        if self._leadership is not None:
            there = self._shared.has_tree
            later = self._later()
            if there and later is None and self._leadership.controller.active:
                return
            if not there:
                log.error("%s is gone: nothing can be changed", self._shared.tree_path)
            if later is not None:
                log.error("broker %d is the controller in this one's place", later.node_id)
            # Replaced by another controller in the tree, or the tree is gone.
            await self._resign()
        try:
            if self._shared.acquire():
                await self._become()
            else:
                self._follow(self._shared.address())
        except CorruptTree:
            await self._resign()
            raise
        except (TreeError, NotController, OSError) as error:
            await self._resign()
            self._complain(error)

    def _later(self) -> ControllerAddress | None:
        """The address of a controller that has replaced this one, if there is one.

        Two brokers never hold the lock, unless an operator has removed its file. The one before
        finds out when it writes; without anything to write it would follow itself for ever.
        """
        found, own = self._shared.address(), self._address
        return found if found is not None and own is not None and found.epoch > own.epoch else None

    def _complain(self, error: Exception) -> None:
        if self._failures % COMPLAIN_EVERY == 0:
            log.error("this broker cannot become the controller: %s", error)
        self._failures += 1

    async def _become(self) -> None:
        self._renew()
        self._leadership = await self._lead(self._shared.tree_path)
        controller = self._leadership.controller
        controller.on_resigned.append(self.look)
        address = self._own_address(controller.image.controller_epoch)
        self._shared.publish(address)
        self._address = address
        self._failures = 0
        log.info("this broker is the controller, with epoch %d", address.epoch)
        self._on_change(controller)

    def _follow(self, address: ControllerAddress | None) -> None:
        if address is None or address == self._address:
            return
        log.info("broker %d is the controller, with epoch %d", address.node_id, address.epoch)
        self._address = address
        self._on_change(None)

    async def _resign(self) -> None:
        if self._renewal is not None:
            self._renewal.cancel()
            self._renewal = None
        leadership, self._leadership = self._leadership, None
        try:
            if leadership is not None:
                self._address = None
                self._on_change(None)
                await leadership.controller.stop()
                await leadership.tree.close()
        finally:
            self._shared.release()

    def _renew(self) -> None:
        try:
            self._shared.renew(self._clock.now_ms())
            if self._leadership is not None and self._address is not None:
                self._shared.publish_again(self._address)
        except OSError as error:
            log.warning("the controller's lock cannot be renewed: %s", error)
        self._renewal = self._clock.call_later(self._renew_every_s, self._renew)
