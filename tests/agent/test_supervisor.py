"""An agent that is given another description while it runs: nothing is lost, nothing doubled."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from ottla.agent.build import build
from ottla.agent.config.description import AgentDescription, ConfigError
from ottla.agent.runner import Wiring
from ottla.agent.supervisor import Supervisor
from tests.waiting import GIVE_UP_S

from .config.descriptions import agent_of


class Directory:
    """Where an agent runs, and what its file_roll sinks have written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with closing(socket.create_server(("127.0.0.1", 0))) as server:
            self.port = server.getsockname()[1]

    def agent(self, sink: str = "out", more: str = "") -> AgentDescription:
        """From netcat through memory to files, a whole number to a line."""
        return agent_of(f"""
a1.sources = r1
a1.channels = c1
a1.sinks = k1
a1.sources.r1.type = netcat
a1.sources.r1.bind = 127.0.0.1
a1.sources.r1.port = {self.port}
a1.sources.r1.channels = c1
a1.channels.c1.type = memory
a1.sinks.k1.type = file_roll
a1.sinks.k1.sink.directory = {self.path / sink}
a1.sinks.k1.sink.rollInterval = 0
a1.sinks.k1.channel = c1
{more}
""")

    def lines(self, *sinks: str) -> list[int]:
        return [
            int(line)
            for sink in sinks or ("out",)
            for file in sorted((self.path / sink).glob("*"))
            for line in file.read_text().splitlines()
        ]

    def block(self, sink: str) -> None:
        """From now on a sink that has started cannot write: a file stands for its directory."""
        (self.path / sink).rmdir()
        (self.path / sink).touch()

    def unblock(self, sink: str) -> None:
        (self.path / sink).unlink()
        (self.path / sink).mkdir()

    def build(self, description: AgentDescription) -> Wiring:
        return build(description, self.path, "here")


@pytest.fixture
def here(tmp_path: Path) -> Directory:
    return Directory(tmp_path)


@asynccontextmanager
async def running(here: Directory, description: AgentDescription) -> AsyncIterator[Supervisor]:
    supervisor = Supervisor(description, here.build, "here")
    task = asyncio.create_task(supervisor.run())
    try:
        async with asyncio.timeout(GIVE_UP_S):
            yield supervisor
    finally:
        ended = task.done()
        task.cancel()
        [result] = await asyncio.gather(task, return_exceptions=True)
        if ended and isinstance(result, BaseException):
            raise result


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(GIVE_UP_S):
        while not condition():
            await asyncio.sleep(0.01)


