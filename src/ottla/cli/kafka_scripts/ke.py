"""ke.sh start|stop|restart|status: `ottla console`, for those who come from Kafka-Eagle (EFAK).

It reads KE_HOME/conf/system-config.properties, else conf/system-config.properties or
system-config.properties where it is started; what it keeps and logs lies in KE_HOME/ottla-console,
else in ./ottla-console.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ottla.cli.failure import Failure

from .running import entry

USAGE = "USAGE: ke.sh [start|status|stop|restart] [--config FILE]"
CONFIG = "system-config.properties"
READY = re.compile(r"ottla console ready on (http://\S+/)")
PASSWORD = re.compile(r"Log in as \S+ with \S+, which works once\.")
START_S = 60.0
STOP_S = 30.0
LOOK_S = 0.1
SHOWN_LINES = 5  # of its log, where it did not start


class Place:
    """Where a console of ke.sh has its files."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.data = home / "ottla-console"
        self.pid = self.data / "ke.pid"
        self.log = self.data / "ke_console.out"

    def running(self) -> int | None:
        """The id of its process, if that is still a console."""
        try:
            pid = int(self.pid.read_text())
        except (OSError, ValueError):
            return None
        done = subprocess.run(
            ["ps", "-p", str(pid), "-ww", "-o", "args="],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        return pid if f"ottla console --data-dir {self.data}" in done.stdout else None

    def address(self) -> str | None:
        """What the console of the log's last start said."""
        try:
            text = self.log.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        found = READY.search(text)
        return None if found is None else f"{found[1]}ke"


def run(arguments: Sequence[str]) -> int:
    words = list(arguments)
    config = None
    if "--config" in words[:-1]:
        at = words.index("--config")
        config = Path(words[at + 1])
        del words[at : at + 2]
    actions = {"start": start, "stop": stop, "restart": restart, "status": status}
    if len(words) != 1 or words[0] not in actions:
        print(USAGE, file=sys.stdout if words[:1] in (["--help"], ["-h"]) else sys.stderr)
        return 0 if words[:1] in (["--help"], ["-h"]) else 1
    home = Path(os.environ.get("KE_HOME") or ".").absolute()
    return actions[words[0]](Place(home), config)


def config_of(home: Path) -> Path:
    places = [home / "conf" / CONFIG, home / CONFIG]
    for each in places:
        if each.is_file():
            return each
    raise Failure(
        f"there is no {places[0]}", "KE_HOME set to where conf/ is, or ke.sh start --config FILE"
    )


def start(place: Place, config: Path | None) -> int:
    if (pid := place.running()) is not None:
        print(f"[Ottla console] is running already, process {pid}: {place.address()}")
        return 0
    chosen = config or config_of(place.home)
    place.data.mkdir(parents=True, exist_ok=True, mode=0o700)
    command = [
        sys.executable, "-m", "ottla", "console", "--data-dir", str(place.data),
        "--config", str(chosen.absolute()),
    ]  # fmt: skip
    with place.log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
    place.pid.write_text(str(process.pid))
    address = wait_ready(place, process)
    print("[Ottla console] has started.")
    text = place.log.read_text(encoding="utf-8", errors="replace")
    for line in text.splitlines():
        if " WARNING console: " in line:
            print(f"* {line.partition(' WARNING console: ')[2]}")
    print(f"* Welcome, now you can visit {address}")
    password = PASSWORD.search(text)
    if password is not None:
        print(f"* {password[0]}")
    print("* ke.sh [start|status|stop|restart]")
    return 0


def wait_ready(place: Place, process: subprocess.Popen[bytes]) -> str:
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        ended = process.poll() is not None
        address = place.address()
        # The password is printed right after the address.
        if address is not None and not ended:
            time.sleep(LOOK_S)
            return address
        if ended:
            place.pid.unlink(missing_ok=True)
            lines = place.log.read_text(encoding="utf-8", errors="replace").splitlines()
            last = "\n".join(lines[-SHOWN_LINES:])
            raise Failure(f"the console did not start:\n{last}", f"look at {place.log}")
        time.sleep(LOOK_S)
    raise Failure(f"the console is not ready after {START_S:.0f} s", f"look at {place.log}")


def stop(place: Place, config: Path | None) -> int:
    pid = place.running()
    if pid is None:
        print("[Ottla console] is not running.")
        place.pid.unlink(missing_ok=True)
        return 1
    os.kill(pid, signal.SIGTERM)
    end = time.monotonic() + STOP_S
    while place.running() is not None:
        if time.monotonic() > end:
            raise Failure(f"process {pid} does not end", f"look at {place.log}")
        time.sleep(LOOK_S)
    place.pid.unlink(missing_ok=True)
    print("[Ottla console] has stopped.")
    return 0


def restart(place: Place, config: Path | None) -> int:
    if place.running() is not None:
        stop(place, config)
    return start(place, config)


def status(place: Place, config: Path | None) -> int:
    pid = place.running()
    if pid is None:
        print("[Ottla console] has stopped.")
        return 1
    print(f"[Ottla console] is running, process {pid}: {place.address()}")
    return 0


main = entry(run)
