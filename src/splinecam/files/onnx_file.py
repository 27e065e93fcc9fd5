"""Read the message in an ONNX file and its tensors, checked against the bytes that are there.

External data are read only from files in the folder of the model, and below it. Large weights stay
in the file until they are needed, so that their bytes are copied once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import torch
from torch import Tensor

from splinecam._util.files import reason_of
from splinecam._util.text import optional
from splinecam.errors import CaptureError, FileError

MOST_ENTRIES = 1 << 26
"""The most numbers of a value that is made while a file is read: 512 MB in float64."""

_MOST_AXES = 64  # as in NumPy
_FLOAT16, _BFLOAT16 = 10, 16
# For codes of TensorProto.DataType: the field with the entries, and their types in bytes and here.
_KINDS: dict[int, tuple[str, Any, torch.dtype]] = {
    1: ("float_data", np.dtype("<f4"), torch.float32),
    2: ("int32_data", np.dtype("u1"), torch.uint8),
    3: ("int32_data", np.dtype("i1"), torch.int8),
    5: ("int32_data", np.dtype("<i2"), torch.int16),
    6: ("int32_data", np.dtype("<i4"), torch.int32),
    7: ("int64_data", np.dtype("<i8"), torch.int64),
    9: ("int32_data", np.dtype("?"), torch.bool),
    _FLOAT16: ("int32_data", np.dtype("<f2"), torch.float16),
    11: ("double_data", np.dtype("<f8"), torch.float64),
    _BFLOAT16: ("int32_data", np.dtype("<u2"), torch.bfloat16),
}


def dtype_of_code(code: int) -> torch.dtype | None:
    """The torch type for a code of ONNX; None if there is none, as for strings.

    >>> dtype_of_code(1)
    torch.float32
    """
    return _KINDS[code][2] if code in _KINDS else None


def bounded(shape: tuple[int, ...], what: str) -> tuple[int, ...]:
    """The shape itself, or an error if a value of this shape would be gigantic."""
    if len(shape) > _MOST_AXES:
        raise FileError(f"{what} would have {len(shape)} axes: at most {_MOST_AXES} can be read.")
    if any(size < 0 for size in shape) or prod(shape) > MOST_ENTRIES:
        raise FileError(
            f"{what} would have the shape {tuple(shape)}: a value that is made while a file is "
            f"read may have at most {MOST_ENTRIES} entries."
        )
    return shape


class Bytes(NamedTuple):
    """The place of some bytes in a file."""

    start: int
    size: int


def read_tensor(proto: Any, path: Path, what: str = "", at: Bytes | None = None) -> Tensor:
    """The tensor of a ``TensorProto`` in the file at a path.

    what: its name in errors; at: its bytes, if they were left in the file.
    """
    what, code = f"the tensor {what or proto.name!r}", proto.data_type
    if code not in _KINDS:
        raise damaged(path, f"{what} has the type {code}, which is not numeric")
    field, dtype, kind = _KINDS[code]
    shape = tuple(int(size) for size in proto.dims)
    count, size = prod(shape), prod(shape) * dtype.itemsize
    if any(each < 0 for each in shape):
        raise damaged(path, f"{what} has the shape {shape}")
    external = proto.data_location == proto.EXTERNAL
    if at is None and not external and not proto.HasField("raw_data"):
        entries = getattr(proto, field)
        if len(entries) != count:
            raise damaged(path, f"{what} of shape {shape} has {len(entries)} entries, not {count}")
        if code in (_FLOAT16, _BFLOAT16):  # their bits are stored as whole numbers
            return _tensor(np.array(entries, np.int64).astype("<u2").view(dtype), shape, kind)
        return _tensor(np.array(entries).astype(dtype), shape, kind)
    count = len(proto.raw_data) if at is None else at.size
    if not external and count != size:
        raise damaged(path, f"{what} of shape {shape} has {count} bytes, not {size}")
    if external:
        raw = _external(proto, path, what, size)
    else:
        raw = proto.raw_data if at is None else _bytes_at(path, at, path, what)
    array = np.frombuffer(raw, "u1") != 0 if kind is torch.bool else np.frombuffer(raw, dtype)
    return _tensor(array, shape, kind)


def _external(proto: Any, path: Path, what: str, expected: int) -> Any:
    """The bytes of a tensor in another file."""
    given = {entry.key: entry.value for entry in proto.external_data}
    file = _inside(path, given.get("location", ""), what)
    try:
        start, size = int(given.get("offset", 0)), file.stat().st_size
        count = int(given["length"]) if "length" in given else expected
    except (ValueError, OSError) as error:
        raise damaged(path, f"the external data of {what} cannot be found") from error
    if start < 0 or count != expected or start + count > size:
        needed = f"{what} needs {expected} bytes from byte {start} of {file.name}"
        raise damaged(path, f"{needed}, which has {size}")
    return _bytes_at(file, Bytes(start, count), path, what)


def _bytes_at(file: Path, at: Bytes, path: Path, what: str) -> Any:
    """Some bytes of a file, for a tensor of the file at a path."""
    found = np.empty(at.size, "u1")
    try:
        with file.open("rb") as stream:
            stream.seek(at.start)
            count = stream.readinto(found.data)
    except OSError as error:
        raise FileError(f"{file} cannot be read: {reason_of(error)}.") from error
    if count != at.size:
        raise damaged(path, f"{file.name} ends within {what}")
    return found


def _inside(path: Path, location: str, what: str) -> Path:
    """The file with external data, which must lie in the folder of the model or below."""
    folder = path.resolve().parent
    pure = [PurePosixPath(location), PureWindowsPath(location)]
    outer = any(p.is_absolute() or p.drive or ".." in p.parts for p in pure)
    plain = location and "\0" not in location and not outer
    file = (folder / location).resolve() if plain else folder
    if not plain or not file.is_relative_to(folder):
        raise FileError(
            f"{path} keeps {what} in {location!r}, outside of its folder, where nothing is read. "
            "Put the file with the data beside the model."
        )
    if not file.is_file():
        raise FileError(
            f"{path} keeps {what} in {location!r}, which is missing: put it beside the model."
        )
    return file


def _tensor(array: Any, shape: tuple[int, ...], kind: torch.dtype) -> Tensor:
    """A tensor with a memory of its own."""
    if kind is torch.bfloat16:
        wide = array.astype("<u4") << 16
        return torch.from_numpy(wide.view("<f4").copy()).to(torch.bfloat16).reshape(shape)
    own = array if array.flags.writeable else np.array(array)  # what is read-only is a message's
    return torch.from_numpy(own).to(kind).reshape(shape)


OLDEST_OPSET = 7
_MOST_BYTES = 2**31 - 1  # of one protobuf message
_MOST_NODES = 20_000  # after functions are written out
_DEEPEST = 100  # calls of functions within functions
_STANDARD = ("", "ai.onnx")
_LARGE = 1 << 16  # bytes of weights that stay in the file
_MOST_FIELDS = 1 << 20  # that are looked at one by one to find these
_WEIGHTS = (7, 5, 9)  # of the fields for the graph, its initialisers, and their bytes
_VARINT, _EIGHT, _COUNTED, _FOUR = 0, 1, 2, 5  # kinds of fields


def _package() -> Any:
    """The package ``onnx``, or an error that says what to install."""
    return optional("onnx", "Reading an ONNX file", "onnx")


def damaged(path: Path, why: str) -> FileError:
    """The error for a file that is not what an ONNX file must be."""
    return FileError(
        f"{path} is damaged, or is no ONNX file: {why}. Write it again, or look at it with "
        "onnx.checker.check_model."
    )


class OnnxMessage(NamedTuple):
    """A ``ModelProto``, and where the bytes of large initialisers are in the file, by name."""

    model: Any
    large: Mapping[str, Bytes]


def read_message(path: Path) -> OnnxMessage:
    """The message in a file, without its external data; functions are written out."""
    onnx = _package()
    if not path.is_file():
        raise FileError(f"There is no file {path}.")
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise damaged(path, "it is larger than 2 GB, which is more than one message can hold")
        places: dict[int, Bytes] = {}
        with path.open("rb") as file:
            content = _stripped(
                file, path.stat().st_size, _WEIGHTS, places, iter(range(_MOST_FIELDS))
            )
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"{path} cannot be read: {reason_of(error)}.") from error
    except ValueError as error:
        raise damaged(path, f"it cannot be decoded, as {error}") from error
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
    except Exception as error:  # a DecodeError of protobuf, which onnx does not export
        raise damaged(path, "it cannot be decoded") from error
    if not model.graph.node and not model.graph.output:
        raise damaged(path, "there is no graph in it")
    if not all(isinstance(name, str) for name in _names(model.graph)):
        raise damaged(path, "a name in it is not valid UTF-8")
    large = {model.graph.initializer[i].name: at for i, at in places.items()}
    if model.functions:
        _refuse_large_functions(model, path)
        import onnx.inliner

        model = onnx.inliner.inline_local_functions(model)
    return OnnxMessage(model, large)


def _stripped(
    file: BinaryIO,
    end: int,
    way: tuple[int, ...],
    places: dict[int, Bytes],
    left: Iterator[int],
    count: int = 0,
) -> bytes:
    """The message from here to the byte ``end`` of a file, without large fields of one kind.

    way: the numbers of the fields that lead to these, from the outermost one. places: receives
    their bytes, by the number of the innermost message that has one; count: that number. left: has
    an item for each field that may still be looked at.
    """
    parts, number = list[bytes](), 0
    while (start := file.tell()) < end:
        if next(left, None) is None:
            raise ValueError(f"it has more than {_MOST_FIELDS:,} fields")
        key = _varint(file)
        kind, size = key & 7, {_EIGHT: 8, _FOUR: 4}.get(key & 7, 0)
        if kind == _VARINT:
            _varint(file)
        elif kind == _COUNTED:
            size = _varint(file)
        elif not size:
            raise ValueError(f"there is no field of kind {kind}")
        begin = file.tell()
        if begin + size > end:
            raise ValueError("a field goes beyond the message")
        wanted = kind == _COUNTED and key >> 3 == way[0]
        if wanted and number and len(way) != 2:  # of which parts would be joined, or left out
            raise ValueError("there is a second graph, or a tensor has its bytes twice")
        if not wanted or size < _LARGE:
            file.seek(start)
            parts.append(file.read(begin + size - start))
        elif len(way) > 1:
            inner = _stripped(file, begin + size, way[1:], places, left, number)
            parts.append(_as_varint(key) + _as_varint(len(inner)) + inner)
        else:
            places[count] = Bytes(begin, size)
            file.seek(begin + size)
        number += wanted
    return b"".join(parts)


def _varint(file: BinaryIO) -> int:
    """The next whole number in a file, of which each byte has seven bits."""
    found = 0
    for shift in range(0, 70, 7):
        byte = file.read(1)
        if not byte:
            raise ValueError("a number goes beyond the file")
        found |= (byte[0] & 127) << shift
        if byte[0] < 128:
            return found
    raise ValueError("a number is too long")


def _as_varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def _names(graph: Any) -> Iterator[Any]:
    """The names in a graph; protobuf gives a name as bytes if it is not valid UTF-8."""
    for item in (*graph.input, *graph.output, *graph.initializer):
        yield item.name
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        yield from (attribute.name for attribute in node.attribute)


def _refuse_large_functions(model: Any, path: Path) -> None:
    """Raise an error if functions call themselves, or grow beyond bounds when written out."""
    # Functions that nobody calls count, and so do calls in graphs within graphs: the package
    # ``onnx`` follows all of them when it writes functions out.
    bodies = {(f.domain, f.name): f.node for f in model.functions}
    sizes: dict[tuple[str, str], int] = {}

    def size(nodes: Sequence[Any], outer: tuple[Any, ...]) -> int:
        total = 0
        for node in _with_inner(nodes):
            key = (node.domain, node.op_type)
            if key not in bodies:
                total += 1
                continue
            if key in outer:
                raise damaged(path, f"the function {node.op_type} calls itself")
            if key not in sizes:
                if len(outer) > _DEEPEST:
                    raise damaged(path, f"its functions call each other {_DEEPEST} deep")
                sizes[key] = size(bodies[key], (*outer, key))
            total += sizes[key]
        if total > _MOST_NODES:
            raise damaged(path, f"its functions stand for more than {_MOST_NODES} nodes")
        return total

    size(model.graph.node, ())
    for key, nodes in bodies.items():
        size(nodes, (key,))


def _with_inner(nodes: Sequence[Any]) -> Iterator[Any]:
    """The nodes, and the nodes of graphs in their attributes."""
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                waiting.extend(graph.node)


def opset_of(model: Any, path: Path) -> int:
    """The version of the operations in a model, or an error if it is not known."""
    newest = int(_package().defs.onnx_opset_version())
    versions = [entry.version for entry in model.opset_import if entry.domain in _STANDARD]
    if not versions:
        raise damaged(path, "it does not say which version of the operations (opset) it uses")
    version = int(max(versions))
    if version < OLDEST_OPSET:
        raise CaptureError(
            f"{path} uses opset {version}: opsets {OLDEST_OPSET} to {newest} can be read. Convert "
            f"it:\n    onnx.save(onnx.version_converter.convert_version(onnx.load({str(path)!r}), "
            f"{2 * OLDEST_OPSET - 1}), ...)"
        )
    if version > newest:
        raise CaptureError(
            f"{path} uses opset {version}, but the installed onnx knows {newest} at most. Run: "
            "pip install --upgrade onnx"
        )
    return version
