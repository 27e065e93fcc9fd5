"""Local complexity: how often units switch along segments in small balls, with an error bar."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor

from splinecam._util.text import TextTable, number_text, pandas_if_installed
from splinecam.geometry.ball_lines import BallLines, area_by_crossings

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CONFIDENCE = 0.99
_PAIR = 2.0  # switches that a unit makes unseen, at least: it leaves its side and comes back


class Interval(NamedTuple):
    """An estimate, and a 99 % confidence interval."""

    value: float
    low: float
    high: float

    def within(self, precision: float) -> bool:
        """Whether half the interval is no more than a share of the value.

        precision: the share; of 1, if the value is less.
        """
        return self.high - self.low <= 2 * precision * max(1.0, self.value)

    def __str__(self) -> str:
        return f"{self.value:.4g} ({self.low:.4g} to {self.high:.4g})"


class Sample(NamedTuple):
    """What is known of T numbers: of all something cheap, and some of them exactly.

    cheap: (T,) about the numbers; least: (T,) what they are at least; chosen: (m,) the places of
    which the numbers are known, drawn at random without replacement; exact: (m,) these numbers.
    step: by how much a number and its cheap one differ at least, if they do.
    """

    cheap: Tensor
    least: Tensor
    chosen: Tensor
    exact: Tensor
    step: float = 1.0

    def mean(self, risk: float, *, spread: bool = False) -> Interval:
        """The mean of all numbers, with an interval that misses it with this probability.

        The mean of the cheap numbers is corrected by that of the differences, which are few. Their
        spread, by Student's distribution, is one part of the interval. The other stands for
        differences too rare to be drawn: of m numbers without any, a share of ``log(1 / p) / m``
        has some with probability p at most. They are taken to be as large as the largest seen, and
        at least a pair of switches above the cheap number, or a single one below.

        spread: the numbers are themselves a sample, and the mean is that of all there could be.
        """
        T, m = self.cheap.shape[0], self.chosen.shape[0]
        base, least = float(self.cheap.mean()), float(self.least.mean())
        if m < 2 and m < T:
            return Interval(base, least, math.inf)
        off = self.exact - self.cheap[self.chosen]
        left, rare = 1 - m / T, math.log(2 / risk) / m
        variance = float(off.var()) / m * left if m > 1 else 0.0
        if spread:
            variance += self._spread(off) / T if T > 1 else math.inf
        reach = _student(1 - risk / 2, (T if spread and not left else m) - 1) * math.sqrt(variance)
        largest = float(off.max().clamp(min=_PAIR * self.step)), float(-off.min())
        value = base + float(off.mean())
        above = reach + rare * left * largest[0]
        below = reach + rare * left * max(largest[1], self.step)
        low = value - below if spread else max(least, value - below)
        return Interval(value, max(0.0, min(value, low)), value + above)

    def _spread(self, off: Tensor) -> float:
        """The variance of the numbers; off: the known differences. They may grow together."""
        cheap = self.cheap[self.chosen]
        both = float(((cheap - cheap.mean()) * (off - off.mean())).sum()) / (off.shape[0] - 1)
        return float(self.cheap.var() + off.var()) + 2 * max(0.0, both)


def _student(level: float, degrees: int) -> float:
    """A quantile of Student's distribution, by its expansion about that of the normal one."""
    if degrees <= 1:  # the expansion is far too small here
        return math.tan(math.pi * (level - 0.5))
    if degrees == 2:
        return (2 * level - 1) / math.sqrt(2 * level * (1 - level))
    z = NormalDist().inv_cdf(level)
    parts = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return float(z + sum(part / degrees ** (k + 1) for k, part in enumerate(parts)))


