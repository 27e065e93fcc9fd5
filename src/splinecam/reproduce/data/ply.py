"""Polygons in PLY files, as text or binary in either order of bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from splinecam.reproduce.data.polygons import Polygons

_TYPES = {"char": "i1", "uchar": "u1", "short": "i2", "ushort": "u2", "int": "i4", "uint": "u4"}
_TYPES |= {"float": "f4", "double": "f8", "int8": "i1", "uint8": "u1", "int16": "i2"}
_TYPES |= {"uint16": "u2", "int32": "i4", "uint32": "u4", "float32": "f4", "float64": "f8"}
_ORDERS = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}
_FACES = ("vertex_indices", "vertex_index")


@dataclass
class _Element:
    """A table of the file: its properties by name, with the type of a count if it is a list."""

    name: str
    count: int
    properties: dict[str, tuple[str | None, str]] = field(default_factory=dict)


def parse_ply(content: bytes) -> Polygons:
    """The vertices and faces in the content of a PLY file; ``ValueError`` if it is damaged."""
    head, mark, body = content.partition(b"end_header")
    lines = [line.split() for line in head.decode("latin1").splitlines()]
    if not mark or lines[0] != ["ply"]:
        raise ValueError("it has no header of a PLY file")
    order, elements = _header(lines[1:])
    body = body[body.index(b"\n") + 1 :] if order else body
    values = _Values(body.split() if not order else body, order)
    vertices, sizes, indices = np.empty((0, 3)), [], []
    for element in elements:
        if all(count is None for count, _ in element.properties.values()):
            table = values.table(element)
            if element.name == "vertex":
                vertices = np.stack([table[axis] for axis in "xyz"], axis=1)
            continue
        for _ in range(element.count):
            for name, (count, kind) in element.properties.items():
                size = 1 if count is None else int(values.take(np.dtype(order + count), 1)[0])
                row = values.take(np.dtype(order + kind), size)
                if element.name == "face" and name in _FACES:
                    sizes.append(size)
                    indices.append(row)
    flat = np.concatenate(indices) if indices else np.empty(0)
    return Polygons.ragged(vertices, sizes, flat.astype(np.int64))


def _header(lines: list[list[str]]) -> tuple[str, list[_Element]]:
    """The order of bytes, empty for text, and the elements of the file."""
    order, elements = None, list[_Element]()
    for line in lines:
        match line:
            case ["format", name, _]:
                order = _ORDERS[name]
            case ["element", name, count]:
                elements.append(_Element(name, int(count)))
            case ["property", "list", count, kind, name]:
                elements[-1].properties[name] = (_TYPES[count], _TYPES[kind])
            case ["property", kind, name]:
                elements[-1].properties[name] = (None, _TYPES[kind])
    if order is None:
        raise ValueError("its header has no format")
    return order, elements


class _Values:
    """The numbers after the header, taken one after the other."""

    def __init__(self, body: bytes | list[bytes], order: str) -> None:
        self.body = body
        self.order = order
        self.place = 0

    def table(self, element: _Element) -> dict[str, NDArray[np.float64]]:
        """The columns of an element without lists, in float64."""
        kinds = {name: kind for name, (_, kind) in element.properties.items()}
        if self.order:
            row = np.dtype([(name, self.order + kind) for name, kind in kinds.items()])
            rows = self.take(row, element.count)
            return {name: rows[name].astype(np.float64) for name in kinds}
        flat = self.take(np.dtype("f8"), element.count * len(kinds))
        return dict(zip(kinds, flat.reshape(element.count, len(kinds)).T, strict=True))

    def take(self, kind: np.dtype[Any], count: int) -> NDArray[Any]:
        """The next so many numbers, or rows of numbers, of a type."""
        size = kind.itemsize if self.order else 1
        start, end = self.place, self.place + count * size
        if count < 0 or end > len(self.body):
            raise ValueError("it ends too early")
        self.place = end
        if isinstance(self.body, bytes):
            return np.frombuffer(self.body, kind, count, start)
        return np.array(self.body[start:end], np.float64)
