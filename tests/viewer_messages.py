"""Read the messages and archives of the viewer, as its page does."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from splinecam.viewer.container import Message

ALIGNED = 8  # every array begins at a multiple of so many bytes


def unpack(data: bytes) -> Message:
    """The message that ``pack`` wrote; a ``ValueError`` says what is damaged."""
    if data[:4] != b"SPCM" or len(data) < 12:
        raise ValueError("these bytes are not a message of the viewer")
    length, crc = struct.unpack_from("<II", data, 4)
    start = 12 + length
    if start > len(data):
        raise ValueError("the message is incomplete")
    if crc and zlib.crc32(memoryview(data)[12:]) != crc:
        raise ValueError("the message is damaged: its checksum differs")
    try:
        header = json.loads(data[12:start])
    except ValueError as error:
        raise ValueError(f"the message is damaged: its header is no JSON ({error})") from None
    arrays = {name: _array(data, start, about) for name, about in header["arrays"].items()}
    return Message(header["message"], arrays, header.get("id"))


def unarchive(data: bytes) -> dict[str, bytes]:
    """The answers that ``archive`` joined."""
    if data[:4] != b"SPCA" or len(data) < 16:
        raise ValueError("these bytes are not an archive of the viewer")
    count, crc = struct.unpack_from("<II", data, 4)
    if zlib.crc32(memoryview(data)[16:]) != crc:
        raise ValueError("the archive is damaged: its checksum differs")
    answers, at = {}, 16
    for _ in range(count):
        lengths = struct.unpack_from("<II", data, at)
        at += 8
        name, at = data[at : at + lengths[0]], at + _padded(lengths[0])
        answers[name.decode()], at = data[at : at + lengths[1]], at + _padded(lengths[1])
    return answers


def _array(data: bytes, start: int, about: Mapping[str, Any]) -> NDArray[Any]:
    dtype = np.dtype(f"<{about['dtype']}")
    count = int(np.prod(about["shape"], dtype=np.int64))
    flat = np.frombuffer(data, np.uint8, count * dtype.itemsize, start + about["at"])
    steps = about.get("encoding", "").split(",")
    if "shuffle" in steps:
        flat = np.ascontiguousarray(flat.reshape(dtype.itemsize, -1).T).reshape(-1)
    if "delta" in steps:
        unsigned = flat.view(f"<u{dtype.itemsize}")
        flat = np.cumsum(unsigned, dtype=unsigned.dtype).view(np.uint8)
    return flat.view(dtype).reshape(about["shape"])


def _padded(length: int) -> int:
    return length + -length % ALIGNED
