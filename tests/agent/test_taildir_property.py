"""Random writes, rotations and restarts against a twin that knows every line: each arrives once."""

from __future__ import annotations

import asyncio
import gzip
import re
import shutil
import tempfile
from collections import Counter
from itertools import count
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.agent.events import EventBatch, Position
from ottla.agent.files.facts import CONFIRM_BYTES
from ottla.agent.files.listing import FileGroup
from ottla.agent.sources.taildir import TaildirOptions, TaildirSource
from tests.agent.files_harness import Collected, Running, Ticks

WHOLE = re.compile(r"<\d+:x*>")  # fragments of lines that a rotation cut in two are not counted
STEPS = [
    "write", "write", "write long", "half a line", "catch up", "catch up", "rename", "rename all",
    "copytruncate", "copytruncate", "compress", "copy", "delete the oldest", "truncate",
    "move away and back", "copytruncate late", "restart", "crash", "rotate while down",
    "replace by a new file",
]  # fmt: skip

# Of two rotated files that the pattern does not have one is deleted.
ONE_IS_GONE = [
    "write", "catch up", "rename all", "catch up", "rename all", "catch up", "delete the oldest",
    "write",
]  # fmt: skip

# What was read is the beginning of a line, which another one takes the place of.
ANOTHER_BEGINNING = ["half a line", "catch up", "copytruncate", "write"]


class Twin:
    """A folder with `a.log` and its rotated files; what the source has delivered."""

    def __init__(self, folder: Path, narrow: bool) -> None:
        """`narrow`: the pattern has `a.log` alone, and rotated files are none of it."""
        self.narrow = narrow
        self.folder = folder
        self.log = folder / "a.log"
        self.log.touch()
        self.numbers = count()
        self.delivered: list[str] = []
        self.positions: dict[str, Position] = {}
        self.undelivered: list[EventBatch] = []

    def line(self, length: int) -> str:
        return f"<{next(self.numbers)}:{'x' * length}>"

    def write(self, text: str) -> None:
        with self.log.open("a") as file:
            file.write(text)

    def rotated(self) -> list[Path]:
        found = [
            path for path in self.folder.iterdir() if re.fullmatch(r"a\.log\.\d+(\.gz)?", path.name)
        ]
        return sorted(found, key=lambda path: int(path.name.split(".")[2]))

    def shift(self) -> Path:
        """Makes a place for the next rotated file."""
        for path in reversed(self.rotated()):
            parts = path.name.split(".")
            parts[2] = str(int(parts[2]) + 1)
            path.rename(self.folder / ".".join(parts))
        return self.folder / "a.log.1"

    def change(self, step: str, amount: int) -> None:
        """What others do to the files."""
        rotated = self.rotated()
        if step == "write":
            self.write("".join(self.line(5) + "\n" for _ in range(amount)))
        elif step == "write long":
            self.write("".join(self.line(400) + "\n" for _ in range(amount)))
        elif step == "half a line":
            self.write(self.line(20)[: 3 + amount])
        elif step in ("rename", "rename all"):
            self.log.rename(self.shift())
            self.log.touch()
            if step == "rename all":
                self.write(self.line(5) + "\n")
        elif step == "copytruncate":
            shutil.copyfile(self.log, self.shift())
            with self.log.open("r+") as file:
                file.truncate()
        elif step == "compress":
            for path in [path for path in rotated if path.suffix != ".gz"][-1:]:
                with gzip.open(f"{path}.gz", "wb") as file:
                    file.write(path.read_bytes())
                path.unlink()
        elif step == "copy" and self.log.stat().st_size >= CONFIRM_BYTES:
            # Less is too little evidence if the original is renamed before the copy is seen.
            shutil.copyfile(self.log, self.folder / f"a.log.copy{next(self.numbers)}")
        elif step == "delete the oldest" and rotated:
            rotated[-1].unlink()
        elif step == "truncate":
            self.log.write_text("")
        elif step == "replace by a new file":
            self.log.unlink()
            self.write(self.line(5) + "\n")

    def on_disk(self) -> set[str]:
        """All whole lines of the files that the pattern has."""
        found: set[str] = set()
        for path in [self.log] if self.narrow else self.folder.iterdir():
            data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
            found.update(line for line in data.decode().split("\n")[:-1] if WHOLE.fullmatch(line))
        return found

    def deliver(self, batches: list[EventBatch]) -> None:
        for batch in batches:
            assert batch.position is not None
            self.positions[batch.position.stream] = batch.position
            self.delivered += [body.decode() for body in batch.bodies]

    def check(self) -> None:
        counts = Counter(line for line in self.delivered if WHOLE.fullmatch(line))
        assert not {line: times for line, times in counts.items() if times > 1}
        assert not self.on_disk() - counts.keys()


async def play(folder: Path, steps: list[tuple[str, int]], narrow: bool) -> None:
    twin = Twin(folder, narrow)
    steps = [*steps, ("catch up", 1)]
    while steps:
        # One run of the source, until a step ends it.
        output = Collected(twin.positions)
        ticks = Ticks()
        group = FileGroup.parse("f1", f"{folder}/a.log{'' if narrow else '.*'}", {})
        options = TaildirOptions(
            [group], batch_size=3, new_watcher=lambda _, ticks=ticks: ticks, clock=ticks.clock
        )
        lost = 0
        after = ""
        async with Running(TaildirSource("r1", options), output):
            while steps and not after:
                step, amount = steps.pop(0)
                if step in ("catch up", "copy", "copytruncate late"):
                    # A short copy of what nobody has read yet is another file.
                    await ticks.caught_up()
                    twin.deliver(output.batches)
                    output.batches.clear()
                    twin.check()
                    twin.change(step, amount)
                    if step == "copytruncate late":
                        # What is written in between is read, and in no copy.
                        shutil.copyfile(twin.log, twin.shift())
                        twin.write("".join(twin.line(5) + "\n" for _ in range(amount)))
                        await ticks.caught_up()
                        twin.log.write_text("")
                elif step == "move away and back":
                    away = folder.parent / f"{folder.name}-away"
                    twin.log.rename(away)
                    await ticks.caught_up()
                    away.rename(twin.log)
                elif step in ("restart", "crash", "rotate while down"):
                    after = step
                    lost = amount if step == "crash" else 0
                else:
                    twin.change(step, amount)
        twin.deliver(output.batches[: max(0, len(output.batches) - lost)])
        if after == "rotate while down":
            for step in ("write", "rename", "write", "copytruncate", "compress", "write")[:amount]:
                twin.change(step, amount)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(1, 6)), max_size=25), st.booleans())
@example([(step, 1) for step in ONE_IS_GONE], True)  # narrow
@example([(step, 1) for step in ANOTHER_BEGINNING], False)
def test_each_line_arrives_once(steps: list[tuple[str, int]], narrow: bool) -> None:
    """Whenever the source has caught up, every line that is on disk was delivered, and none twice;
    also after a crash that lost what the sink had not delivered. Rotated files may be none of the
    pattern's."""
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder) / "logs"
        base.mkdir()
        asyncio.run(play(base, steps, narrow))
