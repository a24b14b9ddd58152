"""What parts are made with beside their options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # an agent without a Kafka source does not need it
    from .group_offsets import GroupOffsets


@dataclass(frozen=True)
class Context:
    agent: str
    instance: str  # kept in the data directory
    data_directory: Path
    exactly_once: bool = False  # of a sink: positions go into its transactions
    # Of Kafka sources, by their names.
    groups: Mapping[str, GroupOffsets] = field(default_factory=dict)
