"""Requests that move the plane of a pane."""

from __future__ import annotations

from typing import Any

from splinecam._util.points import as_float64
from splinecam.errors import DomainError
from splinecam.geometry.domain import Domain
from splinecam.viewer.answers import Request, RequestError, number
from splinecam.viewer.panes import Pane
from splinecam.viewer.planes import Plane
from splinecam.viewer.scene_options import SceneOptions

__all__ = ["moved_plane", "plane_of"]


def plane_of(domain: Domain, options: SceneOptions) -> Plane:
    """The plane of a domain, with the given anchors if they lie in it, else those of the polygon.

    Of panes side by side, the anchors may belong to one only.
    """
    points = None if options.points is None else as_float64(options.points, "points")
    if points is not None and points.numel() % domain.dim:
        points = None  # the scene says what is wrong with them
    if options.anchors is not None:
        try:
            return Plane.of(domain, anchors=options.anchors, points=points)
        except DomainError:
            return Plane.of(domain, points=points)
    return Plane.of(domain, points=points)


def moved_plane(pane: Pane, request: Request) -> Plane:
    """The plane that a request asks for; an error if there is no network that could cut it."""
    plane = pane.plane
    if plane is None or pane.home is None:
        raise RequestError(
            "The plane cannot be moved: the partition was recorded or loaded without its network. "
            "Give the network as well: sc.load(path, model=model)."
        )
    if request.get("reset") is True:
        return pane.home
    anchors, turn, shift = (request.get(name) for name in ("anchors", "turn", "shift"))
    if anchors is None and turn is None and shift is None:
        raise RequestError("A plane is moved by anchors, turn or shift.")
    if anchors is not None:
        if not isinstance(anchors, list | tuple):
            raise RequestError("anchors must be three places or numbers of data points.")
        plane = plane.through([_anchor(each) for each in anchors])
    if turn is None and shift is None:
        return plane
    return plane.turned(_numbers(turn, "turn"), _numbers(shift, "shift"))


def _anchor(value: Any) -> tuple[float, ...] | int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not isinstance(value, list | tuple):
        raise RequestError("An anchor is a place with two coordinates, or a data point.")
    return tuple(number(each, "anchors") for each in value)


def _numbers(values: Any, name: str) -> tuple[float, ...]:
    if values is None:
        return ()
    if not isinstance(values, list | tuple):
        raise RequestError(f"{name} must be a list of numbers, one for each direction.")
    return tuple(number(each, name) for each in values)
