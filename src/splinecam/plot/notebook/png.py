"""Small pictures as PNG files of at most 256 colours, embedded in HTML.

Python and numpy have no PNG writer, and matplotlib, which has one, need not be installed.
"""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np

from splinecam.plot.arrays import Pixels

__all__ = ["data_uri", "png"]

_COLORS = 256
_MOST = 60_000  # bytes of a file; larger pictures are made coarser
_CODES = 1 << 21  # different colours when the palette is chosen


def data_uri(pixels: Pixels) -> str:
    """A picture (h, w, 4) as the source of an image element, of bounded length."""
    file = png(pixels)
    if len(file) > _MOST:  # every pixel becomes the mean of four
        high, wide = (size // 2 * 2 for size in pixels.shape[:2])
        four = pixels[:high, :wide].reshape(high // 2, 2, wide // 2, 2, 4).astype(np.float32)
        file = png(np.asarray(four.mean((1, 3)) + 0.5, np.uint8))
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

    The most frequent colour of each part of the colour space is among them, so that rare hues are
    not lost; the others are the most frequent ones.
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
    x, y = mean.astype(np.float32), mean[chosen].astype(np.float32)
    nearest = ((y**2).sum(1) - 2 * (x @ y.T)).argmin(1)
    palette = np.asarray(np.round(mean[chosen]), np.uint8)
    return palette, nearest[which].astype(np.uint8).reshape(pixels.shape[:2])
