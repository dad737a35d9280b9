"""Whether a worker that waits too long for a GPU leaves its entries to other workers. Pure."""

from __future__ import annotations


class StandbyRule:
    """Decides whether a worker stands by, from the number of workers and from what it has done since it last did.

    Two workers that both wait would pass their entries back and forth. So a worker that has stood by keeps its entries
    until it has run a batch.
    """

    def __init__(self) -> None:
        self._has_run = True

    def record_batch(self) -> None:
        """Records that the worker has run a batch."""
        self._has_run = True

    def should_stand_by(self, num_workers: int) -> bool:
        """Returns whether the worker stands by now.

        Args:
            num_workers: live workers of its queue that do not stand by, itself included.
        """
        if num_workers <= 1 or not self._has_run:
            return False
        self._has_run = False
        return True
