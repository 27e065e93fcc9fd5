"""The networks of a grid, one after the other: models, state dicts, files, or a watched run."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sized
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from splinecam._util.options import kind_of
from splinecam.errors import FileError, SplineCamError
from splinecam.files.loading import WEIGHTS, copy_weights, loaded, read_state_dict
from splinecam.network.model_files import instead_of
from splinecam.partitions.captured import Captured
from splinecam.training.runs import Run, Snapshot
from splinecam.training.store import INDEX, open_run

Label = int | float | str

_SUFFIXES = tuple(suffix for suffix in WEIGHTS if suffix != ".npz")


def networks_of(model: Any, checkpoints: Any) -> Iterator[tuple[Label, nn.Module]]:
    """Yield the networks of a grid with their labels; each must be used before the next."""
    if checkpoints is None:
        if isinstance(model, nn.Module | Captured) or _is_path(model):
            model = {"model": model}
        for label, each in _labelled(model, "model"):
            network = loaded(each.model if isinstance(each, Captured) else each)
            if not isinstance(network, nn.Module):
                raise TypeError(
                    f"model[{label!r}] must be an nn.Module, not {instead_of(each)}. For several "
                    "state dicts of one model: sc.grid(model, domains, checkpoints=...)"
                )
            yield label, network
        return
    network = loaded(model.model if isinstance(model, Captured) else model)
    if not isinstance(network, nn.Module):
        raise TypeError(
            "checkpoints= are weights for one model: model must be an nn.Module, not "
            f"{instead_of(model)}"
        )
    network = copy.deepcopy(network).eval()
    for label, each in _labelled(checkpoints, "checkpoints"):
        copy_weights(network, *_weights(label, each))
        yield label, network


def count_of(model: Any, checkpoints: Any) -> int | None:
    """Return how many networks there are, if that is known before they are taken."""
    several = model if checkpoints is None else checkpoints
    if isinstance(several, nn.Module | Captured) or (checkpoints is None and _is_path(model)):
        return 1
    if _is_path(several):
        return sum(1 for _ in _labelled(several, "checkpoints"))
    return len(several) if isinstance(several, Sized) else None


def _labelled(several: Any, name: str) -> Iterator[tuple[Label, Any]]:
    """Yield what was given with labels: keys, numbers of steps, or places in order."""
    if _is_path(several):
        place = Path(several)
        several = open_run(place) if (place / INDEX).is_file() else _files(place)
    if isinstance(several, Run):
        yield from ((snapshot.step, snapshot) for snapshot in several)
    elif isinstance(several, Mapping) and not _is_state(several):
        yield from ((_label(key), each) for key, each in several.items())
    elif isinstance(several, Iterable) and not _is_state(several):
        for place_in_order, each in enumerate(several):
            named = isinstance(each, tuple) and len(each) == 2
            yield (_label(each[0]), each[1]) if named else (place_in_order, each)
    else:
        what = "a single state dict" if _is_state(several) else kind_of(several)
        raise TypeError(
            f"{name} must be several, in a dict by epoch or in a list, or the path of a folder, "
            f"not {what}"
        )


def _weights(label: Label, each: Any) -> tuple[Mapping[str, Tensor], str]:
    """Return the state dict of a checkpoint, and where it is from, in words."""
    if isinstance(each, Snapshot):
        if each.weights is None:
            raise SplineCamError(
                f"Step {label} of the run was recorded without its weights. Record them as well: "
                "sc.watch(..., store='runs/a', weights=True)."
            )
        each = each.weights
    if _is_path(each):
        return read_state_dict(Path(each)), f"in {each}"
    if isinstance(each, nn.Module):
        return each.state_dict(), f"of checkpoint {label}"
    if not _is_state(each):
        what = kind_of(each) if each else f"an empty {kind_of(each)}"
        raise TypeError(
            f"checkpoints[{label!r}] must be a state dict or the path of one, not {what}"
        )
    return each, f"of checkpoint {label}"


def _files(folder: Path) -> dict[Label, Path]:
    """Return the files of weights in a folder, in the order of the numbers in their names."""
    if not folder.is_dir():
        raise FileError(f"There is no folder {folder}.")
    visible = [path for path in folder.iterdir() if not path.name.startswith(".")]
    found = [path for path in visible if path.suffix.lower() in _SUFFIXES]
    if not found:
        raise FileError(f"{folder} has no checkpoints: no file ends in {', '.join(_SUFFIXES)}.")
    words = {path: re.split(r"(\d+)", path.stem) for path in found}
    found.sort(key=lambda path: [int(w) if k % 2 else w for k, w in enumerate(words[path])])
    texts = {tuple(each[::2]) for each in words.values()}
    if len(texts) == 1:  # if names differ in numbers only, the first different one is the label
        for numbers in zip(*(words[path][1::2] for path in found), strict=True):
            labels = [int(number) for number in numbers]
            if len(set(labels)) == len(found):
                return dict(zip(labels, found, strict=True))
    return {path.stem: path for path in found}


def _label(key: Any) -> Label:
    """Return the label of a checkpoint as a plain number or text."""
    plain = key.item() if hasattr(key, "item") else key
    return plain if isinstance(plain, int | float | str) else str(plain)


def _is_path(value: Any) -> bool:
    return isinstance(value, str | os.PathLike)


def _is_state(value: Any) -> bool:
    """Return whether a value is a dict of tensors by the names of parameters and buffers."""
    return isinstance(value, Mapping) and any(isinstance(item, Tensor) for item in value.values())
