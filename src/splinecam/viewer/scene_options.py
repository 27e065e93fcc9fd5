"""What a viewer is told about the panes that it shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["SceneOptions"]


@dataclass(frozen=True)
class SceneOptions:
    """What a viewer is told about the panes; most are options of ``part.plot`` by the same names.

    color: the colours to begin with; colors: arrays of numbers or colours by region, or functions
    of a partition that give them, by name. points, labels, images: data points. anchors: three
    inputs that span the plane. shape: (h, w) or (channels, h, w) of flat inputs that are images.
    state: the view to begin with. python: a line that names what is shown. live: whether Python
    answers while one looks.
    """

    title: str = ""
    color: str | None = None
    output: int | None = None
    cmap: Any = None
    limits: tuple[float, float] | None = None
    level: float | None = None
    seed: int = 0
    names: Sequence[str] | None = None
    colors: Mapping[str, Any] = field(default_factory=dict)
    points: Any = None
    labels: Any = None
    images: Any = None
    anchors: Any = None
    shape: Sequence[int] | None = None
    state: Mapping[str, Any] = field(default_factory=dict)
    python: str = ""
    live: bool = True

    def __post_init__(self) -> None:
        if self.color == "class" and self.level is None:  # a single output has classes, too
            object.__setattr__(self, "level", 0.0)
