"""The clocks of simulated machines: each its own, from one true time.

A machine's monotonic clock may run faster or slower than true time (`drift_ppm`), its wall clock
may be set either way. Both belong to the machine and survive a crash of the process; timers belong
to the process and its loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.seams.simulated.loop import NS_PER_S

if TYPE_CHECKING:
    import asyncio

    from ottla.seams.simulated.loop import SimulatedLoop

MILLION = 1_000_000
EPOCH_MS = 1_700_000_000_000  # where the wall clocks begin


class MachineTime:
    """What the clocks of one machine show at each moment of true time."""

    __slots__ = (
        "_base_ns",
        "_base_true_ns",
        "_drift_ppm",
        "_true_ns",
        "_wall_offset_ms",
        "on_drift",
    )

    def __init__(self, true_ns: Callable[[], int], wall_ms: int = EPOCH_MS) -> None:
        self._true_ns = true_ns
        self._base_true_ns = true_ns()
        self._base_ns = self._base_true_ns
        self._drift_ppm = 0
        self._wall_offset_ms = float(wall_ms)
        self.on_drift: Callable[[], object] = _nothing

    def monotonic_ns(self) -> int:
        passed_ns = self._true_ns() - self._base_true_ns
        if self._drift_ppm:
            passed_ns = passed_ns * (MILLION + self._drift_ppm) // MILLION
        return self._base_ns + passed_ns

    def now_ms(self) -> int:
        return int(self._wall_offset_ms + self.monotonic_ns() / MILLION)

    def true_ns_at(self, monotonic_ns: int) -> int:
        """The first moment at which the monotonic clock shows at least this."""
        ahead_ns = monotonic_ns - self._base_ns
        if self._drift_ppm:
            ahead_ns = -(-ahead_ns * MILLION // (MILLION + self._drift_ppm))
        return self._base_true_ns + ahead_ns

    def set_drift(self, ppm: int) -> None:
        """Let the machine's clocks gain or lose this many millionths from now on."""
        self._base_ns, self._base_true_ns = self.monotonic_ns(), self._true_ns()
        self._drift_ppm = ppm
        self.on_drift()

    def jump_wall(self, ms: float) -> None:
        """Set the wall clock forward or back, as an operator or NTP would; no timer moves."""
        self._wall_offset_ms += ms


def _nothing() -> None:
    pass


class SimulatedClock:
    """The seam's clock for one process on a simulated machine."""

    __slots__ = ("_loop", "machine_time")

    def __init__(self, loop: SimulatedLoop, machine_time: MachineTime) -> None:
        self._loop = loop
        self.machine_time = machine_time

    def now_ms(self) -> int:
        return self.machine_time.now_ms()

    def monotonic(self) -> float:
        return self.machine_time.monotonic_ns() / NS_PER_S

    def call_later(
        self, delay_s: float, callback: Callable[..., object], *args: object
    ) -> asyncio.TimerHandle:
        return self._loop.call_later(delay_s, callback, *args)

    def jump_wall(self, ms: float) -> None:
        self.machine_time.jump_wall(ms)
