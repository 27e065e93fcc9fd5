"""Weights in files of several kinds, and state dicts copied into a model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor, nn

from splinecam.errors import FileError, SplineCamError
from splinecam.importing.tensor_files import load_numpy, load_safetensors, load_torch

__all__ = ["WEIGHTS", "copy_weights", "load_weights", "read_state_dict"]

WEIGHTS = (".pt", ".pth", ".ckpt", ".bin", ".safetensors", ".npz")
"""How the names of files of weights end."""

_WRAPPED = ("state_dict", "model_state_dict", "model")  # where checkpoints keep their weights
_PREFIXES = ("module.", "_orig_mod.")  # of data parallelism and torch.compile


def load_weights(model: nn.Module, path: Path) -> None:
    """Copy the state dict in a file into a model, in the types of the model's own weights."""
    copy_weights(model, read_state_dict(path), f"in {path}")


def copy_weights(model: nn.Module, state: Mapping[str, Tensor], source: str) -> None:
    """Copy a state dict into a model, in the types of the model's own weights.

    source: where the weights are, for an error if they do not fit.
    """
    try:
        model.load_state_dict(_with_tied_names(model, _plain_names(state)))
    except RuntimeError as error:
        lines = [line.strip() for line in str(error).splitlines()[1:] if line.strip()]
        shown = "".join(f"\n  {line[:200]}{' ...' * (len(line) > 200)}" for line in lines[:6])
        more = f"\n  ... and {len(lines) - 6} more" if len(lines) > 6 else ""
        raise SplineCamError(
            f"The weights {source} do not fit {type(model).__name__}:{shown}{more}"
        ) from error


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """Return the tensors in a file by the names of their parameters and buffers."""
    suffix = path.suffix.lower()
    if suffix == ".npz":
        return load_numpy(path)
    if suffix == ".safetensors":
        return load_safetensors(path)
    found = load_torch(path)
    for key in _WRAPPED:
        if isinstance(found, Mapping) and isinstance(found.get(key), Mapping):
            found = found[key]
    if not (isinstance(found, Mapping) and all(isinstance(x, Tensor) for x in found.values())):
        raise FileError(
            f"{path} holds no state dict. Write one with "
            'torch.save(model.state_dict(), "weights.pt").'
        )
    return dict(found)


def _plain_names(state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Remove the prefix that wrappers put before every name."""
    for prefix in _PREFIXES:
        if state and all(name.startswith(prefix) for name in state):
            state = {name.removeprefix(prefix): tensor for name, tensor in state.items()}
    return state


def _with_tied_names(model: nn.Module, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Give a weight that the model has under several names to all of them.

    Files of safetensors hold such a weight once, under one of its names.
    """
    names: dict[int, list[str]] = {}
    for name, weight in model.state_dict(keep_vars=True).items():
        names.setdefault(id(weight), []).append(name)
    full = dict(state)
    for tied in names.values():
        given = next((name for name in tied if name in state), None)
        if given is not None:
            full |= {name: state[given] for name in tied if name not in state}
    return full
