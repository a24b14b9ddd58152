"""The errors of the clients, where kafka-python has them: `from ottla.errors import KafkaError`."""

from typing import TYPE_CHECKING

from ottla.client.errors import *  # noqa: F403

if TYPE_CHECKING:
    from ottla.client.errors import __getattr__ as __getattr__
