"""The console's directory and what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.console.config.options import ConfigError
from ottla.console.directory import held

from .whole import ConsoleProcess


def test_a_second_console_on_a_directory_is_refused(tmp_path: Path) -> None:
    """It names the process that has it; when that has ended, however, the next one gets it."""
    with ConsoleProcess(tmp_path, "--bootstrap-server", "127.0.0.1:1", "--no-login") as first:
        with pytest.raises(ConfigError, match=f"another console has .*process {first.pid}"):
            held(tmp_path / "console")
        with pytest.raises(AssertionError, match="another console has"):
            ConsoleProcess(tmp_path, "--bootstrap-server", "127.0.0.1:1", "--no-login").__enter__()
    held(tmp_path / "console").close()


def test_a_directory_that_cannot_be_is_said(tmp_path: Path) -> None:
    """A file in its place is one sentence, and what to try."""
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be used") as error:
        held(tmp_path / "file")
    assert "Try: a directory" in str(error.value)
