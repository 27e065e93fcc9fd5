"""The picture of a list of polygons."""

from splinecam.plot import plot_partition

__all__ = ["plot_partition"]
