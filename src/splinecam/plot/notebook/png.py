"""Small pictures as PNG files of at most 256 colours, inside of HTML."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Pixels = NDArray[np.uint8]

__all__ = ["data_uri", "png"]

_COLORS = 256
_MOST = 60_000  # bytes of a file; larger pictures are made coarser
_CODES = 1 << 21  # colours that are told apart when the palette is chosen


def data_uri(pixels: Pixels) -> str:
    """A picture (h, w, 4) as the source of an image element, of bounded length."""
    file = png(pixels)
    if len(file) > _MOST:
        file = png(_halved(pixels))
    return f"data:image/png;base64,{base64.b64encode(file).decode()}"


def png(pixels: Pixels) -> bytes:
    r"""A PNG file of a picture (h, w, 4) from the top, with the 256 colours that suit it best.

    >>> png(np.zeros((2, 3, 4), np.uint8))[:8]
    b'\x89PNG\r\n\x1a\n'
    """
    palette, index = _indexed(pixels)
    high, wide = index.shape
    rows = np.zeros((high, wide + 1), np.uint8)  # each row begins with its filter: none
    rows[:, 1:] = index
    header = struct.pack(">IIBBBBB", wide, high, 8, 3, 0, 0, 0)
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", header),
            _chunk(b"PLTE", palette[:, :3].tobytes()),
            _chunk(b"tRNS", palette[:, 3].tobytes()),
            _chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)),
            _chunk(b"IEND", b""),
        ]
    )


def _chunk(kind: bytes, content: bytes) -> bytes:
    check = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)


def _indexed(pixels: Pixels) -> tuple[Pixels, Pixels]:
    """Up to 256 colours (n, 4), and the number of each pixel's colour (h, w).

    The most frequent colour of each part of the colour space is among them, so that a hue of which
    there is little is not lost; the others are the most frequent ones.
    """
    flat = pixels.reshape(-1, 4).astype(np.int64)
    r, g, b, a = flat.T
    code = (r >> 2) << 15 | (g >> 2) << 9 | (b >> 2) << 3 | a >> 5
    count = np.bincount(code, minlength=_CODES)
    found = np.flatnonzero(count)
    place = np.zeros(_CODES, np.int64)
    place[found] = np.arange(len(found))
    which = place[code]
    size = count[found]
    mean = np.stack([np.bincount(which, channel) for channel in flat.T], 1) / size[:, None]
    by_count = np.argsort(-size, kind="stable")
    coarse = (mean[by_count] // 64 @ np.array([64, 16, 4, 1])).astype(np.int64)
    first = np.zeros(len(found), bool)
    first[np.unique(coarse, return_index=True)[1]] = True
    chosen = by_count[np.argsort(~first, kind="stable")[:_COLORS]]
    nearest = _nearest(mean, mean[chosen])
    palette = np.asarray(np.round(mean[chosen]), np.uint8)
    return palette, nearest[which].astype(np.uint8).reshape(pixels.shape[:2])


def _nearest(colors: NDArray[Any], palette: NDArray[Any]) -> NDArray[np.int64]:
    """The closest entry of a palette (m, 4) to each colour (n, 4), (n,)."""
    x, y = colors.astype(np.float32), palette.astype(np.float32)
    return np.asarray(((y**2).sum(1) - 2 * (x @ y.T)).argmin(1))


def _halved(pixels: Pixels) -> Pixels:
    """The mean of every four pixels."""
    high, wide = (size // 2 * 2 for size in pixels.shape[:2])
    four = pixels[:high, :wide].reshape(high // 2, 2, wide // 2, 2, 4).astype(np.float32)
    return np.asarray(four.mean((1, 3)) + 0.5, np.uint8)
