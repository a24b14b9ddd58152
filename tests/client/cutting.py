"""A broker behind a proxy that cuts connections, made ready for a workload."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.client.reading import make_topic
from tests.compat.proxy import CuttingProxy


@contextmanager
def cut_off(
    outside: int, inside: int, topic: str, *, partitions: int, seed: int, answers_between_cuts: int
) -> Iterator[tuple[str, CuttingProxy]]:
    """The address that clients use, and the proxy there, which does not cut yet; the topic is
    made. The broker at `inside` must advertise `outside`."""
    proxy = CuttingProxy(outside, inside, seed=seed, answers_between_cuts=answers_between_cuts)
    bootstrap = f"127.0.0.1:{outside}"
    try:
        proxy.quiet.set()
        make_topic(bootstrap, topic, partitions=partitions)
        yield bootstrap, proxy
    finally:
        proxy.close()
