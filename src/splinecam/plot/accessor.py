"""The pictures of a partition as ``part.plot``, in the way of pandas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from splinecam.plot.histograms import plot_histograms
from splinecam.plot.regions import plot, plot_layers
from splinecam.plot.surface import plot_surface
from splinecam.questions.partition_data import PartitionData

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Pictures:
    """The pictures of a partition: ``part.plot()`` draws its regions, methods draw the others."""

    def __init__(self, part: PartitionData) -> None:
        self._part = part

    def __call__(self, **options: Any) -> Axes:
        return plot(self._part, **options)

    def surface(self, **options: Any) -> Any:
        return plot_surface(self._part, **options)

    def layers(self, **options: Any) -> Figure:
        return plot_layers(self._part, **options)

    def histograms(self, **options: Any) -> Figure:
        return plot_histograms(self._part, **options)

    __call__.__doc__ = plot.__doc__
    surface.__doc__ = plot_surface.__doc__
    layers.__doc__ = plot_layers.__doc__
    histograms.__doc__ = plot_histograms.__doc__

    def __repr__(self) -> str:
        return "plot(), plot.surface(), plot.layers(), plot.histograms() of a partition"
