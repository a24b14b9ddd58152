"""An admin that keeps what it was asked to change, and fails on demand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class RecordingAdmin:
    """Answers each method by a value, a function or an exception; `calls` has them in order."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_") or name not in self.answers:
            raise AttributeError(name)

        def call(*given: Any, **options: Any) -> Any:
            self.calls.append((name, given, options))
            answer = self.answers[name]
            if isinstance(answer, Exception):
                raise answer
            return answer(*given, **options) if callable(answer) else answer

        return call

    def changes(self) -> list[tuple[str, tuple[Any, ...], dict[str, Any]]]:
        """The calls that were more than a question or a check."""
        asking = ("describe_", "list_")
        return [
            each
            for each in self.calls
            if not each[0].startswith(asking) and not each[2].get("validate_only")
        ]
