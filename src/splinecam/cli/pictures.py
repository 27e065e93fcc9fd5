"""Draws the pictures that the options describe, and writes them to files."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from splinecam._util.files import replaced
from splinecam.cli.console import make_folder
from splinecam.cli.parser import DPI, levels_of
from splinecam.errors import SplineCamError
from splinecam.geometry.domain import Domain
from splinecam.partitions.partition import Partition
from splinecam.plot import plot, plot_histograms, plot_layers, plot_surface, require_matplotlib
from splinecam.plot.figures import is_input_plane, sliced_features, written
from splinecam.questions.partition_data import PartitionData

_KINDS: dict[str, Callable[..., Any]] = {
    "regions": plot,
    "surface": plot_surface,
    "layers": plot_layers,
    "histograms": plot_histograms,
}
_THUMBNAILS = 16  # samples up to which images are shown beside their points


def prepare_pictures(*, otherwise: str = "") -> None:
    """Let matplotlib draw without a screen; an error proposes ``otherwise`` if it is missing."""
    try:
        require_matplotlib()
    except SplineCamError as error:
        raise SplineCamError(f"{error} {otherwise}".rstrip()) from error
    import matplotlib

    matplotlib.use("Agg")


def require_outputs(options: Namespace, outputs: int) -> None:
    """Raise an error if the options do not fit a model with so many outputs."""
    kind = getattr(options, "kind", "regions")
    several = f"The model has {outputs} output{'s' * (outputs != 1)}"
    if options.output is not None and not -outputs <= options.output < outputs:
        raise SplineCamError(
            f"{several}, numbered from 0, so there is no --output {options.output}."
        )
    if outputs == 1:
        return
    needed = options.color == "output" or kind == "surface" or levels_of(options)
    if options.output is None and needed:
        raise SplineCamError(f"{several}: say which one, --output 0 to {outputs - 1}.")
    if options.level is not None and options.level != 0:
        raise SplineCamError(f"{several}: --level is for models with one.")


def draw(
    part: Partition, paths: Sequence[Path], options: Namespace, anchors: Tensor | None
) -> None:
    """Draw one picture to each of the files; anchors: samples (N, ...) to mark in it."""
    if not paths:
        return
    kind, style = getattr(options, "kind", "regions"), _style(options)
    if anchors is not None:
        style |= {"points": anchors, "images": are_images(anchors)}
    if options.features and kind == "regions":
        style = {"axes": "ticks", **style}
    made: Any = _KINDS[kind](part, **style)
    if kind == "regions":
        name_axes(made, part.domain, options)
    figure = made if hasattr(made, "savefig") else made.figure
    if options.size is not None:
        wide, high = figure.get_size_inches()
        figure.set_size_inches(options.size, options.size * high / wide)
    write_figure(figure, paths, dpi=options.dpi or DPI)


def write_figure(figure: Any, paths: Sequence[Path], *, dpi: int = DPI) -> None:
    """Write a figure to each of the files in the format of its ending, and close the figure."""
    import matplotlib.pyplot as plt

    for path in paths:
        make_folder(path.parent)
        with replaced(path) as file:
            figure.savefig(file, format=path.suffix[1:].lower(), dpi=dpi)
    plt.close(figure)


def name_classes(part: PartitionData, model: Any, options: Namespace) -> None:
    """Give a partition the names of --classes, or those of its model if they fit."""
    count = max(2, part._n_out)
    named = options.classes or getattr(model, "class_names", None)
    if options.classes and len(options.classes) != count:
        raise SplineCamError(
            f"--classes has {len(options.classes)} names, but there are {count} classes."
        )
    if options.classes and len(set(options.classes)) < count:
        raise SplineCamError("--classes has a name twice: each class needs a name of its own.")
    if named and len(named) == count == len(set(named)):
        part.names = named


def axis_words(domain: Domain, features: Sequence[str] | None) -> Sequence[str] | None:
    """Return the two names of --features for the axes of a picture."""
    if not features or len(features) == 2:
        return features
    shown = ((0,), (1,)) if is_input_plane(domain) else sliced_features(domain)
    if shown is None or len(features) != domain.dim:
        every = f"{domain.dim:,}, one for each feature, or " if shown else ""
        raise SplineCamError(f"--features has {len(features)} names: give {every}2, for the axes.")
    return [features[int(np.ravel_multi_index(i, domain.input_shape))] for i in shown]


def name_axes(ax: Any, domain: Domain, options: Namespace) -> None:
    """Write the names of --features to the axes of a picture, if it has labels."""
    words = axis_words(domain, options.features)
    if words and ax.get_xlabel():
        ax.set_xlabel(written(words[0]))
        ax.set_ylabel(written(words[1]))


def _style(options: Namespace) -> dict[str, Any]:
    """Return the keyword arguments of the function that draws."""
    words = {name: getattr(options, name) for name in ("color", "output", "level", "axes")}
    words["edges"] = False if options.no_edges else None
    implied = None if options.level is None else True  # --level asks for the boundary
    words["boundary"] = implied if options.boundary is None else options.boundary
    return {name: value for name, value in words.items() if value is not None}


def are_images(samples: Tensor) -> bool:
    """Return whether samples (N, ...) are a few images, in grey or in colour."""
    *channels, high, wide = samples.shape[1:] if samples.ndim > 2 else (0, 0)
    few = len(samples) <= _THUMBNAILS
    return few and min(high, wide) > 3 and (not channels or channels in ([1], [3]))
