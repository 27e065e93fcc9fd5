"""Samples in files, and the domain that the options of a command describe."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from splinecam.errors import DomainError, FileError
from splinecam.geometry.domain import Domain
from splinecam.importing.onnx_module import read_onnx
from splinecam.importing.tensor_files import load_numpy, load_safetensors, load_torch
from splinecam.importing.vnnlib import read_vnnlib

__all__ = ["domain_of", "fitted", "picked", "read_labels", "read_samples", "slice_of_box"]


def domain_of(options: Namespace) -> tuple[Domain, Tensor | None] | None:
    """Return the domain that the options describe, and the samples in it."""
    shape = options.input_shape
    if options.slice is not None or options.vnnlib is not None:
        return _slice_of(options)
    if options.box is not None:
        return Domain.box(*options.box, input_shape=shape), None
    path = options.through or options.around or options.fit or options.polygon
    if path is None:
        return None
    samples = read_samples(path, key=options.key, input_shape=shape)
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


def _slice_of(options: Namespace) -> tuple[Domain, Tensor | None]:
    """Return the slice of --box or of the box of --vnnlib, and the sample of --at."""
    if options.vnnlib is not None:
        return slice_of_box(options, *_property_box(options), name=str(options.vnnlib))
    lo, hi = (torch.tensor(each, dtype=torch.float64) for each in options.box)
    if len(lo) == 1:  # for all features
        lo, hi = lo[0], hi[0]
    return slice_of_box(options, lo, hi, name="--box")


def slice_of_box(
    options: Namespace, lo: Tensor, hi: Tensor, *, name: str
) -> tuple[Domain, Tensor | None]:
    """Return the slice of a box that --slice and --at describe, and the sample of --at.

    name: what the box is called in messages.
    """
    at, shape = None, options.input_shape
    if isinstance(options.at, Path):
        samples = read_samples(options.at, key=options.key, input_shape=shape)
        (at,) = picked(samples, options.pick or (0,), options.at)
    elif options.at is not None:
        at = torch.tensor(options.at, dtype=torch.float64)
    if lo.ndim == 0 and shape is None:
        shape = _shape_in_file(options) if at is None else tuple(at.shape)
    if options.slice is None and lo.numel() != 2:
        raise DomainError(
            f"{name} has {lo.numel():,} inputs: say which two of them to show, such as --slice 0 1."
        )
    domain = Domain.slice((lo, hi), options.slice or (0, 1), at, input_shape=shape)
    return domain, None if at is None else at.reshape(1, *domain.input_shape)


def _shape_in_file(options: Namespace) -> tuple[int, ...] | None:
    """Return the shape of one input of the model, if it is an ONNX file, which says it."""
    path = Path(getattr(options, "model", None) or "")
    return read_onnx(path).input_shape if path.suffix.lower() == ".onnx" else None


def _property_box(options: Namespace) -> tuple[Tensor, Tensor]:
    """Return the box of inputs of --vnnlib, the one of --case if there are several."""
    prop = read_vnnlib(options.vnnlib)
    count = len(prop.cases)
    if options.case is None and count == 1:
        return prop.box
    if options.case is None or not 0 <= options.case < count:
        raise DomainError(
            f"{options.vnnlib} has {count:,} box{'es' * (count != 1)} of inputs"
            + (f": choose one with --case 0 to {count - 1}." if count else ", and all are empty.")
        )
    return prop.cases[int(options.case)].box


def fitted(model: str, known: tuple[int, ...] | None, domain: Domain, options: Namespace) -> Domain:
    """Return a domain with the input shape of a model; if it has another one, raise an error.

    A slice has the shape of the model, unless --input-shape gives it one: what bounds a box on the
    command line or in a file is often flat.
    """
    if known is None or known == domain.input_shape:
        return domain
    hint = "Choose a domain of this shape."
    if prod(known) == domain.dim:
        boxed = options.slice is not None or options.vnnlib is not None
        if boxed and options.input_shape is None:
            return replace(domain, input_shape=known)
        hint = f"Say --input-shape {','.join(map(str, known))}."
    raise DomainError(
        f"{model} takes inputs of shape {known}, but those of the domain have shape "
        f"{domain.input_shape}. {hint}"
    )


def picked(samples: Tensor, pick: Sequence[int] | None, path: Path) -> Tensor:
    """Return the samples with the given numbers, by default all; they must be finite."""
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
    path: Path, *, key: str | None = None, input_shape: Sequence[int] | None = None
) -> Tensor:
    """Return the samples ``(N, *input_shape)`` in a file of NumPy, torch or safetensors.

    key: which array, if the file holds several; input_shape: the shape to give to each sample.
    """
    arrays = _arrays(path, key)
    if key is None and len(arrays) > 1:
        raise FileError(f"{path} holds {_names(arrays)}. Choose one with --key.")
    if key is not None and key not in arrays:
        if not any(arrays):
            raise FileError(f"{path} holds one array without a name: leave out --key.")
        raise FileError(f"{path} holds no {key!r}, but {_names(arrays)}.")
    samples = arrays[key] if key is not None else next(iter(arrays.values()))
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
    """Return the classes (N,) of samples in a file; key: which array, if there are several."""
    arrays = _arrays(path, key)
    if key is None and len(arrays) > 1:
        raise FileError(f"{path} holds {_names(arrays)}. Choose one with --labels-key.")
    if key is not None and key not in arrays:
        raise FileError(f"{path} holds no {key!r}, but {_names(arrays)}.")
    labels = arrays[key] if key is not None else next(iter(arrays.values()))
    if labels.numel() != count:
        raise FileError(
            f"{path} holds {labels.numel()} labels (shape {tuple(labels.shape)}) for {count} "
            "samples: one is needed for each of --points."
        )
    return labels.reshape(-1)


def _names(arrays: Mapping[str, Tensor]) -> str:
    return ", ".join(f"{name!r} {tuple(array.shape)}" for name, array in arrays.items())


def _arrays(path: Path, key: str | None) -> dict[str, Tensor]:
    """Return every tensor in a file by its name; a file of one tensor has it under no name.

    key: the only one that is needed, if the file has it.
    """
    suffix = path.suffix.lower()
    if suffix in (".npy", ".npz"):
        return load_numpy(path, key)
    if suffix == ".safetensors":
        return load_safetensors(path)
    if suffix not in (".pt", ".pth"):
        raise FileError(
            f"{path} cannot be read as samples: give an .npy, .npz, .pt, .pth or .safetensors file."
        )
    found = load_torch(path)
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
