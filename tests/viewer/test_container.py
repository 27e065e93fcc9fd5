"""Messages and archives come back as they were packed, and damage is noticed."""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as some

from splinecam.viewer.container import archive, key_of, pack
from viewer_messages import unarchive, unpack

TYPES = ["f8", "f4", "u4", "i4", "u2", "i2", "u1", "i1"]
arrays = st.sampled_from(TYPES).flatmap(
    lambda kind: some.arrays(np.dtype(kind), some.array_shapes(min_dims=1, min_side=0))
)


@pytest.mark.slow
@given(
    st.dictionaries(st.text(max_size=5), arrays, max_size=3),
    st.booleans(),
    st.booleans(),
    st.none() | st.integers(0, 1000),
)
def test_messages_come_back(
    arrays: dict[str, Any], checksum: bool, compact: bool, number: int | None
) -> None:
    message = {"kind": "x", "text": "‖A‖ </script> \ud800", "list": [1, 2.5, None]}
    data = pack(message, arrays, request_id=number, checksum=checksum, compact=compact)
    found = unpack(data)
    assert found.message == message
    assert found.request_id == number
    assert list(found.arrays) == list(arrays)
    for name, array in arrays.items():
        assert found.arrays[name].dtype == array.dtype
        assert found.arrays[name].shape == array.shape
        assert found.arrays[name].tobytes() == array.tobytes()


@pytest.mark.parametrize("kind", TYPES)
def test_every_encoding_is_exact(kind: str) -> None:
    rng = np.random.default_rng(0)
    info = np.iinfo(kind) if kind[0] != "f" else None
    wild = rng.integers(info.min, info.max, 999, kind, True) if info else rng.normal(size=999)
    for array in (np.arange(999) % 100, np.repeat(7, 999), wild):
        given = array.astype(kind).reshape(333, 3)
        found = unpack(pack({}, {"a": given}, compact=True)).arrays["a"]
        assert np.array_equal(found, given)


def test_the_bytes_are_as_described() -> None:
    data = pack({"kind": "ok"}, {"a": np.array([1, 2, 4], "u2"), "b": np.array([1.5])})
    length, crc = struct.unpack_from("<II", data, 4)
    assert data[:4] == b"SPCM"
    assert crc == 0
    assert (12 + length) % 8 == 0
    header = json.loads(data[12 : 12 + length])
    assert header["message"] == {"kind": "ok"}
    assert header["arrays"]["a"] == {"dtype": "u2", "shape": [3], "at": 0}
    assert header["arrays"]["b"]["at"] == 8
    assert data[12 + length :] == struct.pack("<HHHxxd", 1, 2, 4, 1.5)


def test_delta_comes_before_shuffle() -> None:
    array = np.arange(0, 300_000, 3, dtype="u4")
    data = pack({}, {"a": array}, compact=True)
    length = struct.unpack_from("<I", data, 4)[0]
    about = json.loads(data[12 : 12 + length])["arrays"]["a"]
    assert "delta" in about["encoding"]
    assert len(zlib.compress(data)) < 2000


def test_the_checksum_notices_every_damaged_byte() -> None:
    data = pack({"kind": "ok"}, {"a": np.arange(9.0)}, checksum=True)
    assert zlib.crc32(data[12:]) == struct.unpack_from("<I", data, 8)[0]
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 1
        with pytest.raises(ValueError, match=r"damaged|not a message|incomplete"):
            unpack(bytes(damaged))


def test_tensors_and_views_are_packed() -> None:
    tensor = torch.arange(12, dtype=torch.int32).view(3, 4).T
    found = unpack(pack({}, {"a": tensor, "b": np.arange(6, dtype=">f4")[::2]})).arrays
    assert np.array_equal(found["a"], tensor.numpy())
    assert np.array_equal(found["b"], [0, 2, 4])


def test_other_types_are_refused() -> None:
    with pytest.raises(TypeError, match="int64"):
        pack({}, {"a": np.arange(3)})
    with pytest.raises(ValueError, match="JSON"):
        pack({"x": float("nan")})


@given(st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=9), st.binary(max_size=40)))
def test_archives_come_back(answers: dict[str, bytes]) -> None:
    data = archive(answers)
    assert len(data) % 8 == 0
    assert unarchive(data) == answers


def test_an_archive_is_as_described() -> None:
    data = archive({"ab": b"xyz"})
    assert data[:4] == b"SPCA"
    assert struct.unpack_from("<III", data, 4) == (1, zlib.crc32(data[16:]), 0)
    assert data[16:] == struct.pack("<II", 2, 3) + b"ab\0\0\0\0\0\0" + b"xyz\0\0\0\0\0"
    for place in range(8, len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 1
        if place not in range(12, 16):
            with pytest.raises(ValueError, match="damaged"):
                unarchive(bytes(damaged))


def test_keys_are_sorted_and_without_spaces() -> None:
    request = {"mesh": "0/0", "ask": "coloring", "output": None, "name": "‖A‖"}
    assert key_of(request) == '{"ask":"coloring","mesh":"0/0","name":"‖A‖","output":null}'
