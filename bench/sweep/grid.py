"""The settings of the sweep, and the maximum throughput of each by the model's formula. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from redbatch.tune.search_space import default_of

BASE_MS = 5.0
ITEM_MS = 3.0
MODEL = f"simulated:base_ms={BASE_MS:g},item_ms={ITEM_MS:g}"
ADAPTIVE = "auto"


@dataclass(frozen=True, slots=True)
class Setting:
    """The maximum number of inputs in a batch, the maximum wait (ms or `auto`) for it to fill, and preferred sizes."""

    size: int
    wait: str
    preferred: str = ""

    @property
    def worker_settings(self) -> dict[str, str]:
        """The same as settings of a worker."""
        settings = {"max_batch_size": str(self.size), "max_batch_wait_ms": self.wait}
        return settings | ({"preferred_batch_sizes": self.preferred} if self.preferred else {})

    @property
    def name(self) -> str:
        """The displayed name."""
        wait = self.wait if self.wait == ADAPTIVE else f"{self.wait} ms"
        return f"{self.displayed_size}, {wait}"

    @property
    def displayed_size(self) -> str:
        """The size, or the preferred sizes: the largest of these is then the maximum."""
        return self.preferred.replace(",", "/") or str(self.size)


ORIGINAL = (Setting(8, "5"), Setting(16, "10"), Setting(32, "20"))
"""Pairs in which size and wait grow together: common choices, for comparison with the finer grid."""

DEFAULT = Setting(int(default_of("max_batch_size")), default_of("max_batch_wait_ms"))
SIZES = (1, 2, 4, 8, 16, 32, 64)
MIDDLE_SIZES = (8, 16, 32)
WAITS = ("5", "10", "20", "50")
PREFERRED = Setting(32, "20", "8,16,32")


def batch_ms(size: int) -> float:
    """Returns the time of a batch of `size` inputs. Batches run one at a time: the simulated model has one runner."""
    return BASE_MS + ITEM_MS * (size - 1)


def ceiling(size: int) -> float:
    """Returns the answers per second of full batches of this size, one after the other without a gap."""
    return size / batch_ms(size) * 1000


def grid() -> list[Setting]:
    """Returns the settings: all sizes without a wait, the middle sizes with each wait, the largest with `auto`.

    And preferred sizes, for comparison with the largest of them and the same wait.
    """
    waits = [Setting(size, wait) for size in MIDDLE_SIZES for wait in (*WAITS, ADAPTIVE)]
    return [*(Setting(size, "0") for size in SIZES), *waits, Setting(SIZES[-1], ADAPTIVE), PREFERRED]
