"""The socket in an agent's directory that says what the agent does."""

from __future__ import annotations

import asyncio
import socket
import stat
from pathlib import Path

import pytest

from ottla.agent import status_socket
from ottla.agent.status_socket import SOCKET_FILE, NoAgent, StatusServer, address_of, ask


async def status() -> str:
    return '{"agent": "a1"}'


@pytest.mark.parametrize("depth", [0, 4])
def test_it_answers_with_one_object(tmp_path: Path, depth: int) -> None:
    """Only its user may ask. A path that is too long for a socket's address is no obstacle, and
    what a killed agent left is replaced."""
    directory = tmp_path.joinpath(*["x" * 40] * depth)
    directory.mkdir(parents=True, exist_ok=True)

    async def run() -> None:
        for _ in range(2):
            server = StatusServer(directory, status)
            await server.start()
            assert await asyncio.to_thread(ask, directory) == {"agent": "a1"}
            assert stat.S_IMODE((directory / SOCKET_FILE).stat().st_mode) == 0o600
        await server.close()
        assert not (directory / SOCKET_FILE).exists()

    asyncio.run(run())
    with pytest.raises(NoAgent, match="no agent answers"):
        ask(directory)


def test_too_many_that_ask_get_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a limit a connection ends at once, so nobody can pile them up; then it answers
    again."""
    monkeypatch.setattr(status_socket, "EXCHANGES_MAX", 2)

    async def run() -> None:
        going = asyncio.Event()

        async def slow() -> str:
            await going.wait()
            return "{}"

        server = StatusServer(tmp_path, slow)
        await server.start()
        waiting = [asyncio.create_task(received(tmp_path)) for _ in range(5)]
        while sum(task.done() for task in waiting) < 3:
            await asyncio.sleep(0.01)
        going.set()
        assert sorted(await asyncio.gather(*waiting)) == [b"", b"", b"", b"{}\n", b"{}\n"]
        assert await asyncio.to_thread(ask, tmp_path) == {}
        await server.close()

    asyncio.run(run())


async def received(directory: Path) -> bytes:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with address_of(directory) as address:
        connection.connect(address)
    reader, writer = await asyncio.open_unix_connection(sock=connection)
    found = await reader.read()
    writer.close()
    return found


def test_a_directory_that_cannot_have_a_socket(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The agent says that it cannot be asked, and runs."""

    async def run() -> None:
        (tmp_path / SOCKET_FILE).mkdir()
        server = StatusServer(tmp_path, status)
        await server.start()
        await server.close()

    asyncio.run(run())
    assert "cannot ask this agent" in caplog.text
