"""Controllers on a tree that does not sync: these tests crash processes, not machines."""

from collections.abc import Iterator

import pytest

from ottla.metadata_store import local_store


@pytest.fixture(autouse=True, scope="module")
def without_fsync() -> Iterator[None]:
    """For all tests of this folder, and for all examples of hypothesis in them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_store, "SYNCHRONOUS", "OFF")
        yield
