"""The small tuples of the clients, where kafka-python has them."""

from ottla.client.structs import *  # noqa: F403
