"""The authorizer's log, Kafka's `kafka.authorizer.logger`: denials at INFO, allowances at DEBUG."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

DEBUG: Final = logging.DEBUG
audit: Final = logging.getLogger("ottla.authorizer")

# What `audit.isEnabledFor` remembers until any level changes, asked for without its cost, which is
# a tenth of what a request may cost: False when allowances are certainly not logged, True or None
# when `isEnabledFor` is to be asked.
logs_at: Final[Callable[[int], bool | None]] = getattr(audit, "_cache", {}).get
