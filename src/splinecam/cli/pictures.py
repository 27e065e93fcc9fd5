"""The pictures that options ask for, written to files."""

from __future__ import annotations

import inspect
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from splinecam.errors import SplineCamError
from splinecam.plot import (
    plot,
    plot_histograms,
    plot_layers,
    plot_surface,
    require_matplotlib,
)

if TYPE_CHECKING:
    from splinecam.partition import Partition

__all__ = ["draw", "prepare_pictures"]

_KINDS: dict[str, Callable[..., Any]] = {
    "regions": plot,
    "surface": plot_surface,
    "layers": plot_layers,
    "histograms": plot_histograms,
}


def prepare_pictures() -> None:
    """See to it that pictures can be drawn, without a screen."""
    require_matplotlib()
    import matplotlib

    matplotlib.use("Agg")


def draw(
    part: Partition,
    paths: Sequence[Path],
    options: Namespace,
    *,
    kind: str = "regions",
    anchors: Tensor | None = None,
) -> None:
    """One picture, in each of the files; anchors: samples (N, ...) to be marked in it."""
    if not paths:
        return
    import matplotlib.pyplot as plt

    style = _style(options, kind)
    if anchors is not None:
        style |= {"points": anchors, "images": _are_images(anchors)}
    try:
        made: Any = _KINDS[kind](part, **style)
    except (IndexError, ValueError) as error:
        raise SplineCamError(f"There is no such picture: {error}.") from error
    figure = made if hasattr(made, "savefig") else made.figure
    if options.size is not None:
        wide, high = figure.get_size_inches()
        figure.set_size_inches(options.size, options.size * high / wide)
    for path in paths:
        figure.savefig(path, dpi=options.dpi)
    plt.close(figure)


def _style(options: Namespace, kind: str) -> dict[str, Any]:
    """What the function that draws is to be given; an error if it does not know of an option."""
    words = {name: getattr(options, name) for name in ("color", "output", "level", "axes")}
    style = {name: value for name, value in words.items() if value is not None}
    style |= {name: False for name in ("edges", "boundary") if getattr(options, f"no_{name}")}
    parameters = inspect.signature(_KINDS[kind]).parameters
    known = parameters | inspect.signature(plot).parameters if "style" in parameters else parameters
    for name in style:
        if name not in known or (name, kind) == ("axes", "histograms"):
            option = f"no-{name}" if style[name] is False else name
            raise SplineCamError(f"--{option} is not for a picture of {kind}.")
    return style


def _are_images(samples: Tensor) -> bool:
    """Whether samples (N, ...) have the shape of pictures: grey or in colour."""
    *channels, high, wide = samples.shape[1:] if samples.ndim > 2 else (0, 0)
    return min(high, wide) > 3 and (not channels or channels in ([1], [3]))
