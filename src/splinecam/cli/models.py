"""Reads what the options of a command name: a model, samples, a domain, a saved partition."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import traceback
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from math import prod
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from splinecam._util.text import did_you_mean
from splinecam.cli.parser import levels_of
from splinecam.errors import DomainError, FileError, SplineCamError
from splinecam.files import loading
from splinecam.files.onnx_module import read_onnx
from splinecam.files.properties import Property
from splinecam.files.vnnlib import read_vnnlib
from splinecam.geometry.domain import Domain
from splinecam.network.capture.tracing.diagnosis import first_line
from splinecam.network.model_files import KINDS, SUFFIXES, TO_ONNX, kind_of_file
from splinecam.partitions.partition import Partition, load
from splinecam.partitions.request import Smooth

_FRAMES = 3  # how many places in the user's own code are shown when it raises an error
_FOREIGN = ("importlib", "/torch/", "\\torch\\", __file__)  # files that are not the user's
_CHECKPOINTS = (".pt", ".pth", ".ckpt", ".bin", ".pkl", ".safetensors", ".npz")

# A model in eval mode, and the shape of one input where the file tells it.
Found = tuple[nn.Module, tuple[int, ...] | None]


def find_model(
    word: str, arguments: Iterable[tuple[str, Any]] = (), weights: Path | None = None
) -> Found:
    """Return the model that ``net.onnx``, ``net.pt2`` or ``package.module:factory`` names."""
    source, _, name = word.rpartition(":")
    if not source or Path(word).is_file() or Path(word).suffix in (".pt2", ".onnx"):
        if arguments or weights:
            raise SplineCamError(
                "--arg and --weights are for a model that is made by Python code "
                f"(package.module:factory), not for {word}."
            )
        return _from_file(Path(word))
    model = _built(_imported(source), source, name, dict(arguments))
    if weights is not None:
        loading.load_weights(model, weights)
    return model.eval(), None


def _from_file(path: Path) -> Found:
    suffix, kind = path.suffix.lower(), kind_of_file(path)
    is_model = path.is_dir() and kind != "folder"  # another framework has written it
    if (suffix == ".py" and path.is_file()) or (not is_model and _is_module(str(path))):
        raise SplineCamError(
            f"{path} is Python code: say which function or class makes the model, as in "
            f"{path}:build. {_offers(_imported(str(path)))}"
        )
    if not path.exists() or kind in ("python", "folder"):
        hint = "" if suffix else " A model in Python code is written package.module:factory."
        raise FileError(f"There is no file {path}.{hint}")
    if kind == "exported":
        return loading.read_program(path)
    if kind == "onnx":
        network = read_onnx(path)
        return network.eval(), network.input_shape
    name = KINDS[kind][0].removeprefix("a file ") if kind == "unknown" else KINDS[kind][0]
    reason = f"{path} is {name}, which is not opened as a model."
    raise SplineCamError(f"{reason} {_instead(path, kind)}")


def _instead(path: Path, kind: str) -> str:
    """Return what to do with a file from which no model can be read."""
    if kind in ("keras", "tensorflow"):
        return f"{TO_ONNX}, and give that:\n      splinecam partition net.onnx ..."
    if kind == "transformers":
        code = KINDS[kind][1].format(path=str(path))
        return (
            f"{code}\nDo that in a function that returns the module, in a Python file, and give "
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
{loading.EXPORT}"""


def _imported(source: str) -> ModuleType:
    """Import a module by its file or its name, with its folder or the current one importable."""
    path = Path(source)
    if path.suffix != ".py":
        return _imported_by_name(source)
    loading.require_file(path)
    _make_importable(path.parent)
    spec: Any = importlib.util.spec_from_file_location(f"splinecam_model_{path.stem}", path)
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
    """Return whether a word names a Python module, and no file."""
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
    """Raise an error if a factory needs more arguments; it names them."""
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
    """Return a sentence with the names in a module that may be factories."""

    def fits(item: Any) -> bool:
        own = getattr(item, "__module__", None) == module.__name__
        return isinstance(item, nn.Module) or (own and isinstance(item, (FunctionType, type)))

    names = [name for name, item in vars(module).items() if name[0] != "_" and fits(item)]
    return f"It defines: {', '.join(names[:12])}." if names else "It defines no functions."


@contextmanager
def _users_code(what: str) -> Iterator[None]:
    """Turn an error of the user's code into a short one, and send what it prints to stderr."""
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


def model_of(options: Namespace) -> Found:
    """Return the model of the options."""
    return find_model(options.model, options.arg, options.weights)


