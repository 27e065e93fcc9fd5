"""A still picture of a viewer, for exported notebooks, in which nothing answers."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from splinecam.analysis.measures import table
from splinecam.analysis.partition_data import PartitionData
from splinecam.plot.regions import plot
from splinecam.viewer.colorings import given_colors
from splinecam.viewer.panes import Pane
from splinecam.viewer.rasters import raster_pixels
from splinecam.viewer.scene import COLUMNS
from splinecam.viewer.scene_options import SceneOptions
from splinecam.viewer.session import Session

__all__ = ["still_png"]

_SIDE, _DPI = 4.8, 100  # inches of a pane, and pixels of an inch
_MANY = 100_000  # regions from which on edges are left out, as drawing them takes long
_PIXELS = 480  # of a decision whose regions are not known


def still_png(session: Session, state: Mapping[str, Any]) -> bytes:
    """The PNG of the panes of a session, in the colours and with the switches of a state.

    It shows the whole domains. state: as ``viewer.state`` gives it. A network that is not
    partitioned yet is not partitioned for this: its decision is shown.
    """
    figure = Figure(figsize=(_SIDE * len(session.panes), _SIDE), layout="constrained")
    axes = figure.subplots(1, len(session.panes), squeeze=False)[0]
    for ax, pane in zip(axes, session.panes, strict=True):
        frame = min(int(state.get("frame", 0)), len(pane.labels) - 1)
        part = pane.frames.partition(frame)
        if part is None or pane.generation:
            _draw_decision(ax, pane, frame, session.options)
        else:
            _draw(ax, part, session.options, state)
        if len(axes) > 1:
            ax.set_title(pane.title)
    file = BytesIO()
    figure.savefig(file, format="png", dpi=_DPI)
    return file.getvalue()


def _draw(ax: Axes, part: PartitionData, options: SceneOptions, state: Mapping[str, Any]) -> None:
    """Draw a partition as a state wants it."""
    output, level = state.get("output"), float(state.get("level", options.level or 0.0))
    has_points = options.points is not None and state.get("points", True)
    plot(
        part,
        ax=ax,
        color=_color(part, state.get("color", options.color), options),
        output=output,
        cmap=options.cmap,
        limits=options.limits if state.get("color") == options.color else None,
        level=level,
        seed=options.seed,
        names=options.names,
        edges=False if len(part) > _MANY or not state.get("edges", True) else None,
        boundary=None if state.get("boundary", True) else False,
        points=options.points if has_points else None,
        labels=options.labels if has_points else None,
    )


def _color(part: PartitionData, name: str | None, options: SceneOptions) -> Any:
    """What ``plot`` calls a colouring of the viewer; None for the usual one."""
    if name is not None and name in options.colors:
        given = given_colors(options.colors[name], part, part)
        return given if len(given) == len(part) else None  # else there is one for each frame
    return np.asarray(table(part)[name]) if name in COLUMNS else name


def _draw_decision(ax: Axes, pane: Pane, frame: int, options: SceneOptions) -> None:
    """Draw the decision of the network of a pane."""
    (u0, v0), (u1, v1) = (corner.tolist() for corner in pane.domain.corners.aminmax(dim=0))
    level, box = options.level or 0.0, (u0, v0, u1, v1)
    network = pane.frames.network(frame)
    found = raster_pixels(network, pane.domain, box, _PIXELS, level=level)
    left, low, right, high = found.box
    ax.imshow(found.pixels, origin="lower", extent=(left, right, low, high))
    ax.set_axis_off()
