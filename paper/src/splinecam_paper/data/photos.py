"""Grey photos, to which networks of two inputs are fitted."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from splinecam import DataError
from splinecam_paper.data.files import LIMIT, SUFFIXES, Wanted, decoded, missing, opened, places

_FORMULA_SIDE = 256  # of the stand-in, unless a size is wanted


@dataclass(frozen=True)
class Photo:
    """A grey photo: values (H, W), float32, from 0 (black) to 1 (white), and where it is from.

    stand_in: whether it is another picture in place of a photo that is not there.
    """

    name: str
    values: Tensor
    source: str
    stand_in: bool


def load_photo(
    name: str,
    folder: str | os.PathLike[str] | None = None,
    *,
    size: int | None = None,
    stand_in: bool = False,
) -> Photo:
    """Return a photo in grey: an image file in the folder, or one that comes with scikit-image.

    Parameters
    ----------
    name:
        The name of a file, with or without its ending, or of a photo in ``skimage.data``, for
        example "camera" or "astronaut".
    folder:
        Holds image files, itself or in a sub-folder ``photos``.
    size:
        The side of a square, to which the middle of the photo is scaled.
    stand_in:
        Return a sample image of scikit-learn, or else a picture by a formula, if the photo is not
        there.
    """
    wanted = Wanted(
        f"The photo {name!r}",
        ("photos",),
        (),
        "Get an image file of this name, or the photos of scikit-image (pip install scikit-image).",
    )
    endings = ("", *SUFFIXES)
    for place in places(folder, wanted):
        with opened(place.path) as files:
            file = files.named(*(f"{name}{ending}" for ending in endings))
            if file is not None:
                content, where = files.read(file, limit=LIMIT), files.where(file)
                return _photo(name, content, where, size, f"The photo {file}.")
    path = _packaged("skimage", "data", name)
    if path is not None:
        return _photo(name, path.read_bytes(), str(path), size, f"scikit-image's {name!r}.")
    if not stand_in:
        raise missing(folder, wanted)
    path = _packaged("sklearn", "datasets/images", "flower")
    if path is not None and find_spec("PIL") is not None:
        source = f"scikit-learn's 'flower', in place of {name!r}."
        return _photo(name, path.read_bytes(), str(path), size, source, stand_in=True)
    source = f"A picture by a formula, in place of {name!r}."
    return Photo(name, formula_photo(size or _FORMULA_SIDE), source, stand_in=True)


def _photo(
    name: str, content: bytes, where: str, size: int | None, source: str, *, stand_in: bool = False
) -> Photo:
    if size is not None and size < 1:
        raise DataError(f"The size of a photo is at least 1 pixel, not {size}.")
    grey = decoded(content, where, "L", size)
    values = torch.from_numpy(grey.astype(np.float32)).div_(255)
    return Photo(name, values, source, stand_in)


def _packaged(package: str, folder: str, name: str) -> Path | None:
    """The image file that comes with a package, which is not imported; None if there is none."""
    found = find_spec(package)
    if found is None or found.origin is None:
        return None
    paths = (Path(found.origin).parent / folder / f"{name}{ending}" for ending in SUFFIXES)
    return next((path for path in paths if path.is_file()), None)


def formula_photo(side: int) -> Tensor:
    """A grey image (side, side) of waves, a disc and a square: smooth parts and sharp edges."""
    line = torch.linspace(-1, 1, side)
    x, y = line, line[:, None]
    waves = 0.5 + 0.2 * torch.sin(7 * x + 3 * y * y) + 0.15 * torch.cos(5 * y - 4 * x * y)
    disc = ((x + 0.3) ** 2 + (y + 0.2) ** 2 < 0.16).float()
    square = ((x - 0.45).abs().maximum((y - 0.4).abs()) < 0.25).float()
    return (waves + 0.35 * disc - 0.35 * square).clamp(0, 1)
