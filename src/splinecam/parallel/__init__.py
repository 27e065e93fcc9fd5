"""Work that joblib, Dask or Ray spreads over processes and machines.

``flat`` writes objects with large arrays as one block of bytes, and many domains or outcomes as a
few arrays. ``workers`` runs in a worker, and ``engines`` calls joblib, Dask and Ray. ``tasks``
hands out tasks, also the chunks of a sweep, and takes in results. ``one_domain`` divides a single
large domain.
"""

from splinecam.parallel.engines import Engine, engine_for
from splinecam.parallel.flat import Packed
from splinecam.parallel.one_domain import run_domain
from splinecam.parallel.tasks import Job, run_chunks, run_tasks

__all__ = ["Engine", "Job", "Packed", "engine_for", "run_chunks", "run_domain", "run_tasks"]
