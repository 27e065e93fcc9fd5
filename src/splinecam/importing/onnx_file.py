"""Read the message in an ONNX file, and check what it says of itself before it is used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from splinecam._util.optional import optional
from splinecam.errors import CaptureError, FileError

__all__ = ["OLDEST_OPSET", "damaged", "opset_of", "read_message", "require_onnx"]

OLDEST_OPSET = 7
_MOST_BYTES = 2**31 - 1  # of one protobuf message
_MOST_NODES = 20_000  # after functions are written out
_DEEPEST = 100  # calls of functions within functions
_STANDARD = ("", "ai.onnx")


def require_onnx() -> Any:
    """The package ``onnx``, or an error that says what to install."""
    return optional("onnx", "Reading an ONNX file", "onnx")


def damaged(path: Path, why: str) -> FileError:
    """The error for a file that is not what an ONNX file must be."""
    return FileError(
        f"{path} is damaged, or is no ONNX file: {why}. Write it again, or look at it with "
        "onnx.checker.check_model."
    )


def read_message(path: Path) -> Any:
    """The ``ModelProto`` in a file, without its external data; functions are written out."""
    onnx = require_onnx()
    if not path.is_file():
        raise FileError(f"There is no file {path}.")
    try:
        size = path.stat().st_size
        content = path.read_bytes() if size <= _MOST_BYTES else b""
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}.") from error
    if size > _MOST_BYTES:
        raise damaged(path, "it is larger than 2 GB, which is more than one message can hold")
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
    except Exception as error:  # a DecodeError of protobuf, which onnx does not export
        raise damaged(path, "it cannot be decoded") from error
    if not model.graph.node and not model.graph.output:
        raise damaged(path, "there is no graph in it")
    if not all(isinstance(name, str) for name in _names(model.graph)):
        raise damaged(path, "a name in it is not valid UTF-8")
    if model.functions:
        _refuse_large_functions(model, path)
        import onnx.inliner

        model = onnx.inliner.inline_local_functions(model)
    return model


def _names(graph: Any) -> Iterator[Any]:
    """The names in a graph; protobuf gives one that is not valid UTF-8 as bytes."""
    for item in (*graph.input, *graph.output, *graph.initializer):
        yield item.name
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        yield from (attribute.name for attribute in node.attribute)


def _refuse_large_functions(model: Any, path: Path) -> None:
    """Raise an error if functions call themselves, or grow beyond bounds when written out.

    What is not called counts, too, and so do calls in graphs within graphs: the program that writes
    functions out follows all of them.
    """
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
    """The nodes, and those of the graphs in their attributes."""
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                waiting.extend(graph.node)


def opset_of(model: Any, path: Path) -> int:
    """The version of the operations in a model, which must be one that is known."""
    newest = int(require_onnx().defs.onnx_opset_version())
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