async def connected(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    while True:
        try:
            return await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            await asyncio.sleep(0.01)


async def say(connection: tuple[asyncio.StreamReader, asyncio.StreamWriter], number: int) -> None:
    """Until the source has answered, so the channel has it."""
    reader, writer = connection
    writer.write(b"%d\n" % number)
    assert await reader.readline() == b"OK\n"


def test_a_connection_lasts_through_reloads(here: Directory) -> None:
    """A client of netcat sends on while the sink changes 20 times: the connection stays, and each
    line is in one of the directories, once."""

    async def run() -> None:
        sinks = ["one", "two"]
        async with running(here, here.agent("one")) as supervisor:
            connection = await connected(here.port)
            ended = False
            sent = 0

            async def send() -> None:
                nonlocal sent
                while not ended:
                    await say(connection, sent)
                    sent += 1

            sending = asyncio.create_task(send())
            for turn in range(1, 21):
                at = sent
                await until(lambda at=at: sent > at)  # type: ignore[misc]
                assert await supervisor.reload(here.agent(sinks[turn % 2]))
            ended = True
            await sending
            await until(lambda: len(here.lines(*sinks)) >= sent)
            connection[1].close()
        assert sorted(here.lines(*sinks)) == list(range(sent))
        assert here.lines("one")
        assert here.lines("two")

    asyncio.run(run())


def test_a_component_that_does_not_change_goes_on(here: Directory) -> None:
    """Another source with a channel and a sink of its own comes and goes; the parts of the first
    one are the same ones all the time."""
    other = f"""
a1.sources = r1 r2
a1.channels = c1 c2
a1.sinks = k1 k2
a1.sources.r2.type = seq
a1.sources.r2.totalEvents = 5
a1.sources.r2.channels = c2
a1.channels.c2.type = memory
a1.sinks.k2.type = file_roll
a1.sinks.k2.sink.directory = {here.path / "other"}
a1.sinks.k2.channel = c2
"""

    async def run() -> None:
        async with running(here, here.agent()) as supervisor:
            connection = await connected(here.port)
            await say(connection, 1)
            [first] = supervisor.status().sources
            assert await supervisor.reload(here.agent(more=other))
            await until(lambda: len(here.lines("other")) == 5)
            assert supervisor.status().sources[0].started_ms == first.started_ms
            assert not await supervisor.reload(here.agent(more=other))
            assert await supervisor.reload(here.agent())
            await say(connection, 2)
            assert [each.started_ms for each in supervisor.status().sources] == [first.started_ms]
            assert supervisor.status().reloads == 2
            await until(lambda: len(here.lines()) == 2)

    asyncio.run(run())
    assert here.lines() == [1, 2]


def test_what_could_not_be_delivered_goes_to_the_new_channel(
    here: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sink that cannot write is mended by a reload: what was in memory is delivered then, once,
    also what is more than the channel's capacity."""
    monkeypatch.setattr("ottla.agent.supervisor.DRAIN_S", 0.05)
    small = "a1.channels.c1.capacity = 3\n"

    async def run() -> None:
        async with running(here, here.agent("bad", small)) as supervisor:
            connections = [await connected(here.port) for _ in range(6)]
            here.block("bad")
            saying = [
                asyncio.create_task(say(connection, number))
                for number, connection in enumerate(connections)
            ]
            await until(lambda: supervisor.status().sources[0].events_received == 6)
            await until(lambda: supervisor.status().sinks[0].failures)
            assert await supervisor.reload(here.agent("out", small))
            await asyncio.gather(*saying)
            await until(lambda: len(here.lines()) >= 6)

    asyncio.run(run())
    assert sorted(here.lines()) == list(range(6))


def test_a_channel_that_goes_is_emptied_first(
    here: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events of netcat in a channel that the new description does not have: the reload waits
    until its sink has them, however long that takes."""
    monkeypatch.setattr("ottla.agent.supervisor.DRAIN_S", 0.01)

    async def run() -> None:
        async with running(here, here.agent("bad")) as supervisor:
            connection = await connected(here.port)
            here.block("bad")
            await say(connection, 1)
            text = agent_of(f"""
a1.sources = r1
a1.channels = c9
a1.sinks = k1
a1.sources.r1.type = netcat
a1.sources.r1.bind = 127.0.0.1
a1.sources.r1.port = {here.port}
a1.sources.r1.channels = c9
a1.channels.c9.type = memory
a1.sinks.k1.type = file_roll
a1.sinks.k1.sink.directory = {here.path / "out"}
a1.sinks.k1.channel = c9
""")
            reloading = asyncio.create_task(supervisor.reload(text))
            await asyncio.sleep(0.1)
            assert not reloading.done()
            here.unblock("bad")
            assert await reloading
            await say(connection, 2)
            await until(lambda: here.lines())

    asyncio.run(run())
    assert (here.lines("bad"), here.lines()) == ([1], [2])


def test_what_fails_after_a_reload_is_taken_back(here: Directory) -> None:
    """A port that another program has: the description before runs again, and takes events."""

    async def run() -> None:
        with closing(socket.create_server(("127.0.0.1", 0))) as taken:
            port = taken.getsockname()[1]
            async with running(here, here.agent()) as supervisor:
                await connected(here.port)
                before = supervisor.description
                moved = here.agent(more=f"a1.sources.r1.port = {port}")
                assert await supervisor.reload(moved)
                await until(lambda: supervisor.description is before)
                await say(await connected(here.port), 7)
                await until(lambda: here.lines() == [7])

    asyncio.run(run())


def test_what_fails_without_a_reload_ends_the_agent(here: Directory) -> None:
    """The port is taken when the agent starts."""

    async def run() -> None:
        with closing(socket.create_server(("127.0.0.1", here.port))):
            await Supervisor(here.agent(), here.build, "here").run()

    with pytest.raises(OSError, match="in use"):
        asyncio.run(run())


def test_parts_that_cannot_be_made_change_nothing(here: Directory) -> None:
    """An interceptor whose function is not there: the reload says so, and the agent goes on."""
    bad = """
a1.sources.r1.interceptors = i1
a1.sources.r1.interceptors.i1.type = python
a1.sources.r1.interceptors.i1.function = nothing_like_it:at_all
"""

    async def run() -> None:
        async with running(here, here.agent()) as supervisor:
            connection = await connected(here.port)
            with pytest.raises(ConfigError):
                await supervisor.reload(here.agent(more=bad))
            await say(connection, 1)
            await until(lambda: here.lines() == [1])

    asyncio.run(run())


def test_a_source_that_gave_up_starts_again_when_asked(here: Directory) -> None:
    """spooldir ends when its directory is not there; mended, a reload that retries starts it, and
    one that does not, changes nothing."""
    spool = here.path / "spool"
    described = agent_of(f"""
a1.sources = r1
a1.channels = c1
a1.sinks = k1
a1.sources.r1.type = spooldir
a1.sources.r1.spoolDir = {spool}
a1.sources.r1.channels = c1
a1.channels.c1.type = memory
a1.sinks.k1.type = file_roll
a1.sinks.k1.sink.directory = {here.path / "out"}
a1.sinks.k1.channel = c1
""")

    async def run() -> None:
        async with running(here, described) as supervisor:
            source = supervisor._components[0].wiring.sources[0][0]
            await until(lambda: getattr(source, "failure", None))
            spool.mkdir()
            (spool / "a").write_text("1\n2\n")
            assert not await supervisor.reload(described)
            assert await supervisor.reload(described, retry=True)
            await until(lambda: len(here.lines()) == 2)

    asyncio.run(run())
    assert here.lines() == [1, 2]


def test_a_file_channel_that_goes_is_emptied_before_it_has_started(here: Directory) -> None:
    """Two reloads at once, the second of which replaces a file channel that has not read its files
    yet: what they hold is delivered first, for nobody would open them again."""
    durable = "a1.channels.c1.type = file\n"

    async def run() -> None:
        async with running(here, here.agent("bad", durable)) as supervisor:
            connection = await connected(here.port)
            here.block("bad")
            await say(connection, 1)
            first = asyncio.create_task(supervisor.reload(here.agent("out", durable)))
            second = asyncio.create_task(supervisor.reload(here.agent("memory")))
            assert await first
            assert await second
            assert here.lines() == [1]

    asyncio.run(run())
    assert here.lines("memory") == []
