"""A machine that stops at the n-th change of its disk."""

from ottla.seams.simulated.disk import SimulatedDisk


class PowerCut(BaseException):
    """The machine stops, in the middle of whatever it did."""


class CountingDisk(SimulatedDisk):
    """A simulated disk that stops the machine at the n-th change: nothing is done any more."""

    def __init__(self) -> None:
        super().__init__()
        self.changes = 0
        self.stop_at: int | None = None

    def _may_fail(self, operation: str, path: str) -> None:
        if operation in ("write", "sync", "rename", "unlink", "truncate"):
            self.changes += 1
            if self.stop_at is not None and self.changes >= self.stop_at:
                raise PowerCut
        super()._may_fail(operation, path)
