"""What users give in place of a module, above all files of models: what they are, what to do."""

from __future__ import annotations

import os
import pickletools
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from splinecam._util.options import kind_of
from splinecam._util.unpacking import open_archive, read_text
from splinecam.errors import FileError

TO_ONNX = "Write the model to an ONNX file (with tf2onnx, or model.export in Keras)"
_BY_ONNX = f'{TO_ONNX}, and load that:\n    model = sc.load_model("net.onnx")'
_BY_KERAS = (
    "Load it with Keras on PyTorch, where a model is a module (with KERAS_BACKEND=torch in the "
    "environment):\n    model = keras.saving.load_model({path!r}).eval()\nOr write the model to an "
    'ONNX file (model.export), and load that:\n    model = sc.load_model("net.onnx")'
)
_IF_TRUSTED = (
    "Opening it can run any code. If you trust it, load what it holds, which may be the module or "
    "its weights:\n    model = torch.load({path!r}, weights_only=False)"
)
_BY_US = "Load it as a module:\n    model = sc.load_model({path!r})"
_LOAD = "Make the network by its code, then load them:\n    model.load_state_dict({load})"

KINDS = {
    "exported": ("an exported program", _BY_US),
    "torchscript": (
        "a TorchScript program",
        f"torch.export cannot follow it. {_LOAD}".replace("load them", "load the weights").format(
            load="torch.jit.load({path!r}).state_dict()"
        ),
    ),
    "state dict": (
        "a file of tensors, such as a state dict",
        _LOAD.format(load="torch.load({path!r}, weights_only=True)"),
    ),
    "checkpoint": ("a pickled checkpoint", _IF_TRUSTED),
    "safetensors": (
        "a file of weights",
        _LOAD.format(load="safetensors.torch.load_file({path!r})"),
    ),
    "arrays": (
        "a file of weights",
        _LOAD.format(load="{{k: torch.from_numpy(v) for k, v in np.load({path!r}).items()}}"),
    ),
    "partition": ("a saved partition", "Load it:\n    part = sc.load({path!r})"),
    "onnx": ("an ONNX file", _BY_US),
    "keras": ("a Keras model", _BY_KERAS),
    "tensorflow": ("a TensorFlow model", _BY_ONNX),
    "transformers": (
        "a folder of Hugging Face Transformers",
        "Load it with transformers:\n    model = AutoModel.from_pretrained({path!r})",
    ),
    "python": ("Python code", "Import it, and call what makes the module"),
    "folder": ("a folder", "Load the model in it as an nn.Module first"),
    "unknown": ("a file of an unknown kind", "Load the model in it as an nn.Module first"),
}
"""Kinds of files: the name in words, and how to get an ``nn.Module`` from the file {path}."""

_TENSORS = ("collections", "torch", "torch._utils", "torch._tensor", "torch.serialization")

_SUFFIXES_OF = {
    "onnx": ".onnx",
    "keras": ".h5 .hdf5 .keras",
    "tensorflow": ".pb .tflite",
    "safetensors": ".safetensors",
    "arrays": ".npz",
    "python": ".py",
    "exported": ".pt2",
    "checkpoint": ".pt .pth .ckpt .bin .pkl",
}
SUFFIXES = {suffix: kind for kind, each in _SUFFIXES_OF.items() for suffix in each.split()}
"""The kind of file that a suffix stands for."""


def kind_of_file(path: Path) -> str:
    """Which of ``KINDS`` a file or a folder is: by its contents, or by its name if it is absent.

    >>> kind_of_file(Path("net.onnx"))
    'onnx'
    """
    named = SUFFIXES.get(path.suffix.lower(), "unknown")
    if path.is_dir():
        if (path / "saved_model.pb").exists():
            return "tensorflow"
        return "transformers" if (path / "config.json").exists() else "folder"
    if not path.is_file():
        return named
    if zipfile.is_zipfile(path):
        with open_archive(path) as archive:
            return _kind_of_archive(archive, named)
    with path.open("rb") as file:
        head = file.read(8)
    if head[:4] == b"PK\x03\x04" and named == "exported":
        raise FileError(f"{path} is truncated or damaged. Export the model again.")
    if head == b"\x89HDF\r\n\x1a\n":
        return "keras"
    pickled = head[:1] == b"\x80" and named in ("unknown", "exported")
    return "checkpoint" if pickled else named


def _kind_of_archive(archive: zipfile.ZipFile, named: str) -> str:
    names = ["/" + name for name in archive.namelist()]
    if any("/models/" in x or x == "/serialized_exported_program.json" for x in names):
        return "exported"
    if any("/code/" in name for name in names):
        return "torchscript"
    pickled = [name for name in names if name.endswith("/data.pkl")]
    if pickled:
        content = read_text(archive, archive.getinfo(pickled[0][1:]))
        return "state dict" if _holds_tensors(content) else "checkpoint"
    if "/about.npy" in names and "/mesh_uv.npy" in names:
        return "partition"
    return "keras" if "/model.weights.h5" in names else named


def _holds_tensors(content: bytes) -> bool:
    """Whether nothing but tensors in plain containers is pickled; nothing is opened to see that."""
    try:
        for code, word, _ in pickletools.genops(content):
            known = code.name != "GLOBAL" or str(word).split(" ")[0] in _TENSORS
            if not known or code.name in ("STACK_GLOBAL", "INST"):
                return False
    except ValueError:
        return False
    return True


def instead_of(value: object) -> str:
    """What was given in place of an ``nn.Module``, and how to get one.

    >>> print(instead_of("net.onnx"))
    the path of an ONNX file ('net.onnx'; there is no such file). Load it as a module:
        model = sc.load_model('net.onnx')
    """
    if isinstance(value, str | os.PathLike):
        path = Path(os.fsdecode(value))
        key, absent = kind_of_file(path), "" if path.exists() else "; there is no such file"
        if absent and key == "unknown":
            return f"the string {str(path)!r}. Load or make the model first, and give the nn.Module"
        name, code = KINDS[key]
        return f"the path of {name} ({str(path)!r}{absent}). {code.format(path=str(path))}"
    if isinstance(value, type) and issubclass(value, nn.Module):
        return f"the class {value.__name__}: make a module of it, {value.__name__}(...)"
    if isinstance(value, Mapping) and any(isinstance(item, Tensor) for item in value.values()):
        return (
            "a dict of tensors (a state dict): make the network by its code, then "
            "model.load_state_dict(...), and give the model"
        )
    if hasattr(value, "graph_signature") and hasattr(value, "module"):
        return f"{_qualified(value)}: give its module, program.module()"
    if any(base.__module__.startswith("sklearn.") for base in type(value).__mro__):
        return f"{_qualified(value)}: convert it first, sc.nn.from_sklearn(estimator)"
    return f"{_qualified(value)}; wrap functions in a module"


def _qualified(value: Any) -> str:
    """What a value is, in words, with the package that it comes from."""
    package = type(value).__module__.partition(".")[0]
    known = isinstance(value, type) or package in ("builtins", "torch", "__main__")
    return kind_of(value) if known else f"{kind_of(value)} ({package})"
