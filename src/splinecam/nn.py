"""Piecewise-linear modules that torch does not have, and those of scikit-learn's estimators."""

from splinecam.files.scikit_learn import from_sklearn
from splinecam.network.modules import GroupSort, Maxout, PeriodicEncoding, PiecewiseLinear

__all__ = ["GroupSort", "Maxout", "PeriodicEncoding", "PiecewiseLinear", "from_sklearn"]
