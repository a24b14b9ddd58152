"""A TCP proxy that cuts a connection between the broker's work and its response.

It understands only Kafka's frame lengths, so that a cut falls between whole requests or answers.
Brokers name their own address in Metadata, so the proxy must listen on what the broker advertises.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading

CHUNK_BYTES = 1 << 16


class CuttingProxy:
    """Forwards `port` to `target`, cutting a connection after a random number of answers."""

    def __init__(self, port: int, target: int, *, seed: int, answers_between_cuts: int) -> None:
        self.target = target
        self.chance = random.Random(seed)
        self.answers_between_cuts = answers_between_cuts
        self.cuts = 0
        self.quiet = threading.Event()
        self.listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self.listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection(("127.0.0.1", self.target))
            except OSError:  # the broker is gone
                client.close()
                continue
            for source, sink, cuts in ((client, broker, False), (broker, client, True)):
                thread = threading.Thread(target=self._pump, args=(source, sink, cuts), daemon=True)
                thread.start()

    def _pump(self, source: socket.socket, sink: socket.socket, cuts: bool) -> None:
        answers_left = self.chance.randint(2, 2 * self.answers_between_cuts)
        with contextlib.suppress(OSError, struct.error):
            while True:
                head = self._exactly(source, 4)
                body = self._exactly(source, struct.unpack(">i", head)[0])
                if cuts and not self.quiet.is_set():
                    answers_left -= 1
                    if answers_left == 0:
                        self.cuts += 1
                        break  # the broker has done the work; the client gets no response
                sink.sendall(head + body)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    @staticmethod
    def _exactly(source: socket.socket, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            data = source.recv(min(CHUNK_BYTES, size - len(parts)))
            if not data:
                raise OSError("closed")
            parts += data
        return bytes(parts)
