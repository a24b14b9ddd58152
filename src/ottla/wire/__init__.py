"""Bytes and messages: Kafka's protocol, without any input or output."""
