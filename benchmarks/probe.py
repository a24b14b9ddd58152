"""Latency of one client's small produce requests, measured in a process of its own.

Other work of a benchmark would hold the interpreter's lock, and count as the broker's latency.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
from types import TracebackType

from benchmarks import raw

PAUSE_S = 0.002


class Probe:
    """Produces every 2 ms while the block runs; the latencies in ms are in `taken_ms` after it."""

    def __init__(self, port: int, topic: str) -> None:
        self._arguments = [sys.executable, "-m", "benchmarks.probe", str(port), topic]
        self._process: subprocess.Popen[bytes] | None = None
        self.taken_ms: list[float] = []

    def __enter__(self) -> Probe:
        self._process = subprocess.Popen(
            self._arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process is not None
        output, _ = self._process.communicate()
        if kind is None:
            self.taken_ms = sorted(json.loads(output))

    @property
    def p99_ms(self) -> float:
        return self.taken_ms[len(self.taken_ms) * 99 // 100]


def main() -> None:
    """`python -m benchmarks.probe PORT TOPIC`: until the standard input is closed."""
    port, topic = int(sys.argv[1]), sys.argv[2]
    one = raw.produce_frame(topic, 0, b"x" * 100)
    taken_ms = []
    with raw.connect(port) as sock:
        for _ in range(20):
            sock.sendall(one)
            assert raw.produce_error(raw.receive(sock), topic) == 0
        print("ready", flush=True)
        while not select.select([sys.stdin], [], [], PAUSE_S)[0]:
            began = time.perf_counter()
            sock.sendall(one)
            answer = raw.receive(sock)
            taken_ms.append((time.perf_counter() - began) * 1000)
            assert raw.produce_error(answer, topic) == 0
    print(json.dumps(taken_ms), flush=True)


if __name__ == "__main__":
    main()
