"""How long a line takes through an agent, and an agent to its first line."""

from __future__ import annotations

import threading
import time

import confluent_kafka as ck

from benchmarks.agent_peers import Agent
from benchmarks.agent_topics import Topic

PADDING = b"x" * 179 + b"\n"  # behind 20 digits: a line of 200 bytes
QUIET_S = 30.0  # without a record is an error


def reader_of(agent: Agent, topic: Topic, offset: int) -> ck.Consumer:
    consumer = ck.Consumer(
        {
            "bootstrap.servers": agent.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "isolation.level": "read_committed" if agent.once else "read_uncommitted",
        }
    )
    consumer.assign([ck.TopicPartition(topic.name, 0, offset)])
    return consumer


def latencies_ms(agent: Agent, topic: Topic, *, per_second: int, seconds: float) -> list[float]:
    """Milliseconds from the write of each line to its record's arrival at a reader, sorted."""
    total = int(per_second * seconds)
    found: list[float] = []
    consumer = reader_of(agent, topic, topic.end())
    consumer.poll(0.5)

    def read() -> None:
        while len(found) < total:
            message = consumer.poll(QUIET_S)
            if message is None:
                return
            found.append((time.perf_counter_ns() - int(message.value()[:20])) / 1e6)

    reader = threading.Thread(target=read)
    reader.start()
    with (agent.logs / "begin.log").open("ab", buffering=0) as log:
        began = time.perf_counter()
        for sent in range(total):
            due_s = began + sent / per_second - time.perf_counter()
            if due_s > 0:
                time.sleep(due_s)
            log.write(b"%020d" % time.perf_counter_ns() + PADDING)
    reader.join()
    consumer.close()
    agent.check()
    assert len(found) == total, f"{len(found)} of {total} lines came"
    topic.count_new()
    return sorted(found)


def seconds_to_first(agent: Agent, topic: Topic) -> tuple[float, float]:
    """From the start of the process to its first record, and the CPU seconds of that."""
    consumer = reader_of(agent, topic, 0)
    consumer.poll(0.5)
    began = time.perf_counter()
    agent.start()
    while (message := consumer.poll(QUIET_S)) is not None and message.error():
        pass
    taken = time.perf_counter() - began
    agent.check()
    cpu_s = agent.cpu_s()
    consumer.close()
    assert message is not None, f"{agent.title}: nothing came"
    return taken, cpu_s