@dataclass(frozen=True, eq=False, repr=False)
class LocalComplexity:
    """How often units switch along d segments in the ball around each of N samples.

    layers: the names of the L layers; units: (L,) of each; radius: (N,) of the balls; lower: (N, d,
    L) units that are on different sides at the two ends for sure, so that each switches at least
    once; ends: the same as computed, of which rounding may have moved some; open: units within
    rounding of a border at an end; points: (N, L) units that are not on one side at the centre and
    all ends, as the usual script counts them. chosen: (m,) the segments that are known exactly, as
    ``sample * d + direction``; switches: (m, L) how often units switch along them; breakpoints:
    (m,) at how many points; first: (m, 2) the distances of the first switch from the centre, along
    the direction and against it, infinite without one. risk: that an interval misses. regions: (N,)
    of the square around each sample, if these were counted.

    >>> import splinecam as sc
    >>> net = torch.nn.Sequential(torch.nn.Linear(9, 20), torch.nn.ReLU(), torch.nn.Linear(20, 2))
    >>> found = sc.local_complexity(net, torch.randn(50, 9), 0.5, progress=False)
    >>> found.lower.shape
    torch.Size([50, 12, 1])
    >>> low, value, high = found.mean().low, found.mean().value, found.mean().high
    >>> low <= value <= high
    True
    """

    layers: tuple[str, ...]
    units: Tensor
    lines: BallLines
    lower: Tensor
    ends: Tensor
    open: Tensor
    points: Tensor
    chosen: Tensor
    switches: Tensor
    breakpoints: Tensor
    first: Tensor
    risk: float = 1 - CONFIDENCE
    regions: Tensor | None = None

    def __len__(self) -> int:
        return int(self.lower.shape[0])

    @property
    def radius(self) -> Tensor:
        """The radius of each ball, (N,)."""
        return self.lines.radius

    @property
    def exact_share(self) -> float:
        """The share of the segments that are known exactly."""
        return self.chosen.shape[0] / max(1, self.lower[..., 0].numel())

    def mean(self, layer: int | str | None = None, *, samples: Any = None) -> Interval:
        """The mean number of switches along a segment, with a 99 % interval.

        layer: its number or its name, by default all layers together. samples: the numbers of some
        samples, or a mask, by default all.
        """
        columns = slice(None) if layer is None else [self._layer(layer)]
        kept, at = self._kept(samples)
        cheap, least = (x[kept][..., columns].sum(-1).flatten() for x in (self.ends, self.lower))
        exact = self.switches[at.known][:, columns].sum(1)
        some = Sample(cheap.double(), least.double(), at.place, exact.double())
        return some.mean(self.risk)

    def density(self, *, samples: Any = None) -> Interval:
        """The area of the borders of regions per volume in the balls, by Crofton's formula.

        This is the number of breakpoints per length, times ``sqrt(pi) Gamma((n+1)/2) / Gamma(n/2)``
        for inputs of n numbers; in the plane it is the length of borders per area. Where several
        units switch at one point, there is one border.

        Chords (``chords=True``) are uniformly random lines, and the interval covers the density in
        the balls. All diameters go through the centre, near which borders count more. The interval
        is then that of the given diameters, and the number is the density if borders are spread
        evenly over the ball. samples: as for ``mean``.
        """
        kept, at = self._kept(samples)
        scale = area_by_crossings(self.lines.centers.shape[1]) / self.lines.lengths()
        every = scale[kept].repeat_interleave(self.lower.shape[1])
        cheap, least = (x[kept].sum(-1).flatten() * every for x in (self.ends, self.lower))
        exact = self.breakpoints[at.known] * every[at.place]
        least = least * 0 if self._coincide() else least  # several units may switch at one point
        step = float(every.max())
        some = Sample(cheap, least, at.place, exact, step)
        return some.mean(self.risk, spread=self.lines.chords)

    def _coincide(self) -> bool:
        return not bool((self.switches.sum(1) == self.breakpoints).all())

    def _layer(self, layer: int | str) -> int:
        if isinstance(layer, str) and layer in self.layers:
            return self.layers.index(layer)
        if isinstance(layer, int) and -len(self.layers) <= layer < len(self.layers):
            return layer % len(self.layers)
        known = (
            f"0 to {len(self.layers) - 1}, or {', '.join(self.layers)}" if self.layers else "none"
        )
        raise ValueError(f"there is no layer {layer!r}: choose {known}")

    def _kept(self, samples: Any) -> tuple[Tensor, _Known]:
        """The chosen samples, and which of their segments are known exactly."""
        every = torch.arange(len(self))
        given = None if samples is None else torch.as_tensor(samples)
        if given is not None and not (given.any() if given.dtype == torch.bool else given.numel()):
            raise ValueError("samples chooses none of the samples, so there is no mean")
        kept = every if given is None else every[given].flatten()
        place = torch.full((len(self),), -1)
        place[kept] = torch.arange(kept.shape[0])
        d = self.lower.shape[1]
        own = place[self.chosen // d]
        return kept, _Known((own >= 0).nonzero()[:, 0], (own * d + self.chosen % d)[own >= 0])

    def to_dict(self) -> dict[str, Any]:
        """The means of all layers as plain numbers, for JSON.

        >>> import splinecam as sc
        >>> found = sc.local_complexity(torch.nn.ReLU(), torch.ones(3, 2), 0.1, progress=False)
        >>> found.to_dict()["total"]["estimate"]
        0.0
        """
        rows = {name: self._row(k) for k, name in enumerate(self.layers)}
        density = self.density()._asdict()
        about: dict[str, Any] = {"samples": len(self), "segments": self.lower.shape[1]}
        about |= {"chords": self.lines.chords, "exact_share": self.exact_share}
        about["radius"] = float(self.radius.double().mean())
        about |= {"layers": rows, "total": self._row(None), "density": density}
        if self.regions is not None:
            about["regions"] = float(self.regions.double().mean())
        return about

    def _row(self, layer: int | None) -> dict[str, float]:
        columns = slice(None) if layer is None else slice(layer, layer + 1)
        value, low, high = self.mean(layer)
        means = {
            name: float(x[..., columns].sum(-1).double().mean())
            for name, x in (("lower", self.lower), ("open", self.open), ("points", self.points))
        }
        units = int(self.units[columns].sum())
        return {"units": units, "estimate": value, "low": low, "high": high, **means}

    def table(self, by: Literal["layer", "sample"] = "layer") -> Any:
        """A pandas DataFrame, or without pandas a dict of lists.

        by: with ``"layer"`` a row per layer, and one for all: its units, the estimated mean of
        switches along a segment with its interval, and means of ``lower``, ``open`` and ``points``.
        With ``"sample"`` a row per sample and layer, with means over its segments; ``exact`` is
        that over those known exactly, or nan.
        """
        if by == "layer":
            rows = [self._row(k) for k in (*range(len(self.layers)), None)]
            columns: dict[str, Any] = {"layer": [*self.layers, "all"]}
            columns |= {name: [row[name] for row in rows] for name in rows[0]}
        elif by == "sample":
            columns = self._by_sample()
        else:
            raise ValueError(f'by is {by!r}; choose "layer" or "sample"')
        pandas = pandas_if_installed()
        return columns if pandas is None else pandas.DataFrame(columns)

    def _by_sample(self) -> dict[str, Any]:
        N, d, L = self.lower.shape
        total, known = torch.zeros(2, N, L, dtype=torch.float64).unbind()
        own = self.chosen // d
        total.index_add_(0, own, self.switches.double())
        known.index_add_(0, own, torch.ones_like(self.switches, dtype=torch.float64))
        numbers = {name: getattr(self, name).double().mean(1) for name in ("lower", "ends", "open")}
        numbers |= {"points": self.points, "exact": total / known}
        return {
            "sample": [k for k in range(N) for _ in range(L)],
            "layer": list(self.layers) * N,
            **{name: x.flatten().tolist() for name, x in numbers.items()},
        }

    def plot(self, ax: Axes | None = None, **options: Any) -> Axes:
        """Draw the estimates of all layers with their intervals, and the counts of points.

        ax: where to draw. options: see ``splinecam.plot.plot_local_complexity``.
        """
        from splinecam.plot import plot_local_complexity

        return plot_local_complexity(self, ax=ax, **options)

    def __repr__(self) -> str:
        N, d, _ = self.lower.shape
        kind = "chords" if self.lines.chords else "diameters"
        known = f"exact along {self.chosen.shape[0]:,} of {N * d:,}"
        radius = f"radius {float(self.radius.double().mean()):.3g}" if N else "no samples"
        return f"LocalComplexity({self.mean()} switches along {kind}, {radius}, {known})"

    def _repr_html_(self) -> str:
        return self._text().html()

    def __str__(self) -> str:
        return f"{self!r}\n\n{self._text().text(20)}"

    def _text(self) -> TextTable:
        names = "units", "estimate", "low", "high", "lower", "open", "points"
        rows = [(name, self._row(k)) for k, name in enumerate(self.layers)]
        rows.append(("all", self._row(None)))
        cells = [(name, [number_text(row[key]) for key in names]) for name, row in rows]
        return TextTable("Switches by layer", names, cells)


class _Known(NamedTuple):
    """Segments that are known exactly: their rows, and their places among those of the samples."""

    known: Tensor
    place: Tensor
