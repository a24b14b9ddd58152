"""Producer ids when a write of the controller fails: none is given twice, and they do not end."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from ottla.cluster.requests import Refusal
from ottla.cluster.state import RegistrationRefused
from ottla.metadata_store.tree import ConnectionLoss, Operation, Result
from tests.cluster.harness import ControllerHarness, run_scenario


def fail_next_write(harness: ControllerHarness, *, made: bool) -> None:
    """The answer to the next write is lost; `made`: it takes place all the same."""
    multi = harness.tree.multi

    async def fail(operations: Sequence[Operation]) -> list[Result]:
        harness.tree.multi = multi  # type: ignore[method-assign]
        if made:
            await multi(operations)
        raise ConnectionLoss("/", "no answer")

    harness.tree.multi = fail  # type: ignore[method-assign]


@pytest.mark.parametrize("made", [False, True])
def test_producer_ids_are_allocated_after_a_first_write_that_failed(
    tmp_path: Path, made: bool
) -> None:
    """Whether its node is there then or not: the next broker that asks gets a block."""

    async def scenario(harness: ControllerHarness) -> None:
        fail_next_write(harness, made=made)
        assert isinstance(await harness.controller.allocate_producer_ids(1), Refusal)
        block = await harness.controller.allocate_producer_ids(1)
        assert isinstance(block, range)
        assert block[0] == (1_000 if made else 0)

    run_scenario(tmp_path, scenario)


@pytest.mark.parametrize("before", [False, True])
def test_ids_that_could_not_be_skipped_are_an_error(tmp_path: Path, before: bool) -> None:
    """A broker whose disks have them must ask again before it registers: they would be given to
    new producers, whose records would be taken for duplicates."""

    async def scenario(harness: ControllerHarness) -> None:
        if before:
            await harness.controller.allocate_producer_ids(1)
        fail_next_write(harness, made=False)
        with pytest.raises(RegistrationRefused):
            await harness.controller.skip_producer_ids(1, 123_456)
        await harness.controller.skip_producer_ids(1, 123_456)
        block = await harness.controller.allocate_producer_ids(1)
        assert isinstance(block, range)
        assert block[0] > 123_456

    run_scenario(tmp_path, scenario)
