"""Networks watched while they train: partitions at chosen steps, curves and movies."""

from splinecam.training.movies import Movie, movie
from splinecam.training.runs import Run, Snapshot, plot_run
from splinecam.training.watching import Watch, log_steps, watch

__all__ = ["Movie", "Run", "Snapshot", "Watch", "log_steps"]
__all__ += ["movie", "plot_run", "watch"]
