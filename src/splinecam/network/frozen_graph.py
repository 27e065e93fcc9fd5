"""The module that runs what is left of a network whose patterns and denominators are held.

It has the names of the network: weights are parameters under their own names, and every call is
made within a module of the same path as in the network. What is read from it has the same names.
``capture`` reads its calls as they are, without ``torch.export``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from splinecam.errors import CaptureError
from splinecam.network.layer_graph import operation
from splinecam.network.values import Rows, resolve


@dataclass(frozen=True)
class FrozenStep:
    """One call of an operation of torch, by its name (``"aten.add.Tensor"``), or of a function."""

    name: str
    run: str | Callable[..., Any] | None  # None: the registered module at ``scope``
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    scope: str  # the path of the module that made the call
    made: Any  # the shape of the result for ``MANY_POINTS`` points, and its type; or a list
    frees: tuple[str, ...] = ()  # values that no later call needs

    @property
    def target(self) -> Any:
        """The operation or function itself."""
        return operation(self.run) if isinstance(self.run, str) else self.run


class Scope(nn.Module):
    """Stands for a module of the network: holds its weights, and makes its calls."""

    def forward(self, run: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
        return run(*args, **kwargs)


class LayerScope(Scope):
    """Stands for one of torch's own layers, after which a non-linearity is named."""


class FrozenGraph(nn.Module):
    """Runs a network in the type of its input; layers: the paths of torch's own layers."""

    def __init__(
        self, input_shape: tuple[int, ...], source: str, layers: frozenset[str] = frozenset()
    ) -> None:
        super().__init__()
        self._layers = layers
        self._input_shape = input_shape
        self._source = self._result = source
        self._steps: tuple[FrozenStep, ...] = ()
        self._places: dict[str, tuple[str, str]] = {}

    def finish(
        self, steps: Iterable[FrozenStep], places: dict[str, tuple[str, str]], result: str
    ) -> None:
        """Take over the calls, the path and the name of each tensor, and the name of the output."""
        self._steps, self._places, self._result = tuple(steps), places, result

    def scope(self, path: str) -> nn.Module:
        """The module with a path, which is added if there is none."""
        module: nn.Module = self
        names = path.split(".") if path else []
        for i, name in enumerate(names):
            if name not in module._modules:
                layer = ".".join(names[: i + 1]) in self._layers
                module.add_module(name, LayerScope() if layer else Scope())
            module = module.get_submodule(name)
        return module

    def forward(self, x: Tensor) -> Any:
        """The output (B, ...)."""
        if x.shape[1:] != torch.Size(self._input_shape):
            raise CaptureError(
                f"the model was frozen at an input of shape {self._input_shape}, but is given "
                f"{tuple(x.shape[1:])} after the batch"
            )
        env = {self._source: x}
        for key, (path, name) in self._places.items():
            tensor: Tensor = getattr(self.get_submodule(path), name)
            env[key] = tensor.to(x.dtype) if tensor.is_floating_point() else tensor
        for step in self._steps:
            call = step.args, step.kwargs
            args, kwargs = resolve(call, env, x.shape[0], x.device, x.dtype)
            if step.run is None:
                env[step.name] = self.get_submodule(step.scope)(*args)
            elif step.scope:
                env[step.name] = self.get_submodule(step.scope)(step.target, args, kwargs)
            else:
                env[step.name] = step.target(*args, **kwargs)
            for name in step.frees:
                del env[name]
        return env[self._result]


def repeated(row: Tensor, dim: int, each: int, batch: Any) -> Tensor:
    """A held value of one point for all points: ``each`` entries per point in dimension ``dim``."""
    return Rows(dim, each).back(row[None].expand(batch, *row.shape))
