"""Messages and archives of messages as bytes, and their compression."""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

_BLOCK = 1 << 20  # bytes that one thread deflates at a time
_LEVEL = 4  # higher levels take far longer for 1 % less
_HEADER = b"\x78\x5e"  # of a stream with a window of 32 KiB


def deflated(data: bytes, *, block: int = _BLOCK) -> bytes:
    """Return data in the zlib format, deflated in independent blocks by several threads.

    >>> zlib.decompress(deflated(b"abc" * 1000, block=100)) == b"abc" * 1000
    True
    """
    view = memoryview(data)
    pieces = [view[first : first + block] for first in range(0, len(view), block)] or [view]
    last = len(pieces) - 1

    def compress(index: int) -> bytes:
        stream = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
        done = zlib.Z_FINISH if index == last else zlib.Z_FULL_FLUSH
        return stream.compress(pieces[index]) + stream.flush(done)

    with ThreadPoolExecutor(min(len(pieces), os.cpu_count() or 1)) as pool:
        found = list(pool.map(compress, range(len(pieces))))
    return b"".join([_HEADER, *found, struct.pack(">I", zlib.adler32(view))])


Array = NDArray[Any]

_MAGIC, _ARCHIVE = b"SPCM", b"SPCA"
_TYPES = ("f8", "f4", "u4", "i4", "u2", "i2", "u1", "i1")
_ALIGNED = 8  # every array begins at a multiple of so many bytes
_SAMPLE = 1 << 15  # numbers from which the encoding of an array is chosen
_GAIN = 0.95  # an encoding must make the sample smaller by this factor
_BOTH = "delta,shuffle"


class Message(NamedTuple):
    """The header of a message, its arrays, and the number of the request that it answers."""

    message: dict[str, Any]
    arrays: dict[str, Any] = {}  # noqa: RUF012 - never changed
    request_id: int | None = None


def pack(
    message: Mapping[str, Any],
    arrays: Mapping[str, Array | Tensor] | None = None,
    *,
    request_id: int | None = None,
    checksum: bool = False,
    compact: bool = False,
) -> bytes:
    """Return a message with its arrays as bytes.

    checksum: add the CRC-32. compact: rearrange the bytes of arrays where they then deflate better.

    >>> b'{"message":{"kind":"ok"},"arrays":{}}' in pack({"kind": "ok"})
    True
    """
    about: dict[str, dict[str, Any]] = {}
    body: list[bytes | memoryview] = []
    at = 0
    for name, given in (arrays or {}).items():
        # Arrays travel little-endian, without gaps, and in types that both sides know.
        array = given.detach().cpu().numpy() if isinstance(given, Tensor) else given
        if array.dtype.str[1:] not in _TYPES:
            kinds = ", ".join(_TYPES)
            raise TypeError(f"arrays of {array.dtype} do not travel; choose one of {kinds}")
        array = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        encoding = _best_encoding(array) if compact else ""
        data = _encoded(array, encoding)
        about[name] = {"dtype": array.dtype.str[1:], "shape": list(array.shape), "at": at}
        if encoding:
            about[name]["encoding"] = encoding
        body += [data, b"\0" * (-len(data) % _ALIGNED)]
        at += len(data) + len(body[-1])
    header: dict[str, Any] = {"message": message, "arrays": about}
    if request_id is not None:
        header["id"] = request_id
    text = json.dumps(header, separators=(",", ":"), allow_nan=False).encode()
    text += b" " * (-(12 + len(text)) % _ALIGNED)
    crc = _crc([text, *body]) if checksum else 0
    return b"".join([_MAGIC, struct.pack("<II", len(text), crc), text, *body])


def key_of(request: Mapping[str, Any]) -> str:
    """Return the name of a request's answer in an archive.

    >>> key_of({"pane": 0, "ask": "mesh", "frame": 0})
    '{"ask":"mesh","frame":0,"pane":0}'
    """
    return json.dumps(request, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def archive(answers: Mapping[str, bytes]) -> bytes:
    """Return answers by key as one piece, with a checksum of everything."""
    body = []
    for key, answer in answers.items():
        name = key.encode(errors="replace")
        body.append(struct.pack("<II", len(name), len(answer)))
        body += [name, b"\0" * (-len(name) % _ALIGNED)]
        body += [answer, b"\0" * (-len(answer) % _ALIGNED)]
    return b"".join([_ARCHIVE, struct.pack("<III", len(answers), _crc(body), 0), *body])


def _best_encoding(array: Array) -> str:
    """Return the encoding with which a sample of an array deflates best."""
    if array.size < 64 or array.itemsize == 1:
        return ""
    flat = array.reshape(-1)
    first = max(0, (flat.size - _SAMPLE) // 2)
    sample = flat[first : first + _SAMPLE]
    choices = ["", "shuffle"] if array.dtype.kind == "f" else ["", "delta", "shuffle", _BOTH]
    sizes = {each: len(zlib.compress(_encoded(sample, each), 1)) for each in choices}
    best = min(sizes, key=lambda each: sizes[each])
    return best if sizes[best] < _GAIN * sizes[""] else ""


def _encoded(array: Array, encoding: str) -> bytes | memoryview:
    flat = array.reshape(-1)
    for step in encoding.split(",") if encoding else ():
        if step == "delta":
            unsigned = flat.view(f"u{array.itemsize}")
            flat = np.diff(unsigned, prepend=unsigned[:1] - unsigned[:1])
        else:
            flat = flat.view(np.uint8).reshape(-1, array.itemsize).T.reshape(-1)
    return memoryview(np.ascontiguousarray(flat).view(np.uint8).data)


def _crc(pieces: Iterable[bytes | memoryview]) -> int:
    return reduce(lambda value, piece: zlib.crc32(piece, value), pieces, 0)
