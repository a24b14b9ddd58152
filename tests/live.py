"""`ottla server` as an operator starts it, for tests: `ottla.testing.Broker` without its comforts.

No options but those given, nothing that fails on demand, a port that is known before the start, the
data where the test says, and more arguments and environment if it wants.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from ottla.supervisor.ports import free_port
from ottla.testing import Broker

__all__ = ["Server", "environment_with", "free_port"]


def environment_with(more: Mapping[str, str]) -> dict[str, str]:
    """Ours with more; modules are compiled once and kept, as where the package is installed."""
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, **more}


class Server(Broker):
    """One broker process on loopback; `settings` are Kafka's option names."""

    controlled = False

    def __init__(
        self,
        directory: Path,
        *,
        settings: Mapping[str, object] | None = None,
        arguments: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
        port: int | None = None,
    ) -> None:
        super().__init__(directory=directory.parent)
        self.options = dict(settings or {})
        self.data = directory
        self.arguments = arguments
        self.environment = dict(environment or {})
        self.errors_path = directory.parent / f"{directory.name}.stderr"
        self._address = ("127.0.0.1", port or free_port())

    @property
    def bootstrap(self) -> str:
        return self.bootstrap_servers

    @property
    def directory(self) -> Path:
        return self.data

    def errors(self) -> str:
        """What the server said on stderr so far."""
        return self.logs()

    @property
    def _log_path(self) -> Path:
        return self.errors_path

    def _environment(self) -> dict[str, str]:
        return environment_with(self.environment)

    def _arguments(self) -> list[str]:
        return list(self.arguments)

    def start(self) -> Server:
        super().start()
        return self

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop it, or just end it when the test has failed already."""
        try:
            if kind is None:
                assert self.stop() == 0, self.errors()
        finally:
            self.kill()
