"""Curves made by hand, on a partition that only gives them their plane."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import splinecam as sc
from splinecam.questions.curves import Curves


def plane(domain: sc.Domain | None = None) -> sc.Partition:
    """A partition of the domain, by default of the square from -4 to 4."""
    domain = domain or sc.Domain.box(-4, 4)
    model = nn.Sequential(nn.Flatten(), nn.Linear(domain.dim, 3), nn.ReLU(), nn.Linear(3, 1))
    return sc.partition(model, domain, progress=False)


def curves_of(
    points: Any, segments: Any, label: Any = None, *, part: sc.Partition | None = None
) -> Curves:
    """Curves of points (P, 2), segments (S, 2) and labels (S,), all 0 by default."""
    ends = torch.as_tensor(segments, dtype=torch.int64).reshape(-1, 2)
    labels = torch.zeros_like(ends[:, 0]) if label is None else torch.as_tensor(label)
    places = torch.as_tensor(points, dtype=torch.float64).reshape(-1, 2)
    return Curves(part or plane(), places, ends, torch.zeros_like(ends), labels)


def loose(ends: Tensor, part: sc.Partition | None = None) -> Curves:
    """Curves of segments (S, 2, 2) that share no points."""
    return curves_of(ends.view(-1, 2), torch.arange(2 * len(ends)), part=part)
