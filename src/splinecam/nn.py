"""Piecewise-linear modules that torch does not have, and those of scikit-learn's estimators.

``AsWritten`` keeps ReLUs that only write maxima, and ``Beside`` joins networks of the same input.
"""

from splinecam.files.scikit_learn import from_sklearn
from splinecam.network.capture.models import AsWritten
from splinecam.network.modules import Beside, GroupSort, Maxout, PeriodicEncoding, PiecewiseLinear

__all__ = [
    "AsWritten",
    "Beside",
    "GroupSort",
    "Maxout",
    "PeriodicEncoding",
    "PiecewiseLinear",
    "from_sklearn",
]
