"""Networks to draw, and what their pictures show."""

from __future__ import annotations

import io
import itertools
from typing import Any

import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from torch import nn

import splinecam as sc
from splinecam.plot.scene import Scene


def network(outputs: int, width: int = 12, depth: int = 2, inputs: int = 2) -> nn.Sequential:
    torch.manual_seed(outputs)
    sizes = [inputs, *[width] * depth]
    hidden = [x for a, b in itertools.pairwise(sizes) for x in (nn.Linear(a, b), nn.ReLU())]
    model = nn.Sequential(*hidden, nn.Linear(width, outputs)).double()
    with torch.no_grad():
        model[-1].bias -= model(torch.zeros(1, inputs).double())[0]
    return model


def cut_up(model: nn.Module, side: float = 3.0) -> sc.Partition:
    return sc.partition(model, sc.Domain.box(-side, side), progress=False)


def pixels(figure: Any) -> np.ndarray:
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba(), float)[:, :, :3] / 255


def written(figure: Any, kind: str) -> int:
    file = io.BytesIO()
    figure.savefig(file, format=kind)
    return file.tell()


def scene_of(ax: Any) -> Scene:
    (found,) = (c for c in ax.collections if isinstance(c, Scene))
    return found


def lies_in(inner: Any, outer: Any, slack: float = 1.0) -> bool:
    return all(outer.padded(slack).contains(*corner) for corner in inner.get_points())
