"""The admin client and its types, where kafka-python has them."""

from ottla.client.admin import *  # noqa: F403
