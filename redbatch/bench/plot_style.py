"""Figures in one style, for `redbatch bench --plot` and the pictures of the documentation. Imports matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

BLUE, GREEN, RED = "#4477aa", "#228833", "#cc3311"
YELLOW, OLIVE = "#ccbb44", "#997700"
BLACK, GRAY = "#222222", "#999999"
DPI = 130
SMALL, TITLE = 8, 10
"""Sizes of type in points: of legends and notes, and of the titles of panels."""

METADATA: Mapping[str, dict[str, Any]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None},
}
"""Matplotlib writes its version and the time into a file. Without them the same figure is the same file."""


def new_figure(width_inches: float, height_inches: float) -> Figure:
    """Returns an empty figure whose parts do not overlap."""
    return Figure(figsize=(width_inches, height_inches), layout="constrained")


def save(figure: Figure, path: Path) -> None:
    """Writes a figure. The suffix of the path is the format.

    Raises:
        OSError: the file cannot be written.
        ValueError: the format is unknown.
    """
    figure.savefig(path, dpi=DPI, metadata=METADATA.get(path.suffix))


def style(axes: Axes, grid: Literal["both", "x", "y"] = "y") -> None:
    """Draws a light grid behind the data, and no frame at the top and on the right."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)
    axes.grid(axis=grid, alpha=0.3)


def legend(axes: Axes, location: Literal["upper left", "best"] = "upper left") -> None:
    """Adds a small legend without a frame."""
    axes.legend(frameon=False, fontsize=SMALL, loc=location)


def plain_numbers(axis: Axis, ticks: Sequence[float] | None = None, spec: str = "g") -> None:
    """Labels the major ticks with numbers of this format, also on a logarithmic scale, and the minor ones not at all.

    Args:
        axis: x or y; its scale is set before.
        ticks: places of the ticks; those that matplotlib chooses by default.
        spec: a format specification, as `format` takes it.
    """
    if ticks is not None:
        axis.set_major_locator(FixedLocator(ticks))
        axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: format(value, spec)))
    axis.set_minor_formatter(NullFormatter())


def spread(figures: Sequence[Mapping[str, Any]]) -> list[list[float]]:
    """Returns error bars from the smallest to the largest run: the distances below and above each median."""
    below = [each["median"] - each["min"] for each in figures]
    return [below, [each["max"] - each["median"] for each in figures]]
