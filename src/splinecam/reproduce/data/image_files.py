"""Image files, decoded by pillow."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from splinecam._util.text import optional
from splinecam.errors import DataError

LIMIT = 1 << 26  # bytes of one file
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp")


def decoded(content: bytes, where: str, mode: str, size: int | None = None) -> NDArray[np.uint8]:
    """The pixels (H, W) of mode "L", grey, or (H, W, 3) of mode "RGB", of an image file.

    size: the side of a square, to which the middle of the image is scaled.
    """
    image_module = optional("PIL.Image", "Reading image files", "reproduce")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # about images so large that they may be an attack
            with image_module.open(io.BytesIO(content)) as image:
                if image.mode.startswith("I"):  # 16 bits, which pillow would cut off at 255
                    deep = np.asarray(image, np.float64) / 257
                    image = image_module.fromarray(deep.round().clip(0, 255).astype(np.uint8))
                image = image.convert(mode)
                if size is not None:
                    image = _square(image, size)
                return np.asarray(image)
    except Exception as error:  # a damaged file raises anything
        raise DataError(f"{where} is not an image that pillow can read ({error}).") from error


def _square(image: Any, size: int) -> Any:
    side = min(image.size)
    left, top = ((length - side) // 2 for length in image.size)
    return image.crop((left, top, left + side, top + side)).resize((size, size))
