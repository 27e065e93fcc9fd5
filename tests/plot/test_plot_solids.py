"""Pictures of surfaces in three dimensions, and their cards in notebooks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from solids import cube, octahedron, surface_of, torus
from splinecam.errors import SplineCamError
from splinecam.plot.solids import solid_picture

pytest.importorskip("matplotlib")


def drawn(ax: Any) -> Any:
    figure = ax.figure
    figure.set_dpi(50)
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba())[..., :3].astype(int)


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"color": "normal", "axes": False},
        {"color": "layer", "colorbar": True},
        {"color": "region", "edges": False, "up": "y"},
        {"color": "#aa3300", "alpha": 0.5, "view": (10, 20)},
        {"color": range(8), "cmap": "magma", "colorbar": True, "limits": (0, 5)},
    ],
)
def test_pictures_have_faces(options: dict[str, Any]) -> None:
    pixels = drawn(surface_of(octahedron(1.5)).plot(**options))
    assert (pixels.min(2) < 240).mean() > 0.05


def test_faces_have_the_light_of_their_sides() -> None:
    found = cube()
    pixels = drawn(found.plot(color="white", edges=False, axes=False, view=(30, 40)))
    colors, counts = np.unique(pixels.reshape(-1, 3), axis=0, return_counts=True)
    large = colors[np.argsort(-counts)[:4]]  # the paper, and three sides
    assert len({tuple(color) for color in large.tolist()}) == 4


def test_the_axis_that_points_up_is_chosen() -> None:
    colors = np.linspace(0, 1, len(torus()))
    pictures = [drawn(torus().plot(color=colors, axes=False, up=up, edges=False)) for up in "xyz"]
    shapes = {picture.shape for picture in pictures}
    assert len(shapes) > 1 or not np.array_equal(pictures[0], pictures[2])
    with pytest.raises(ValueError, match="up is 'w'"):
        torus().plot(up="w")


def test_wrong_colours_are_named() -> None:
    with pytest.raises(SplineCamError, match="each of the 6 faces"):
        cube().plot(color=[1.0, 2.0])
    with pytest.raises(TypeError, match="colour"):
        cube().plot(colour="red")


def test_an_empty_surface_has_a_picture_and_a_card() -> None:
    none = surface_of(octahedron(9.0))
    none.plot(color="layer")
    assert "<img" not in none._repr_html_()


def test_the_card_has_a_picture_and_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    card = torus()._repr_html_()
    assert 'alt="surface"' in card
    assert all(word in card for word in ("faces", "160", "genus", "area"))
    pixels = solid_picture(torus()._facets())
    assert pixels.shape[1] >= 200
    assert 0.05 < (pixels[..., 3] > 0).mean() < 0.95
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    assert "<img" not in torus()._repr_html_()
