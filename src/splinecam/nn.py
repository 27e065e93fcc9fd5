"""Piecewise-linear modules that torch does not have, and those of scikit-learn's estimators.

``AsWritten`` keeps ReLUs that only write maxima, and ``Both`` joins two networks of one input.
"""

from splinecam.files.scikit_learn import from_sklearn
from splinecam.network.capture.capturing import Both
from splinecam.network.capture.models import AsWritten
from splinecam.network.modules import GroupSort, Maxout, PeriodicEncoding, PiecewiseLinear

__all__ = [
    "AsWritten",
    "Both",
    "GroupSort",
    "Maxout",
    "PeriodicEncoding",
    "PiecewiseLinear",
    "from_sklearn",
]
