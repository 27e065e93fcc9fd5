"""Piecewise-linear modules that torch does not have; ``partition`` knows all of them."""

from splinecam.network.modules import GroupSort, Maxout, PeriodicEncoding, PiecewiseLinear

__all__ = ["GroupSort", "Maxout", "PeriodicEncoding", "PiecewiseLinear"]
