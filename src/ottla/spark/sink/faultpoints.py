"""Places where a test may stop, delay or kill the sink. Without OTTLA_FAULTS they are nothing.

OTTLA_FAULTS names a directory. A file in it called after a point makes that point act once: the
file is taken away, and its text says how: `kill` (SIGKILL to this process), `raise`, or `wait N`
(seconds; the test may do something meanwhile). `NAME.reached` tells the test that it happened.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

DIRECTORY = os.environ.get("OTTLA_FAULTS")


class Fault(RuntimeError):
    """Raised at a point where a test asked for it."""


def reach(point: str) -> None:
    """Do what a test wants to happen here."""
    if DIRECTORY is None:
        return
    order = Path(DIRECTORY, point)
    taken = Path(DIRECTORY, f"{point}.reached")
    try:
        order.rename(taken)  # of several processes only one gets it
    except FileNotFoundError:
        return
    action = taken.read_text().split()
    if action[0] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if action[0] == "wait":
        time.sleep(float(action[1]))
        return
    raise Fault(f"a test wants a failure at {point}")
