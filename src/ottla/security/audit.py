"""The authorizer's log, Kafka's `kafka.authorizer.logger`: denials at INFO, allowances at DEBUG."""

from __future__ import annotations

import logging
from typing import Final

DEBUG: Final = logging.DEBUG
audit: Final = logging.getLogger("ottla.authorizer")
