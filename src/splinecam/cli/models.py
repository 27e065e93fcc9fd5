"""From the word MODEL of a command to a module: made by Python code, or an exported program."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import sys
import traceback
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from splinecam.cli.exported import EXPORT, read_program
from splinecam.cli.samples import load_tensors, require_file
from splinecam.errors import FileError, SplineCamError
from splinecam.network.capture.graph import first_line
from splinecam.network.model_files import KINDS, SUFFIXES, kind_of_file

__all__ = ["Found", "find_model"]

_FRAMES = 3  # of the user's own code, shown when it raises
_NOT_THEIRS = ("importlib", "/torch/", "\\torch\\", __file__)  # files that they do not look into
_WRAPPED = ("state_dict", "model_state_dict", "model")  # where checkpoints keep their weights
_PREFIXES = ("module.", "_orig_mod.")  # of data parallelism and torch.compile
_CHECKPOINTS = (".pt", ".pth", ".ckpt", ".bin", ".pkl", ".safetensors", ".npz")


@dataclass(frozen=True)
class Found:
    """A model in eval mode, and the shape of one input where the file tells it."""

    model: nn.Module
    input_shape: tuple[int, ...] | None = None


def find_model(
    word: str, *, arguments: Mapping[str, Any] | None = None, weights: Path | None = None
) -> Found:
    """The model that a word names: ``net.pt2``, ``package.module:factory`` or ``net.py:factory``.

    arguments: for the factory; weights: a state dict for the module that it makes.
    """
    source, _, name = word.rpartition(":")
    if not source or Path(word).is_file() or Path(word).suffix == ".pt2":
        if arguments or weights:
            raise SplineCamError(
                "--arg and --weights are for a model that is made by Python code "
                f"(package.module:factory), not for {word}."
            )
        return _from_file(Path(word))
    model = _built(_imported(source), source, name, arguments or {})
    if weights is not None:
        _load_weights(model, weights)
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
    name = KINDS[kind].name.removeprefix("a file ") if kind == "unknown" else KINDS[kind].name
    raise SplineCamError(f"{path} is {name}, which is not opened as a model. {_instead(path)}")


def _is_model(path: Path) -> bool:
    """Whether a folder is a model that another framework has written."""
    return path.is_dir() and kind_of_file(path) != "folder"


def _instead(path: Path) -> str:
    """What to do with a file that is no exported program."""
    kind = kind_of_file(path)
    if KINDS[kind].foreign or kind == "transformers":
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
    """The module in a file or of a name; the folder it is in, or the current one, is importable."""
    path = Path(source)
    if path.suffix != ".py":
        return _module(source)
    require_file(path)
    _importable(path.parent)
    spec = importlib.util.spec_from_file_location(f"splinecam_model_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module  # as dataclasses and others expect
    with _users_code(f"Importing {source}"):
        spec.loader.exec_module(module)
    return module


def _module(source: str) -> ModuleType:
    _importable(Path())
    try:
        with _users_code(f"Importing {source}"):
            return importlib.import_module(source)
    except SplineCamError as error:
        cause = error.__cause__
        absent = isinstance(cause, ModuleNotFoundError) and f"{source}.".startswith(
            f"{cause.name}."
        )
        if not (absent or isinstance(cause, TypeError)):
            raise
        raise SplineCamError(
            f"There is no module {source!r}, neither in this folder nor installed. MODEL is "
            "package.module:factory, path/to/file.py:factory or an exported program (.pt2)."
        ) from cause


def _is_module(word: str) -> bool:
    """Whether a word that is no file names a module of Python."""
    if Path(word).is_file() or Path(word).suffix.lower() in SUFFIXES:
        return False
    _importable(Path())
    try:
        return importlib.util.find_spec(word) is not None
    except (ImportError, ValueError):
        return False


def _importable(folder: Path) -> None:
    place = str(folder.resolve())
    if place not in sys.path:
        sys.path.insert(0, place)
        importlib.invalidate_caches()


def _built(module: ModuleType, source: str, name: str, arguments: Mapping[str, Any]) -> nn.Module:
    """The module of that name, or the one that the callable of that name makes."""
    target: Any = module
    for part in name.split("."):
        if not hasattr(target, part):
            near = difflib.get_close_matches(part, dir(target), 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
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
    """An error that says how to give a factory what it needs."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        return  # some that are written in C do not tell
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    absent = [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind not in several
        and parameter.name not in arguments
    ]
    if absent:
        given = " ".join(f"--arg {word}=..." for word in absent)
        raise SplineCamError(f"{name} needs {', '.join(absent)}: say {given}")


