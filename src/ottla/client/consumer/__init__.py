"""The consumer: subscription, group membership, fetcher, offsets; `Consumer` is its interface."""

from .consumer import Consumer

__all__ = ["Consumer"]
