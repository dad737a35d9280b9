"""The settings of the sweep, and what the formula of the model allows each. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from redbatch.tune.search_space import default_of

BASE_MS = 5.0
ITEM_MS = 3.0
MODEL = f"simulated:base_ms={BASE_MS:g},item_ms={ITEM_MS:g}"
ADAPTIVE = "auto"


@dataclass(frozen=True, slots=True)
class Setting:
    """Most inputs in a batch, and the longest wait for it to fill, in ms or `auto`."""

    size: int
    wait: str

    @property
    def given(self) -> dict[str, str]:
        """Returns it as a worker's settings."""
        return {"max_batch_size": str(self.size), "max_batch_wait_ms": self.wait}

    @property
    def name(self) -> str:
        """Names it for people."""
        return f"{self.size}, {self.wait if self.wait == ADAPTIVE else f'{self.wait} ms'}"


ORIGINAL = (Setting(8, "5"), Setting(16, "10"), Setting(32, "20"))
"""Size and wait grow together: the usual choices, with which a finer grid is compared."""

DEFAULT = Setting(int(default_of("max_batch_size")), default_of("max_batch_wait_ms"))
SIZES = (1, 2, 4, 8, 16, 32, 64)
MIDDLE_SIZES = (8, 16, 32)
WAITS = ("5", "10", "20", "50")


def batch_ms(size: int) -> float:
    """Returns what a batch of so many inputs takes. One runs at a time: the simulated model has one runner."""
    return BASE_MS + ITEM_MS * (size - 1)


def ceiling(size: int) -> float:
    """Returns the answers a second that full batches of this size give when one follows the other without a gap."""
    return size / batch_ms(size) * 1000


def grid() -> list[Setting]:
    """Returns what is measured: all sizes without a wait, and the waits for the sizes in the middle and the default."""
    waits = [Setting(size, wait) for size in MIDDLE_SIZES for wait in (*WAITS, ADAPTIVE)]
    return [*(Setting(size, "0") for size in SIZES), *waits, Setting(SIZES[-1], ADAPTIVE)]
