"""The producer: accumulator, sender, idempotence and transactions; `Producer` is its interface."""

from .producer import OnDelivery, Producer

__all__ = ["OnDelivery", "Producer"]
