"""The operations that a network may have: affine, piecewise linear, smooth, or rejected.

``registry`` has the rules; the other modules register operations when they are imported.
"""

from splinecam.network.ops import affine, nonlinear  # noqa: F401
