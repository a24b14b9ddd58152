"""What faults do to the controller's session with the metadata tree of a simulated cluster."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.metadata_store.local import LocalTree
from ottla.metadata_store.shared import LOCK_FILE
from ottla.metadata_store.tree import ConnectionLoss
from ottla.testing.simulation.machines import SHARED

if TYPE_CHECKING:
    from ottla.metadata_store.local_store import Store
    from ottla.testing.simulation.machines import Machine

LOCK_PATH = f"{SHARED}/{LOCK_FILE}"


def after_writes(machine: Machine, callback: Callable[[], object]) -> None:
    """Call back whenever a write of the controller has taken effect, before its answer comes."""
    store = _store(machine)
    if store is None:
        return

    def write(*arguments: Any) -> Any:
        result = type(store).write(store, *arguments)
        callback()
        return result

    store.write = write  # type: ignore[method-assign, assignment]


def lose_answers(machine: Machine, rng: random.Random, times: int) -> None:
    """Let the next writes of the controller fail with an unknown outcome: some take place."""
    store = _store(machine)
    if store is None:
        return
    left = times

    def write(*arguments: Any) -> Any:
        nonlocal left
        left -= 1
        if left <= 0:
            _restore(store)
        if rng.random() < 0.5:
            type(store).write(store, *arguments)
        raise ConnectionLoss(store.path, "no answer")

    store.write = write  # type: ignore[method-assign, assignment]


def heal(machine: Machine) -> None:
    """Let the writes of the controller on this machine be answered again."""
    store = _store(machine)
    if store is not None:
        _restore(store)


def end_session(machine: Machine) -> None:
    """End the controller's session, as a time-out does: its ephemeral nodes go."""
    tree = _tree(machine)
    if tree is not None:
        machine.node.task(tree.expire())


def lose_lock(machine: Machine) -> None:
    """Let another broker take the controller's lock, and replace a controller that goes on."""
    machine.lose_lock(LOCK_PATH)


def _tree(machine: Machine) -> LocalTree | None:
    controller = machine.controller
    tree = controller._state.tree if controller is not None else None
    return tree if isinstance(tree, LocalTree) else None


def _store(machine: Machine) -> Store | None:
    tree = _tree(machine)
    return tree._engine.store if tree is not None else None


def _restore(store: Store) -> None:
    store.__dict__.pop("write", None)
