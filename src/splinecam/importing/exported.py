"""Exported programs (.pt2), read without unpickling anything but tensors."""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from splinecam._util.unpacking import open_archive, read_text
from splinecam.errors import CaptureError, FileError
from splinecam.network.capture.tracing.diagnosis import first_line

__all__ = ["EXPORT", "read_program"]

_ZEROS = "torch.zeros(2, ...)  # two inputs of the model"
EXPORT = f"""\
      x = {_ZEROS}
      program = torch.export.export(
          model.eval(), (x,), dynamic_shapes=({{0: torch.export.Dim("batch")}},)
      )
      torch.export.save(program, "model.pt2")"""

_MANY = 2**31  # points that a program must be able to take at once
_FORCE, _FORBID = "TORCH_FORCE_WEIGHTS_ONLY_LOAD", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"


def read_program(path: Path) -> tuple[nn.Module, tuple[int, ...] | None]:
    """Return the module in an exported program, and the shape of one input if it is fixed."""
    _refuse_objects(path)
    try:
        with _tensors_only(), path.open("rb") as file:
            exported = torch.export.load(file)
            module = exported.module()
    except Exception as error:
        raise FileError(
            f"{path} cannot be read by torch {torch.__version__} ({first_line(error)}). Was it "
            "written by another version of torch, or changed since? Export the model again:\n"
            f"{EXPORT}"
        ) from error
    return module, _input_shape(exported, path)


def _refuse_objects(path: Path) -> None:
    """Raise an error if a program holds pickled objects or compiled code, which opening runs."""
    with open_archive(path) as archive:
        for info in archive.infolist():
            name = info.filename
            if "/aotinductor/" in name:
                raise CaptureError(f"{path} is a compiled package. Export the model:\n{EXPORT}")
            if not name.endswith("_config.json"):
                continue
            entries = json.loads(read_text(archive, info)).get("config", {})
            for key, entry in entries.items():
                if not str(entry.get("path_name")).startswith(("weight_", "tensor_")):
                    raise CaptureError(
                        f"{path} holds an object that is no tensor ({key}), which is not opened, "
                        "because opening it can run any code. Use the code that makes the model: "
                        "package.module:factory."
                    )


@contextmanager
def _tensors_only() -> Iterator[None]:
    """Let torch unpickle tensors only, and silence its logs and warnings."""
    saved = {name: os.environ.pop(name, None) for name in (_FORCE, _FORBID)}
    disabled = logging.root.manager.disable
    os.environ[_FORCE] = "1"
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
        del os.environ[_FORCE]
        os.environ.update({name: value for name, value in saved.items() if value is not None})


def _input_shape(exported: Any, path: Path) -> tuple[int, ...] | None:
    """Return the shape of one input; raise an error unless a batch may have any size."""
    nodes = {node.name: node for node in exported.graph.nodes}
    names = [name for name in exported.graph_signature.user_inputs if name in nodes]
    if len(names) != 1:
        raise CaptureError(
            f"The program in {path} has {len(names)} inputs: it must have one tensor. Wrap the "
            "model in a module whose forward takes one tensor, and export that."
        )
    shape = list(nodes[names[0]].meta["val"].shape)
    if not shape:
        raise CaptureError(f"The program in {path} takes a single number, not a batch of inputs.")
    batch, *rest = shape
    size = _limited(batch, exported.range_constraints)
    if size is not None:
        zeros = f"torch.zeros({', '.join(map(str, [2, *rest]))})"
        raise CaptureError(
            f"The program in {path} was exported for a batch of {size}, but many points are run "
            f"at once. Export it for a batch of any size:\n{EXPORT.replace(_ZEROS, zeros)}"
        )
    return tuple(rest) if all(isinstance(n, int) for n in rest) else None


def _limited(batch: Any, ranges: Mapping[Any, Any]) -> str | None:
    """Return the batch sizes that a program was exported for, or None if it takes all."""
    if isinstance(batch, int):
        return f"exactly {batch}"
    limits = ranges.get(batch.node.expr)
    if limits is None or (limits.lower <= 2 and limits.upper >= _MANY):
        return None
    return f"{limits.lower} to {limits.upper}"