def shared_options(options: Namespace) -> dict[str, Any]:
    """Return the options that all computations share, as ``partition`` takes them."""
    shared = {name: getattr(options, name) for name in ("device", "memory", "max_regions")}
    smooth, levels = options.smooth, levels_of(options)
    if getattr(options, "undecided", None) is not None:
        smooth = Smooth(smooth, undecided=options.undecided)
    if levels:
        shared["refine"] = {"level": levels, "output": options.output}
    elif getattr(options, "refine", None):
        shared["refine"] = "boundary"
    return {"output": options.result, "progress": not options.quiet, "smooth": smooth, **shared}


def saved_partition(path: Path, options: Namespace) -> Partition:
    """Return a saved partition, with its model if that is given."""
    part: Partition = load(path, model=None if options.model is None else model_of(options)[0])
    return part


def domain_of(options: Namespace) -> tuple[Domain | None, Tensor | None]:
    """Return the domain that the options describe, if any, and the samples in it."""
    shape = options.input_shape
    if options.vnnlib is not None:
        prop = read_vnnlib(options.vnnlib)
        (case,) = chosen_cases(prop, options.vnnlib, options.case, single=True)
        return slice_of_box(options, *prop.cases[case].box, name=str(options.vnnlib))
    if options.slice is not None:
        lo, hi = (torch.tensor(each, dtype=torch.float64) for each in options.box)
        single = len(lo) == 1  # for all features
        return slice_of_box(options, *((lo[0], hi[0]) if single else (lo, hi)), name="--box")
    if options.box is not None:
        return Domain.box(*options.box, input_shape=shape), None
    path = options.through or options.around or options.fit or options.polygon
    if path is None:
        return None, None
    samples = read_samples(path, options.key, shape)
    how: dict[str, Any] = {} if options.margin is None else {"margin": options.margin}
    if options.fit is not None:
        return Domain.fit(picked(samples, options.pick, path), **how), None
    if options.through is not None:
        a, b, c = anchors = picked(samples, options.pick or (0, 1, 2), path)
        if options.tight:
            how["shape"] = "tight"
        return Domain.through(a, b, c, **how), anchors
    if options.around is not None:
        anchors = picked(samples, options.pick or (0,), path)
        return Domain.around(anchors[0], side=options.side or 1.0, seed=options.seed or 0), anchors
    return Domain.polygon(picked(samples, options.pick, path)), None


def slice_of_box(
    options: Namespace, lo: Tensor, hi: Tensor, *, name: str
) -> tuple[Domain, Tensor | None]:
    """Return the slice of a box, which messages call by its name, and the sample of --at."""
    at, shape = None, options.input_shape
    if isinstance(options.at, Path):
        samples = read_samples(options.at, options.key, shape)
        (at,) = picked(samples, options.pick or (0,), options.at)
    elif options.at is not None:
        at = torch.tensor(options.at, dtype=torch.float64)
    if lo.ndim == 0 and shape is None:
        shape = _shape_in_file(options) if at is None else tuple(at.shape)
        if shape is None and any(isinstance(each, str) for each in options.slice):
            shape = (len(options.features),)
    free = (lo < hi).flatten().nonzero()[:, 0].tolist()
    if options.slice is None and lo.numel() != 2 and len(free) != 2:
        raise DomainError(
            f"{name} has {lo.numel():,} inputs: say which two of them to show, such as --slice 0 1."
        )
    count, axes = prod(shape or (lo if at is None else at).shape), []
    for axis in options.slice or (free if len(free) == 2 else (0, 1)):
        named = isinstance(axis, str)
        if named and len(options.features) != count:
            raise DomainError(
                f"--slice has {axis!r}, and --features has {len(options.features):,} names for "
                f"{count:,} features: name all of them, or give the number of the feature."
            )
        axes.append(options.features.index(axis) if named else axis)
    domain = Domain.slice((lo, hi), axes, at, input_shape=shape)
    return domain, None if at is None else at.reshape(1, *domain.input_shape)


def _shape_in_file(options: Namespace) -> tuple[int, ...] | None:
    """Return the shape of one input if the model is an ONNX file, which says it."""
    path = Path(getattr(options, "model", None) or "")
    return read_onnx(path).input_shape if path.suffix.lower() == ".onnx" else None


def chosen_cases(
    prop: Property, path: Path, case: int | None, *, single: bool = False
) -> list[int]:
    """Return the numbers of the boxes of a property: that of --case, or all."""
    count = len(prop.cases)
    boxes = f"{path} has {count:,} box{'es' * (count != 1)} of inputs"
    if not count:
        raise DomainError(f"{boxes}, and all are empty.")
    chosen = list(range(count)) if case is None else [case]
    if not 0 <= chosen[0] < count or (single and len(chosen) > 1):
        raise DomainError(f"{boxes}: choose one with --case 0 to {count - 1}.")
    return chosen


