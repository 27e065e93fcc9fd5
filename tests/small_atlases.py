"""Atlases with tiles of given sizes."""

import os
from typing import Any

from torch import nn

import splinecam as sc
from splinecam.partitions.request import Request
from splinecam.tiles import compute as spreading
from splinecam.tiles.computation import Sizes


def compute_atlas(
    model: nn.Module,
    domain: sc.Domain,
    folder: str | os.PathLike[str],
    *,
    sizes: Sizes | None = None,
    n_jobs: int | None = None,
    **options: Any,
) -> sc.results.Atlas:
    """What ``sc.atlas`` gives, with tiles of these sizes."""
    request = Request.of("atlas", model, options)
    return spreading.compute_atlas(request, domain, folder, n_jobs=n_jobs, sizes=sizes)
