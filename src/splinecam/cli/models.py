"""From the argument MODEL of a command to a module: code, an ONNX file, an exported program."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from torch import nn

from splinecam._util.nearest_names import did_you_mean
from splinecam.errors import FileError, SplineCamError
from splinecam.importing.exported import EXPORT, read_program
from splinecam.importing.onnx_module import read_onnx
from splinecam.importing.tensor_files import require_file
from splinecam.importing.weights import load_weights
from splinecam.network.capture.tracing.diagnosis import first_line
from splinecam.network.model_files import KINDS, SUFFIXES, TO_ONNX, kind_of_file

__all__ = ["Found", "find_model"]

_FRAMES = 3  # of the user's own code, shown when it raises
_FOREIGN = ("importlib", "/torch/", "\\torch\\", __file__)  # files that are not the user's
_CHECKPOINTS = (".pt", ".pth", ".ckpt", ".bin", ".pkl", ".safetensors", ".npz")


@dataclass(frozen=True)
class Found:
    """A model in eval mode, and the shape of one input where the file tells it."""

    model: nn.Module
    input_shape: tuple[int, ...] | None = None


def find_model(
    word: str, *, arguments: Mapping[str, Any] | None = None, weights: Path | None = None
) -> Found:
    """Return the model that ``net.onnx``, ``net.pt2`` or ``package.module:factory`` names.

    arguments: of the factory; weights: a file with a state dict for the module that it makes.
    """
    source, _, name = word.rpartition(":")
    if not source or Path(word).is_file() or Path(word).suffix in (".pt2", ".onnx"):
        if arguments or weights:
            raise SplineCamError(
                "--arg and --weights are for a model that is made by Python code "
                f"(package.module:factory), not for {word}."
            )
        return _from_file(Path(word))
    model = _built(_imported(source), source, name, arguments or {})
    if weights is not None:
        load_weights(model, weights)
    return Found(model.eval())


def _from_file(path: Path) -> Found:
    suffix = path.suffix.lower()
    if (suffix == ".py" and path.is_file()) or (not _is_model(path) and _is_module(str(path))):
        raise SplineCamError(
            f"{path} is Python code: say which function or class makes the model, as in "
            f"{path}:build. {_offers(_imported(str(path)))}"
        )
    kind = kind_of_file(path)
    if not path.exists() or kind in ("python", "folder"):
        hint = "" if suffix else " A model in Python code is written package.module:factory."
        raise FileError(f"There is no file {path}.{hint}")
    if kind == "exported":
        return Found(*read_program(path))
    if kind == "onnx":
        network = read_onnx(path)
        return Found(network.eval(), network.input_shape)
    name = KINDS[kind].name.removeprefix("a file ") if kind == "unknown" else KINDS[kind].name
    raise SplineCamError(f"{path} is {name}, which is not opened as a model. {_instead(path)}")


def _is_model(path: Path) -> bool:
    """Whether a folder is a model that another framework has written."""
    return path.is_dir() and kind_of_file(path) != "folder"


def _instead(path: Path) -> str:
    """Return what to do with a file that no model can be read from."""
    kind = kind_of_file(path)
    if KINDS[kind].foreign:
        return f"{TO_ONNX}, and give that:\n      splinecam partition net.onnx ..."
    if kind == "transformers":
        code = KINDS[kind].code.format(path=str(path))
        return (
            f"{code}\nDo that in a function of a Python file which returns the module, and give "
            "this function:\n      splinecam partition net.py:build ..."
        )
    if kind == "partition":
        return f"Draw it: splinecam plot {path}. A partition does not hold its network."
    weights = path if path.suffix.lower() in _CHECKPOINTS else "weights.pt"
    return f"""Either
  - give the code that makes the network, and a state dict as its weights:
      splinecam partition package.module:factory --weights {weights} ...
    (a state dict is written by torch.save(model.state_dict(), "weights.pt")), or
  - export the network once, and give the file that this writes:
{EXPORT}"""


# -- code -------------------------------------------------------------------------------------


def _imported(source: str) -> ModuleType:
    """Import the module in a file, or of a name; its folder, or the current one, is importable."""
    path = Path(source)
    if path.suffix != ".py":
        return _imported_by_name(source)
    require_file(path)
    _make_importable(path.parent)
    spec = importlib.util.spec_from_file_location(f"splinecam_model_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module  # as dataclasses and others expect
    with _users_code(f"Importing {source}"):
        spec.loader.exec_module(module)
    return module


def _imported_by_name(source: str) -> ModuleType:
    _make_importable(Path())
    try:
        with _users_code(f"Importing {source}"):
            return importlib.import_module(source)
    except SplineCamError as error:
        cause = error.__cause__
        missing = cause.name if isinstance(cause, ModuleNotFoundError) else None
        absent = missing is not None and f"{source}.".startswith(f"{missing}.")
        if not (absent or isinstance(cause, TypeError)):
            raise
        raise SplineCamError(
            f"There is no module {source!r}, neither in this folder nor installed. MODEL is "
            "package.module:factory, path/to/file.py:factory, an ONNX file (.onnx) or an exported "
            "program (.pt2)."
        ) from cause


def _is_module(word: str) -> bool:
    """Return whether a word that is no file names a Python module."""
    if Path(word).is_file() or Path(word).suffix.lower() in SUFFIXES:
        return False
    _make_importable(Path())
    try:
        return importlib.util.find_spec(word) is not None
    except (ImportError, ValueError):
        return False


def _make_importable(folder: Path) -> None:
    place = str(folder.resolve())
    if place not in sys.path:
        sys.path.insert(0, place)
        importlib.invalidate_caches()


def _built(module: ModuleType, source: str, name: str, arguments: Mapping[str, Any]) -> nn.Module:
    """Return the ``nn.Module`` of that name, or what the callable of that name returns."""
    target: Any = module
    for part in name.split("."):
        if not hasattr(target, part):
            hint = did_you_mean(part, dir(target))
            raise SplineCamError(f"{source} has no {name!r}.{hint} {_offers(module)}")
        target = getattr(target, part)
    if isinstance(target, nn.Module) and not arguments:
        return target
    if not callable(target) or isinstance(target, nn.Module):
        kind = "is a module already, and takes no --arg" if callable(target) else "is no factory"
        raise SplineCamError(f"{source}:{name} {kind}. {_offers(module)}")
    _require_arguments(target, f"{source}:{name}", arguments)
    with _users_code(f"{source}:{name}"):
        made = target(**arguments)
    if not isinstance(made, nn.Module):
        raise SplineCamError(
            f"{source}:{name} gave {type(made).__name__}, but a factory must return an nn.Module."
        )
    return made


def _require_arguments(factory: Any, name: str, arguments: Mapping[str, Any]) -> None:
    """Raise an error that names the arguments which a factory still needs."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        return  # some functions written in C have no signature
    absent = [
        each.name
        for each in parameters
        if each.default is each.empty
        and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        and each.name not in arguments
    ]
    if absent:
        given = " ".join(f"--arg {word}=..." for word in absent)
        raise SplineCamError(f"{name} needs {', '.join(absent)}: say {given}")


def _offers(module: ModuleType) -> str:
    """List the names in a module that may be factories."""

    def fits(item: Any) -> bool:
        own = getattr(item, "__module__", None) == module.__name__
        return isinstance(item, nn.Module) or (own and isinstance(item, (FunctionType, type)))

    names = [name for name, item in vars(module).items() if name[0] != "_" and fits(item)]
    return f"It defines: {', '.join(names[:12])}." if names else "It defines no functions."


@contextmanager
def _users_code(what: str) -> Iterator[None]:
    """Turn an error of the user's code into a short one; send what it prints to stderr."""
    try:
        with redirect_stdout(sys.stderr):
            yield
    except (Exception, SystemExit) as error:
        text = f": {first_line(error)}" if isinstance(error, Exception) and str(error) else ""
        places = [
            f"\n  {frame.filename}:{frame.lineno}, in {frame.name}: {frame.line}"
            for frame in traceback.extract_tb(error.__traceback__)
            if not any(part in frame.filename for part in _FOREIGN)
        ]
        raise SplineCamError(
            f"{what} raised {type(error).__name__}{text}{''.join(places[-_FRAMES:])}"
        ) from error