def fitted(model: str, known: tuple[int, ...] | None, domain: Domain, options: Namespace) -> Domain:
    """Return a domain with the input shape of a model; raise an error if it has another one.

    Slices take the shape of the model unless --input-shape is given: boxes are often flat.
    """
    if known is None or known == domain.input_shape:
        return domain
    hint = "Choose a domain of this shape."
    if prod(known) == domain.dim:
        boxes = (getattr(options, name, None) for name in ("slice", "vnnlib", "property"))
        boxed = any(each is not None for each in boxes)
        if boxed and options.input_shape is None:
            return replace(domain, input_shape=known)
        hint = f"Say --input-shape {','.join(map(str, known))}."
    raise DomainError(
        f"{model} takes inputs of shape {known}, but inputs of the domain have shape "
        f"{domain.input_shape}. {hint}"
    )


def picked(samples: Tensor, pick: Sequence[int] | None, path: Path) -> Tensor:
    """Return the samples with the given numbers, by default all, which must be finite."""
    pick = range(len(samples)) if pick is None else pick
    beyond = [i for i in pick if not -len(samples) <= i < len(samples)]
    if beyond:
        raise DomainError(
            f"{path} holds {len(samples)} sample{'s' * (len(samples) != 1)} of shape "
            f"{tuple(samples.shape[1:])}, numbered from 0, and sample {beyond[0]} is wanted. "
            "A file holds a batch (N, *input shape); --input-shape tells how to divide it."
        )
    chosen = samples[list(pick)]
    bad = (~chosen.isfinite()).nonzero()
    if len(bad):
        first, *place = bad[0].tolist()
        where = "".join(f"[{i}]" for i in place)
        raise DomainError(
            f"Sample {pick[first]} of {path} is {float(chosen[tuple(bad[0])])} at {where}; all its "
            "numbers must be finite. Choose other samples with --pick."
        )
    return chosen


def read_samples(
    path: Path, key: str | None = None, input_shape: Sequence[int] | None = None
) -> Tensor:
    """Return the samples ``(N, *input_shape)`` in an array of a file; key: the array's name."""
    samples = _array(path, key, "--key")
    if samples.is_complex():
        raise DomainError(f"The samples in {path} are complex; a domain needs real numbers.")
    if input_shape is not None:
        if samples.numel() % prod(input_shape):
            raise DomainError(
                f"{path} holds {samples.numel()} numbers (shape {tuple(samples.shape)}), which "
                f"cannot be divided into samples of input shape {tuple(input_shape)}."
            )
        samples = samples.reshape(-1, *input_shape)
    if samples.ndim < 2:
        raise DomainError(
            f"{path} holds an array of shape {tuple(samples.shape)}; samples are a batch "
            "(N, *input shape). For a single sample say which shape it has: --input-shape 2"
        )
    return samples.to(torch.float64)


def read_labels(path: Path, count: int, *, key: str | None = None) -> Tensor:
    """Return the classes (N,) of samples in an array of a file; key: the array's name."""
    labels = _array(path, key, "--labels-key")
    if labels.numel() != count:
        raise FileError(
            f"{path} holds {labels.numel()} labels (shape {tuple(labels.shape)}) for {count} "
            "samples: one is needed for each of --points."
        )
    return labels.reshape(-1)


def _array(path: Path, key: str | None, flag: str) -> Tensor:
    """Return the array of a name in a file, or its only one; flag: the option with the name."""
    arrays = _arrays(path, key)
    names = ", ".join(f"{name!r} {tuple(array.shape)}" for name, array in arrays.items())
    if key is None and len(arrays) > 1:
        raise FileError(f"{path} holds {names}. Choose one with {flag}.")
    if key is not None and key not in arrays:
        if not any(arrays):
            raise FileError(f"{path} holds one array without a name: leave out {flag}.")
        raise FileError(f"{path} holds no {key!r}, but {names}.")
    return arrays[key] if key is not None else next(iter(arrays.values()))


def _arrays(path: Path, key: str | None) -> dict[str, Tensor]:
    """Return the tensors of a file by name ("" for an unnamed one); key: the needed one."""
    suffix = path.suffix.lower()
    if suffix in (".npy", ".npz"):
        return loading.load_numpy(path, key)
    if suffix == ".safetensors":
        return loading.load_safetensors(path)
    if suffix not in (".pt", ".pth"):
        raise FileError(
            f"{path} cannot be read as samples: give an .npy, .npz, .pt, .pth or .safetensors file."
        )
    found = loading.load_torch(path)
    if isinstance(found, Tensor):
        return {"": found}
    if isinstance(found, (list, tuple)) and found and all(isinstance(x, Tensor) for x in found):
        if len({x.shape for x in found}) > 1:
            raise FileError(f"The tensors in {path} differ in shape; samples are one batch.")
        return {"": torch.stack(list(found))}
    arrays = found.items() if isinstance(found, Mapping) else ()
    tensors = {str(name): item for name, item in arrays if isinstance(item, Tensor)}
    if not tensors:
        raise FileError(f"{path} holds no tensors, but {type(found).__name__}.")
    return tensors
