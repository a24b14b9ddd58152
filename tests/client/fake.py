"""A broker made of a script: a thread that answers each request with what the test says."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

from ottla.wire.api.api_versions import ApiVersion, ApiVersionsResponse
from ottla.wire.apis import API
from ottla.wire.header import RequestHeader, finish, read_request_header, start_response
from ottla.wire.schema import reader, writer

Answer = Callable[[RequestHeader, Any, "FakeBroker"], Any]


class FakeBroker:
    """Answers by API key; `None` from a handler means silence, `bytes` is sent as it is."""

    def __init__(self, handlers: dict[int, Answer] | None = None) -> None:
        self.handlers: dict[int, Answer] = {18: self.versions, **(handlers or {})}
        self.advertised = {key: api.advertised for key, api in API.items()}
        self.seen: list[tuple[int, int]] = []
        self.connections = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def versions(self, header: RequestHeader, request: Any, broker: FakeBroker) -> Any:
        keys = [
            ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in self.advertised.items()
        ]
        return ApiVersionsResponse(api_keys=keys)

    def __enter__(self) -> FakeBroker:
        return self

    def __exit__(self, *_: object) -> None:
        self.listener.close()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        try:
            with peer:
                while True:
                    size = struct.unpack(">i", peer.recv(4, socket.MSG_WAITALL))[0]
                    frame = memoryview(peer.recv(size, socket.MSG_WAITALL))
                    header = read_request_header(frame)
                    self.seen.append((header.api_key, header.api_version))
                    answer = self._answer(header, frame)
                    if answer is None:
                        continue
                    self.send(peer, answer)
        except (OSError, struct.error):
            return

    def send(self, peer: socket.socket, answer: bytes) -> None:
        peer.sendall(answer)

    def _answer(self, header: RequestHeader, frame: memoryview) -> bytes | None:
        api = API[header.api_key]
        request = None
        if api.serves(header.api_version):
            request, _ = reader(api.request, header.api_version)(frame, header.body_position)
        made = self.handlers[header.api_key](header, request, self)
        if made is None or isinstance(made, bytes):
            return made
        version = header.api_version
        if header.api_key == 18 and made.error_code == 35:
            version = 0
        out = start_response(header.correlation_id, api.flexible_response(version))
        writer(type(made), version)(made, out)
        return bytes(finish(out))
