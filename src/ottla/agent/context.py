"""What parts are made with beside their options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Context:
    agent: str
    instance: str  # kept in the data directory
    data_directory: Path
    exactly_once: bool = False  # of a sink: positions go into its transactions
