"""The clients' own generator of random numbers, for jitter and for choices that may go either way.

Python's global generator belongs to the application: one that seeds it gets the same numbers with a
client's threads beside it as without.
"""

from __future__ import annotations

import os
from random import Random

RANDOM = Random()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=RANDOM.seed)
