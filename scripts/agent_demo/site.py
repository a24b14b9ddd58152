"""A web site that writes nginx's access log, and rotates it: the files are the truth of the demo.

`Site` is a thread. It writes as nginx does: buffers, so that a line may end in the middle and go on
later; and to the renamed file for a moment, until it opens a new one. Files are rotated as
logrotate does by `create` with `delaycompress`: access.log, access.log.1, access.log.2.gz …

`recount` reads all files and counts in plain Python, without the agent's regular expression.
"""

from __future__ import annotations

import contextlib
import gzip
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

LOG = "access.log"
TICK_S = 0.1
PAGES = ["/", "/shoes", "/shirts", "/hats", "/cart", "/search?q=socks", "/images/logo.png"]
STATUS_CODES = {"200": 820, "304": 90, "301": 30, "404": 45, "500": 12, "503": 3}
# Of a thousand lines; TLS sent to a port without TLS, as every public server sees it.
NO_REQUESTS = 4
NOT_A_REQUEST = r'"\x16\x03\x01\x02" 400'
NO_STATUS = "-"


@dataclass
class Lines:
    """What is in the files."""

    lines: Counter[bytes] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    files: list[str] = field(default_factory=list)


class Site(threading.Thread):
    """Writes `rate` lines a second for `seconds` after `opened` is set, some before."""

    def __init__(
        self, directory: Path, rate: float, seconds: float, rotate_s: float, opened: threading.Event
    ) -> None:
        super().__init__(name="site", daemon=True)
        self.directory = directory
        self.rate = rate
        self.seconds = seconds
        self.rotate_s = rotate_s
        self.opened = opened
        self.written = 0  # whole lines
        self.rotations = 0
        self.failure: BaseException | None = None
        self._chance = random.Random(1883)
        self._made = 0
        self._stopped = threading.Event()
        directory.mkdir()

    def stop(self) -> None:
        self._stopped.set()
        if self.is_alive():
            self.join()

    def run(self) -> None:
        try:
            self._write()
        except BaseException as failure:
            self.failure = failure

    def _write(self) -> None:
        log = (self.directory / LOG).open("ab", buffering=0)
        buffer = b""
        ends_s = rotation_s = float("inf")
        while not self._stopped.is_set():
            now_s = time.monotonic()
            if ends_s == float("inf") and self.opened.is_set():
                ends_s, rotation_s = now_s + self.seconds, now_s + self.rotate_s
            # Before it opens, a few lines: they wake Spark up.
            count = self._burst() if ends_s < float("inf") else int(self.written < self.rate)
            buffer += b"".join(self._line() for _ in range(count))
            whole = now_s >= min(ends_s, rotation_s)
            if now_s >= rotation_s and now_s < ends_s:
                rotation_s += self.rotate_s
                rotate(self.directory)
                self.rotations += 1
            # Into the file that is open, though it may have another name since now.
            cut = len(buffer) if whole or not buffer else self._chance.randrange(len(buffer))
            log.write(buffer[:cut])
            self.written += buffer[:cut].count(b"\n")
            buffer = buffer[cut:]
            if now_s >= ends_s:
                break
            if whole:
                log.close()
                log = (self.directory / LOG).open("ab", buffering=0)
            self._stopped.wait(TICK_S)
        log.close()

    def _burst(self) -> int:
        return max(1, round(self.rate * TICK_S * self._chance.uniform(0.5, 1.5)))

    def _line(self) -> bytes:
        self._made += 1
        chance = self._chance
        address = f"203.0.113.{chance.randrange(1, 255)}"
        at = datetime.now().astimezone().strftime("%d/%b/%Y:%H:%M:%S %z")
        if chance.randrange(1000) < NO_REQUESTS:
            request = NOT_A_REQUEST
        else:
            [status] = chance.choices(list(STATUS_CODES), list(STATUS_CODES.values()))
            request = f'"GET {chance.choice(PAGES)} HTTP/1.1" {status}'
        # The last field is the request's number: no two lines are alike.
        size = chance.randrange(200, 30_000)
        return f'{address} - - [{at}] {request} {size} "-" "Mozilla/5.0" {self._made}\n'.encode()


def rotate(directory: Path) -> None:
    """Every file gets the next number; the one that becomes the second is compressed."""
    for number in range(len(list(directory.iterdir())), 0, -1):
        for path in directory.glob(f"{LOG}.{number}*"):
            if path.name == f"{LOG}.1":
                data = gzip.compress(path.read_bytes(), mtime=0)
                half_done = directory / ".compressing"
                half_done.write_bytes(data)
                half_done.rename(directory / f"{LOG}.2.gz")
                path.unlink()
            elif path.name == f"{LOG}.{number}.gz":
                path.rename(directory / f"{LOG}.{number + 1}.gz")
    (directory / LOG).rename(directory / f"{LOG}.1")


def files(directory: Path) -> list[tuple[str, int]]:
    """Names and sizes of the log's files, the newest first."""
    found = []
    for path in directory.glob(f"{LOG}*"):
        with contextlib.suppress(FileNotFoundError):
            found.append((path.name, path.stat().st_size))
    return sorted(found, key=lambda each: (len(each[0].removesuffix(".gz")), each[0]))


def recount(directory: Path) -> Lines:
    """All lines of all files, and the status codes in them."""
    found = Lines()
    for name, _ in files(directory):
        data = (directory / name).read_bytes()
        data = gzip.decompress(data) if name.endswith(".gz") else data
        lines = data.splitlines()
        found.lines.update(lines)
        found.statuses.update(map(status_of, lines))
        found.files.append(name)
    return found


def status_of(line: bytes) -> str:
    """What is behind the request, if there is one: a method, a path and a version."""
    _, request, answer, *_ = line.decode().split('"')
    return answer.split()[0] if len(request.split()) == 3 else NO_STATUS
