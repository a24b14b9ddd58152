"""Noticing changes of files: inotify on real directories, and where it does not work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.agent.files import watching
from ottla.agent.files.watching import (
    Changes,
    InotifyWatcher,
    PollingWatcher,
    file_system_of,
    watcher_for,
)
from tests.waiting import GIVE_UP_S

pytestmark = pytest.mark.skipif(
    not Path("/proc/sys/fs/inotify").exists(), reason="inotify is Linux's"
)


async def noticed(watcher: InotifyWatcher, act: Callable[[], object]) -> Changes:
    """What one action shows, gathered until something came."""
    act()
    changes = await watcher.wait(GIVE_UP_S)
    assert changes.listing or changes.written
    return changes


def test_writes_name_the_file_and_others_ask_for_a_listing(tmp_path: Path) -> None:
    """A write to a known file costs a look at that file alone."""

    async def run() -> None:
        log = tmp_path / "a.log"
        log.touch()
        watcher = InotifyWatcher()
        watcher.watch([str(tmp_path)])
        assert await noticed(watcher, lambda: log.write_text("x")) == Changes({str(log)})
        assert (await noticed(watcher, (tmp_path / "b.log").touch)).listing
        assert (await noticed(watcher, lambda: log.rename(tmp_path / "c.log"))).listing
        assert (await noticed(watcher, (tmp_path / "c.log").unlink)).listing
        assert await watcher.wait(0) == Changes()
        watcher.close()

    asyncio.run(run())


def test_an_overflow_asks_for_a_listing(tmp_path: Path) -> None:
    """What did not fit into the kernel's queue is not known; nothing is missed all the same."""
    queued_max = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if queued_max > 100_000:
        pytest.skip("the queue is too long to fill it quickly")

    async def run() -> None:
        watcher = InotifyWatcher()
        watcher.watch([str(tmp_path)])
        with (tmp_path / "a").open("ab", 0) as one, (tmp_path / "b").open("ab", 0) as other:
            await watcher.wait(GIVE_UP_S)
            for _ in range(queued_max):  # equal events in a row are one, so they alternate
                one.write(b"x")
                other.write(b"x")
        assert (await watcher.wait(GIVE_UP_S)).listing
        watcher.close()

    asyncio.run(run())


def test_a_directory_may_come_later_and_come_again(tmp_path: Path) -> None:
    """It is looked for until it is there, and watched anew when another has its name."""

    async def run() -> None:
        folder = tmp_path / "later"
        watcher = InotifyWatcher()
        watcher.watch([str(folder)])
        folder.mkdir()
        async with asyncio.timeout(GIVE_UP_S):
            while not (await watcher.wait(GIVE_UP_S)).listing:
                pass
        assert (await noticed(watcher, (folder / "a").touch)).listing
        folder.rename(tmp_path / "other")
        folder.mkdir()
        await watcher.wait(GIVE_UP_S)
        assert (await noticed(watcher, (folder / "b").touch)).listing
        watcher.close()

    asyncio.run(run())


def test_a_directory_that_comes_later_while_others_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is looked for all the same, and all is listed now and then: before, a file that was
    written without a pause kept the others from being noticed for ever."""
    monkeypatch.setattr(watching, "MISSING_S", 0.01)

    async def run() -> None:
        later, log = tmp_path / "later", tmp_path / "a.log"
        log.touch()
        watcher = InotifyWatcher()
        watcher.watch([str(tmp_path), str(later)])

        async def listing_after(act: Callable[[], object]) -> None:
            act()
            async with asyncio.timeout(GIVE_UP_S):
                while True:
                    with log.open("a") as file:
                        file.write("x")
                    changes = await watcher.wait(GIVE_UP_S)
                    assert str(log) in changes.written
                    if changes.listing:
                        return

        await listing_after(later.mkdir)
        while (await watcher.wait(0)).listing:
            pass
        await listing_after((later / "b.log").touch)
        monkeypatch.setattr(watching, "RELIST_S", 0.01)
        watcher._relist_at_s = 0.0
        await listing_after(lambda: None)
        watcher.close()

    asyncio.run(run())


def test_all_watchers_share_one_descriptor(tmp_path: Path) -> None:
    """Each notices what happens in its directories, by the names that it knows; one that ends
    leaves the others what they had. Before, each source of an agent had an instance of its own, of
    which a user may have 128: with more, all others looked at their files now and then."""

    async def run() -> None:
        folder, other, link = (tmp_path / name for name in ("folder", "other", "link"))
        folder.mkdir()
        other.mkdir()
        link.symlink_to("folder")
        one, same, by_link, elsewhere = watchers = [InotifyWatcher() for _ in range(4)]
        for watcher, directory in zip(watchers, (folder, folder, link, other), strict=True):
            watcher.watch([str(directory)])
        assert len({watcher._events for watcher in watchers}) == 1
        (folder / "a.log").touch()
        for watcher in one, same, by_link:
            assert (await watcher.wait(GIVE_UP_S)).listing
        await noticed(one, lambda: (folder / "a.log").write_text("x"))
        assert await same.wait(GIVE_UP_S) == Changes({f"{folder}/a.log"})
        assert await by_link.wait(GIVE_UP_S) == Changes({f"{link}/a.log"})
        one.close()
        assert await noticed(same, lambda: (folder / "a.log").write_text("y")) == Changes(
            {f"{folder}/a.log"}
        )
        same.close()
        by_link.close()
        assert elsewhere._events.is_open
        assert await elsewhere.wait(0) == Changes()
        assert (await noticed(elsewhere, (other / "b.log").touch)).listing
        elsewhere.close()
        assert not elsewhere._events.is_open

    asyncio.run(run())


def test_network_file_systems_are_polled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mount that a directory is on decides, the innermost one."""
    mounts = (
        "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
        "23 22 0:40 / /var/my\\040logs rw shared:1 - nfs4 host:/logs rw\n"
        "24 23 0:41 / /var/my\\040logs/here rw - tmpfs tmpfs rw\n"
    )
    assert file_system_of("/var/log", mounts) == "ext4"
    assert file_system_of("/var/my logs/app", mounts) == "nfs4"
    assert file_system_of("/var/my logs/here", mounts) == "tmpfs"
    monkeypatch.setattr("ottla.agent.files.watching.file_system_of", lambda *_: "nfs4")
    assert isinstance(watcher_for(["/var/log"]), PollingWatcher)