def _offers(module: ModuleType) -> str:
    """The names of what a module defines that may be factories."""

    def fits(name: str, item: Any) -> bool:
        if name.startswith("_") or isinstance(item, nn.Module):
            return not name.startswith("_")
        own = getattr(item, "__module__", None) == module.__name__
        return own and (inspect.isfunction(item) or inspect.isclass(item))

    names = [name for name, item in vars(module).items() if fits(name, item)]
    return f"It defines: {', '.join(names[:12])}." if names else "It defines no functions."


@contextmanager
def _users_code(what: str) -> Iterator[None]:
    """Turn whatever code of the user raises into a short error; what it prints is no result."""
    try:
        with redirect_stdout(sys.stderr):
            yield
    except (Exception, SystemExit) as error:
        text = f": {first_line(error)}" if isinstance(error, Exception) and str(error) else ""
        places = [
            f"\n  {frame.filename}:{frame.lineno}, in {frame.name}: {frame.line}"
            for frame in traceback.extract_tb(error.__traceback__)
            if not any(part in frame.filename for part in _NOT_THEIRS)
        ]
        raise SplineCamError(
            f"{what} raised {type(error).__name__}{text}{''.join(places[-_FRAMES:])}"
        ) from error


# -- weights ----------------------------------------------------------------------------------


def _load_weights(model: nn.Module, path: Path) -> None:
    state = _plain_names(_state_dict(path))
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        lines = [line.strip() for line in str(error).splitlines()[1:] if line.strip()]
        shown = "".join(f"\n  {line[:200]}{' ...' * (len(line) > 200)}" for line in lines[:6])
        more = f"\n  ... and {len(lines) - 6} more" if len(lines) > 6 else ""
        raise SplineCamError(
            f"The weights in {path} do not fit {type(model).__name__}:{shown}{more}"
        ) from error


def _state_dict(path: Path) -> dict[str, Tensor]:
    """The tensors in a file by the names that parameters and buffers have."""
    suffix = path.suffix.lower()
    if suffix == ".npz":
        require_file(path)
        try:
            with np.load(path, allow_pickle=False) as file:
                return {name: torch.from_numpy(file[name]) for name in file.files}
        except (ValueError, TypeError, OSError, EOFError, zipfile.BadZipFile) as error:
            raise FileError(f"{path} cannot be read as weights: {first_line(error)}") from error
    if suffix == ".safetensors":
        return _safetensors(path)
    found = load_tensors(path)
    for key in _WRAPPED:
        if isinstance(found, Mapping) and isinstance(found.get(key), Mapping):
            found = found[key]
    tensors = isinstance(found, Mapping) and all(isinstance(x, Tensor) for x in found.values())
    if not tensors:
        raise FileError(
            f"{path} holds no state dict. Write one with "
            'torch.save(model.state_dict(), "weights.pt").'
        )
    return dict(found)


def _safetensors(path: Path) -> dict[str, Tensor]:
    require_file(path)
    try:
        load = importlib.import_module("safetensors.torch").load_file
    except ImportError as error:
        raise SplineCamError(
            f"Reading {path} needs safetensors, which is missing. Run: pip install safetensors"
        ) from error
    try:
        return dict(load(path))
    except Exception as error:
        raise FileError(f"{path} cannot be read: {first_line(error)}") from error


def _plain_names(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Without the prefix that wrappers put before every name."""
    for prefix in _PREFIXES:
        if state and all(name.startswith(prefix) for name in state):
            state = {name.removeprefix(prefix): tensor for name, tensor in state.items()}
    return state
