"""What the comparisons of Python clients share: the command line, and one live Ottla for all."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

from ottla.client.codec.records import COMPILED
from tests.live import Server


def compare(description: str, measure: Callable[[str, int, float], None]) -> None:
    """Run `measure(bootstrap, rounds, scale)` against a server of its own."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="more or fewer records")
    arguments = parser.parse_args()
    print(f"record codec: {'compiled' if COMPILED else 'plain Python'}")
    with tempfile.TemporaryDirectory() as directory, Server(Path(directory) / "data") as server:
        measure(server.bootstrap, arguments.rounds, arguments.scale)
