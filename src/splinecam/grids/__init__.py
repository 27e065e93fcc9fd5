"""Many domains times many networks or checkpoints: one call, one table, one picture.

``checkpoints`` finds the networks, ``statistics`` what is measured, ``computing`` goes through the
grid, and ``result`` is the class of the result.
"""

from splinecam.grids.computing import grid, open_grid
from splinecam.grids.result import Grid

__all__ = ["Grid", "grid", "open_grid"]
