"""aiokafka, unmodified, on a live broker. It speaks the oldest versions: the canary for those."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

CODECS = [None, "gzip", "snappy", "lz4", "zstd"]
WAIT_S = 60


@pytest.mark.parametrize("codec", CODECS)
def test_round_trip_in_every_compression(
    bootstrap: str, new_name: Callable[[str], str], codec: str | None
) -> None:
    """Keys, values and headers come back as sent through the old protocol versions."""
    topic = new_name(f"aiokafka-{codec}")

    async def run() -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap, compression_type=codec, enable_idempotence=True
        ) as producer:
            sends = [
                await producer.send(
                    topic, b"v%d" % i, key=b"k%d" % i, partition=0, headers=[("h", b"%d" % i)]
                )
                for i in range(200)
            ]
            found = await asyncio.wait_for(asyncio.gather(*sends), WAIT_S)
            assert [metadata.offset for metadata in found] == list(range(200))
        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False
        )
        await consumer.start()
        try:
            consumer.assign([TopicPartition(topic, 0)])
            for i in range(200):
                record = await asyncio.wait_for(consumer.getone(), WAIT_S)
                assert (record.offset, record.key, record.value) == (i, b"k%d" % i, b"v%d" % i)
                assert list(record.headers) == [("h", b"%d" % i)]
        finally:
            await consumer.stop()

    asyncio.run(run())


def test_admin_and_offsets(bootstrap: str, new_name: Callable[[str], str]) -> None:
    """Topics are made and deleted, and beginning, end and seek work, through aiokafka."""
    topic = new_name("aiokafka-admin")

    async def run() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            await admin.create_topics([NewTopic(topic, 2, 1)])
            assert topic in await admin.list_topics()
            async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
                for i in range(10):
                    await producer.send_and_wait(topic, b"%d" % i, partition=1)
            consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
            await consumer.start()
            target = TopicPartition(topic, 1)
            consumer.assign([target])
            assert await consumer.beginning_offsets([target]) == {target: 0}
            assert await consumer.end_offsets([target]) == {target: 10}
            consumer.seek(target, 7)
            assert (await asyncio.wait_for(consumer.getone(), WAIT_S)).value == b"7"
            await consumer.stop()
            await admin.delete_topics([topic])
            assert topic not in await admin.list_topics()
        finally:
            await admin.close()

    asyncio.run(run())
