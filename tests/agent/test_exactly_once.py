"""An agent on a real broker: what arrives, once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Callable

import pytest

from ottla.agent.channels.memory import MemoryChannel
from ottla.agent.delivery import Delivery
from ottla.agent.events import FORGET, EventBatch, Position
from ottla.agent.output import SourceOutput
from ottla.agent.parts import FencedError, PartError
from ottla.agent.positions import PARTITIONS, TOPIC, SinkIdentity
from ottla.agent.runner import Wiring, run_agent
from ottla.agent.sinks.kafka import KafkaSink
from ottla.agent.sources.seq import SequenceSource
from ottla.client.admin import Admin
from ottla.client.admin.types import NewTopic
from ottla.client.errors import KafkaError
from ottla.client.producer.producer import Producer
from ottla.testing.broker import Broker
from tests.agent.reading import numbers
from tests.apache.kafka import ApacheKafka


def exactly_once_sink(bootstrap: str, topic: str, instance: str = "here") -> KafkaSink:
    options = {"bootstrap.servers": bootstrap, "request.timeout.ms": 5000}
    return KafkaSink("k1", topic, options, SinkIdentity(instance, topic, "k1"))


def wiring(bootstrap: str, topic: str, events_total: int, instance: str = "here") -> Wiring:
    channel = MemoryChannel("c1", 1000, 1 << 20)
    sink = exactly_once_sink(bootstrap, topic, instance)
    source = SequenceSource("r1", 10, events_total)
    return Wiring(
        [(source, SourceOutput([channel], []), [channel])], [channel], [Delivery(sink, channel, 25)]
    )


async def run_until(made: Callable[[], Wiring], offset: int) -> None:
    """Runs the agent until its sink has delivered so far, then cancels it."""
    wired = made()
    running = asyncio.create_task(run_agent(wired))
    [delivery] = wired.deliveries
    while not any(position.offset >= offset for position in delivery.positions.values()):
        assert not running.done(), running.exception()
        await asyncio.sleep(0.01)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


def numbered(first: int, last: int) -> EventBatch:
    """A batch of the numbers from `first` up to before `last`."""
    return EventBatch(
        [b"%d" % number for number in range(first, last)],
        position=Position("r1/numbers", last),
        ends=range(first + 1, last + 1),
    )


def restarted_agent(bootstrap: str, topic: str) -> None:
    asyncio.run(run_until(lambda: wiring(bootstrap, topic, 1000), 100))
    asyncio.run(run_until(lambda: wiring(bootstrap, topic, 1000), 1000))
    assert numbers(bootstrap, topic) == list(range(1000))


def test_a_restarted_agent_continues_where_its_sink_committed(ottla_broker: Broker) -> None:
    """The position is in the transaction: cancelled and started again, each number arrives once."""
    restarted_agent(ottla_broker.bootstrap_servers, "agent-numbers")


@pytest.mark.apache
def test_a_restarted_agent_continues_on_apache_kafka(apache_kafka: ApacheKafka) -> None:
    """The same on Apache Kafka: the positions are in a topic that it compacts."""
    restarted_agent(apache_kafka.bootstrap, "agent-numbers")


def test_two_instances_of_one_file_do_not_fence_each_other(ottla_broker: Broker) -> None:
    """Each has positions of its own: both deliver all."""
    bootstrap, topic = ottla_broker.bootstrap_servers, "agent-two-instances"

    async def both() -> None:
        await asyncio.gather(
            *(
                run_agent(wiring(bootstrap, topic, 300, instance), until_drained=True)
                for instance in ("web1", "web2")
            )
        )

    asyncio.run(both())
    found = numbers(bootstrap, topic)
    assert sorted(found) == sorted([*range(300), *range(300)])


def test_an_older_process_of_the_instance_is_fenced(ottla_broker: Broker) -> None:
    """The older one ends with a sentence; the newer one goes on, and nothing is doubled."""
    bootstrap, topic = ottla_broker.bootstrap_servers, "agent-fenced"
    old, new = (exactly_once_sink(bootstrap, topic) for _ in range(2))
    old.start()
    old.deliver([numbered(0, 5)])
    assert new.start()["r1/numbers"].offset == 5
    with pytest.raises(Exception, match=r"epoch|fenced"):
        old.deliver([numbered(5, 10)])
    with pytest.raises(FencedError, match="another agent"):
        old.recover()
    with pytest.raises(Exception, match=r"epoch|fenced"):
        new.deliver([numbered(5, 10)])
    assert new.recover()["r1/numbers"].offset == 5
    new.deliver([numbered(5, 10)])
    assert numbers(bootstrap, topic) == list(range(10))
    old.stop()
    new.stop()


@pytest.mark.parametrize("fault", ["answer lost", "request lost"])
def test_a_commit_without_an_answer_is_settled_before_going_on(
    ottla_own_broker: Broker, fault: str
) -> None:
    """The position that is committed says whether it happened: nothing is doubled or lost."""
    bootstrap, topic = ottla_own_broker.bootstrap_servers, "agent-unknown"
    prepared = exactly_once_sink(bootstrap, topic)  # makes the topics, however long that takes
    prepared.start()
    prepared.stop()
    options = {"bootstrap.servers": bootstrap, "max.block.ms": 1000, "retry.backoff.ms": 10}
    sink = KafkaSink("k1", topic, options, SinkIdentity("here", topic, "k1"))
    sink.start()
    sink.deliver([numbered(0, 5)])
    if fault == "answer lost":
        ottla_own_broker.delay("EndTxn", 10_000, times=10)
    else:
        ottla_own_broker.disconnect("EndTxn", times=None)
    with pytest.raises(Exception, match=r"not known|no answer"):
        sink.deliver([numbered(5, 10)])
    ottla_own_broker.clear_faults()
    held = sink.recover()["r1/numbers"].offset
    assert held == (10 if fault == "answer lost" else 5)
    rest = numbered(5, 10).beyond(held)
    if rest is not None:
        sink.deliver([rest])
    sink.deliver([numbered(10, 12)])
    assert numbers(bootstrap, topic) == list(range(12))
    sink.stop()


def test_another_agents_open_transaction_hides_no_position(ottla_own_broker: Broker) -> None:
    """It holds back the last stable offset of the topic of positions: a start waits for it."""
    bootstrap, topic = ottla_own_broker.bootstrap_servers, "agent-hidden"
    first = exactly_once_sink(bootstrap, topic)
    first.start()
    other = Producer(
        bootstrap_servers=bootstrap, transactional_id="other", transaction_timeout_ms=2000
    )
    other.init_transactions()
    other.begin_transaction()
    for partition in other.partitions_for("__ottla_agent_positions"):
        key = b'["x", "x", "x", "x/x"]'
        other.send("__ottla_agent_positions", b"{}", key, partition=partition).get(10)
    first.deliver([numbered(0, 5)])
    first.stop()
    ending = threading.Timer(0.5, other.abort_transaction)
    ending.start()
    second = exactly_once_sink(bootstrap, topic)
    assert second.start()["r1/numbers"].offset == 5
    second.stop()
    ending.join()
    other.close()


def test_what_becomes_of_the_topic_of_positions(ottla_own_broker: Broker) -> None:
    """More partitions change nothing (all files were read again before). One that is deleted while
    the agent runs ends it with a sentence, not with another one's fence; one that would delete
    positions is refused."""
    bootstrap, topic = ottla_own_broker.bootstrap_servers, "agent-positions"
    sinks = {name: exactly_once_sink(bootstrap, topic, name) for name in ("web1", "web2", "web3")}
    for sink in sinks.values():
        sink.start()
        sink.deliver([numbered(0, 5)])
        sink.stop()
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_partitions({TOPIC: 2 * PARTITIONS})
        again = [exactly_once_sink(bootstrap, topic, name) for name in sinks]
        assert [sink.start()["r1/numbers"].offset for sink in again] == [5, 5, 5]
        admin.delete_topics([TOPIC])
        admin.create_topics([NewTopic(TOPIC, 1, 1)])
    for sink in again:
        with pytest.raises(PartError, match="deleted or emptied while the agent ran"):
            recovered_once_known(sink)
        sink.stop()
    late = exactly_once_sink(bootstrap, topic)
    with pytest.raises(PartError, match=r"cleanup.policy=delete.*\n.*cleanup.policy=compact"):
        late.start()
    late.stop()


def test_records_of_others_in_the_topic_of_positions(
    ottla_broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """What is no position is left out, and the log says so. Before, one such record ended each
    agent of its partition with a traceback, and kept it from starting."""
    bootstrap, topic = ottla_broker.bootstrap_servers, "agent-foreign"
    sink = exactly_once_sink(bootstrap, topic)
    sink.start()
    sink.deliver([numbered(0, 5)])
    mine = json.dumps(["here", topic, "k1", "r1/numbers"]).encode()
    with Producer(bootstrap_servers=bootstrap) as producer:
        for key, value in (
            (b"x", b"y"),
            (b"{}", b"{}"),
            (b"[]", b""),
            (mine, b"5"),
            (mine, b"[" * 9),
        ):
            for partition in range(PARTITIONS):
                producer.send(TOPIC, value, key=key, partition=partition)
    assert sink.recover()["r1/numbers"].offset == 5
    assert " has 5 records that are no positions" in caplog.text
    sink.stop()


def recovered_once_known(sink: KafkaSink) -> None:
    """A topic that was made a moment ago may not be known to its leader."""
    while True:
        try:
            sink.recover()
        except KafkaError as problem:
            if not problem.retriable:
                raise
        else:
            return


def test_a_forgotten_stream_leaves_a_tombstone(ottla_broker: Broker) -> None:
    """Positions of files that are gone do not grow for ever."""
    bootstrap, topic = ottla_broker.bootstrap_servers, "agent-forget"
    sink = exactly_once_sink(bootstrap, topic)
    sink.start()
    sink.deliver([numbered(0, 5)])
    sink.deliver([EventBatch([], position=Position("r1/numbers", FORGET))])
    assert sink.recover() == {}
    sink.stop()


@pytest.mark.ottla(transaction_abort_timed_out_transaction_cleanup_interval_ms=100)
def test_a_transaction_that_timed_out_does_not_end_the_agent(ottla_own_broker: Broker) -> None:
    """Its commit is refused, as it is for an older process; the sink is still the owner, and goes
    on."""
    bootstrap, topic = ottla_own_broker.bootstrap_servers, "agent-timed-out"
    options = {"bootstrap.servers": bootstrap, "transaction.timeout.ms": 300}
    sink = KafkaSink("k1", topic, options, SinkIdentity("here", topic, "k1"))
    sink.start()
    sink.deliver([numbered(0, 5)])
    producer = sink._producer
    assert producer is not None
    producer.begin_transaction()
    for topic_, partition, data, count in sink.prepare([numbered(5, 10)]).batches:
        producer.send_batch(topic_, partition, data, count).stored()
    with Admin(bootstrap_servers=bootstrap) as admin:
        name = SinkIdentity("here", topic, "k1").transactional_id
        while admin.describe_transactions([name])[name].state.value != "CompleteAbort":
            time.sleep(0.02)
    with pytest.raises(KafkaError):
        producer.commit_transaction()
    assert sink.recover()["r1/numbers"].offset == 5
    sink.deliver([numbered(5, 10)])
    assert numbers(bootstrap, topic) == list(range(10))
    sink.stop()


def test_each_sink_gets_what_it_does_not_have(ottla_broker: Broker) -> None:
    """Two sinks came to different positions: the source begins at the least, each skips its own."""
    bootstrap = ottla_broker.bootstrap_servers
    sinks = {topic: exactly_once_sink(bootstrap, topic) for topic in ("agent-one", "agent-two")}
    for (topic, sink), last in zip(sinks.items(), (100, 50), strict=True):
        sink.start()
        sink.deliver([numbered(0, last)])
        sink.stop()
        sinks[topic] = exactly_once_sink(bootstrap, topic)

    async def both() -> None:
        channels = [MemoryChannel(name, 1000) for name in ("c1", "c2")]
        deliveries = [
            Delivery(sink, channel, 25)
            for sink, channel in zip(sinks.values(), channels, strict=True)
        ]
        source = SequenceSource("r1", 7, 200)
        made = Wiring([(source, SourceOutput(channels, []), channels)], channels, deliveries)
        await run_agent(made, until_drained=True)

    asyncio.run(both())
    assert numbers(bootstrap, "agent-one") == list(range(200))
    assert numbers(bootstrap, "agent-two") == list(range(200))
