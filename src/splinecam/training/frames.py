"""Frames of a movie: every one drawn with the same colours, legend and axes."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure

from splinecam.plot.colors import Asked, Coloring, coloring
from splinecam.plot.decorations import fit_figure
from splinecam.plot.palette import text_color
from splinecam.plot.regions import default_color

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from splinecam._partition import Partition
    from splinecam.geometry.domain import Domain

__all__ = ["Stage"]

_TITLE = 0.34  # inches above the picture
_MARGIN = 0.05  # inches around it
_LETTERS = 10.0  # points


@dataclass(frozen=True)
class Stage:
    """What all frames have in common.

    plot: options of ``part.plot``, with the limits, legend and colour bar of all frames; color:
    what regions are coloured by; size: of a frame in inches; dpi: pixels per inch.
    """

    domain: Domain
    color: Any
    plot: Mapping[str, Any]
    size: tuple[float, float]
    dpi: float

    @classmethod
    def of(
        cls, parts: Iterable[Partition], plot: Mapping[str, Any], *, width: float, dpi: float
    ) -> Stage:
        """What the pictures of some partitions need to be comparable."""
        scale, first = _Scale(plot), None
        for k, part in enumerate(parts):
            first = part if first is None else first
            if not _same_domain(first.domain, part.domain):
                raise ValueError(
                    f"parts[{k}] has another domain than parts[0]; make a movie of one domain"
                )
            scale.add(part)
        assert first is not None
        draft = cls(first.domain, scale.color, {**plot, **scale.options()}, (width, width), dpi)
        return draft._fitted(first)

    @property
    def pixels(self) -> tuple[int, int]:
        """Width and height of a frame in pixels; even numbers, as video needs them."""
        wide, high = (2 * max(1, round(inches * self.dpi / 2)) for inches in self.size)
        return wide, high

    def _fitted(self, part: Partition) -> Stage:
        """The same as high as the picture of a partition, its title and legend ask for."""
        figure, ax = self._blank()
        self._plot(part, ax)
        fit_figure(ax, self.domain)
        height = figure.get_figheight() + _TITLE + _MARGIN
        return Stage(self.domain, self.color, self.plot, (self.size[0], height), self.dpi)

    def draw(self, part: Partition, title: str) -> NDArray[np.uint8]:
        """A frame (h, w, 3)."""
        figure, ax = self._blank()
        self._plot(part, ax)
        ink = text_color(figure)
        top = 1 - 0.5 * (_TITLE + _MARGIN) / figure.get_figheight()
        left = _MARGIN / figure.get_figwidth()  # where numbers that change move nothing
        figure.text(left, top, title, ha="left", va="center", fontsize=_LETTERS, color=ink)
        canvas: Any = FigureCanvasAgg(figure)
        canvas.draw()
        return np.asarray(canvas.buffer_rgba())[:, :, :3].copy()

    def _blank(self) -> tuple[Figure, Axes]:
        wide, high = (pixels / self.dpi for pixels in self.pixels)
        figure = Figure(figsize=(wide, high), dpi=self.dpi)
        x, y = _MARGIN / wide, _MARGIN / high
        ax = figure.add_axes((x, y, 1 - 2 * x, 1 - 2 * y - _TITLE / high))
        return figure, ax

    def _plot(self, part: Partition, ax: Axes) -> None:
        color = self.color(part) if callable(self.color) else self.color
        part.plot(ax=ax, **{**self.plot, "color": color})


class _Scale:
    """Colours that suit several partitions: limits, legend, and what lies beyond the limits."""

    def __init__(self, plot: Mapping[str, Any]) -> None:
        self.plot = plot
        self.color: Any = plot.get("color")
        self.found: list[tuple[float, float]] = []
        self.ends: list[tuple[float, float]] = []
        self.level: float | None = None
        self.classes: dict[str, None] = {}

    def add(self, part: Partition) -> None:
        """Make the scale wide enough for a partition."""
        if self.color is None:
            self.color = default_color(part)
        color = self.color(part) if callable(self.color) else self.color
        made = coloring(part, color, self._asked())
        if made.limits is not None:
            self.found.append(made.limits)
        if made.norm is not None:
            self.ends.append(_ends(made))
        if isinstance(made.norm, TwoSlopeNorm):
            self.level = float(made.norm.vcenter)
        self.classes |= {name: None for name, _ in made.legend}

    def options(self) -> dict[str, Any]:
        """Options of ``part.plot`` for all the partitions."""
        found: dict[str, Any] = {}
        limits = self.plot.get("limits") or self._limits()
        if limits is not None:
            found["limits"] = limits
        if self.ends and limits is not None and self.plot.get("colorbar", True) is True:
            below = min(low for low, _ in self.ends) < limits[0]
            above = max(high for _, high in self.ends) > limits[1]
            found["colorbar"] = ("neither", "min", "max", "both")[below + 2 * above]
        if isinstance(self.color, str) and self.plot.get("legend", True) is True:
            # The legend of numbers of vertices follows from the limits.
            known = {"class": list(self.classes), "layer": "all"}
            found["legend"] = known.get(self.color, True)
        return found

    def _limits(self) -> tuple[float, float] | None:
        """The widest limits; of classes the middle one of the typical leads."""
        if not self.found:
            return None
        lows, highs = zip(*self.found, strict=True)
        if isinstance(self.color, str) and self.color == "class":
            return 0.0, statistics.median(highs)
        low, high = min(lows), max(highs)
        if self.level is not None:
            reach = max(abs(low - self.level), abs(high - self.level))
            return self.level - reach, self.level + reach
        return low, high

    def _asked(self) -> Asked:
        plain = {"output": None, "cmap": None, "limits": None, "level": 0.0, "seed": 0}
        given = {name: self.plot.get(name, value) for name, value in plain.items()}
        return Asked(**given, names=self.plot.get("names"))


def _ends(made: Coloring) -> tuple[float, float]:
    """The least and the largest number that regions are coloured by; affine ones at corners."""
    numbers = made.shade.numbers
    assert numbers is not None
    if made.shade.slopes is not None:
        mesh = made.mesh
        owner = mesh.owners().cpu().numpy()
        uv = mesh.uv[mesh.corner_vertices()].cpu().numpy()
        numbers = numbers[owner] + (made.shade.slopes[owner] * uv).sum(1)
    finite = numbers[np.isfinite(numbers)]
    return (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0)


def _same_domain(a: Domain, b: Domain) -> bool:
    """Whether two domains are one polygon in one plane."""
    pairs = ((getattr(a, k), getattr(b, k)) for k in ("origin", "basis", "corners"))
    return a.input_shape == b.input_shape and all(torch.equal(x, y) for x, y in pairs)
