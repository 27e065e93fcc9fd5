"""Modules that capture does not look into: in the exported graph each call is a single node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from functools import wraps
from itertools import count
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils._python_dispatch import _disable_current_modes

from splinecam.errors import CaptureError
from splinecam.network.ops.register import CustomOp, Table, taught_class

__all__ = ["Leaf", "as_columns", "leaf_of", "leaves"]


class _Inner(nn.Module):
    """Calls functions of a module, so that its parameters can be substituted meanwhile."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, run: Callable[..., Any], x: Any) -> Any:
        return run(self.module, x)


class Leaf:
    """A copy of a module, to be run in float64 with a given state: name -> parameter or buffer."""

    def __init__(self, module: nn.Module, rule: CustomOp) -> None:
        self.rule = rule
        self.kind = type(module).__name__
        try:
            copied = deepcopy(module)
        except Exception as error:
            raise CaptureError(
                f"{self.kind} is registered, but copy.deepcopy cannot copy it: {error}"
            ) from None
        self.inner = _Inner(_with_buffers(copied))
        named = (*self.inner.named_parameters(), *self.inner.named_buffers())
        self.state = {name: _wide(tensor) for name, tensor in named}

    def on(self, device: torch.device) -> dict[str, Tensor]:
        """A copy of the state on a device."""
        return {name: tensor.to(device, copy=True) for name, tensor in self.state.items()}

    def value(self, x: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        """The module's own forward."""
        made: Tensor = self._call(_forward, x, state)
        return made

    def cuts(self, x: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        """The functions of its borders, (B, m)."""
        assert self.rule.cuts is not None
        return as_columns(self._call(self.rule.cuts, x, state))

    def table(self, state: Mapping[str, Tensor]) -> Table | None:
        """Its functions of one variable, if it consists of these."""
        table = self.rule.table
        return None if table is None else self._call(lambda module, _: table(module), None, state)

    def _call(self, run: Callable[..., Any], x: Any, state: Mapping[str, Tensor]) -> Any:
        return torch.func.functional_call(self.inner, dict(state), (run, x))

    def shape(self, shape: torch.Size) -> list[Any]:
        """The shape of the result for an input's, in which the batch may be a symbol."""
        if self.rule.table is not None:
            return [*shape, *self.state["module.values"].shape[1:]]
        if any(isinstance(size, torch.SymInt) for size in shape[1:]):
            raise CaptureError(
                f"{self.kind} is registered, but the first dimension of its input is not the batch"
            )
        rows = 2 if isinstance(shape[0], torch.SymInt) else shape[0]
        made = self._on_zeros((rows, *shape[1:]))
        if not isinstance(made, Tensor) or not made.is_floating_point():
            raise CaptureError(f"{self.kind} is registered: its forward must return one tensor")
        if made.dim() == 0 or made.shape[0] != rows:
            raise CaptureError(
                f"{self.kind} is registered, but makes {tuple(made.shape)} of an input "
                f"{(rows, *shape[1:])}: the first dimension must be the batch"
            )
        return [shape[0], *made.shape[1:]]

    def _on_zeros(self, shape: tuple[int, ...]) -> Any:
        """What it gives for real zeros, also where torch.export follows tensors without data."""
        device = next((tensor.device for tensor in self.state.values()), None)
        with _disable_current_modes(), torch.no_grad(), torch.random.fork_rng(devices=[]):
            try:
                zeros = torch.zeros(shape, dtype=torch.float64, device=device)
                return self.value(zeros, self.state)
            except Exception as error:
                line = str(error).partition("\n")[0]
                raise CaptureError(
                    f"{self.kind} is registered, but cannot be run on a tensor {shape} of "
                    f"float64: {line}"
                ) from error


def _forward(module: nn.Module, x: Tensor) -> Tensor:
    """Without the hooks of the module: they are in the graph, around the leaf."""
    made: Tensor = module.forward(x)
    return made


def _with_buffers(module: nn.Module) -> nn.Module:
    """The module with tensors that are mere attributes made buffers, and so part of its state."""
    for part in module.modules():
        for name, value in list(vars(part).items()):
            if isinstance(value, Tensor):
                delattr(part, name)
                part.register_buffer(name, value)
    return module.requires_grad_(False)


def as_columns(functions: Any) -> Tensor:
    """The functions of borders as (B, m), whatever shape (B, ...) they were given in."""
    if not isinstance(functions, Tensor):
        raise CaptureError(f"cuts must give a tensor, not {type(functions).__name__}")
    return functions.reshape(*functions.shape[:1], -1)


def _wide(tensor: Tensor) -> Tensor:
    dtype = torch.float64 if tensor.is_floating_point() else tensor.dtype
    return tensor.detach().to(dtype, copy=True)


_LIVE: dict[int, Leaf] = {}  # the leaves of the captures under way
_KEYS = count()


@torch.library.custom_op("splinecam::leaf", mutates_args=())
def _leaf(x: Tensor, key: int) -> Tensor:
    leaf = _LIVE[key]
    return leaf.value(x.to(torch.float64), leaf.on(x.device)).clone()


@_leaf.register_fake
def _(x: Tensor, key: int) -> Tensor:
    return x.new_empty(_LIVE[key].shape(x.shape))


_LEAF = torch.ops.splinecam.leaf.default


def leaf_of(node: fx.Node) -> Leaf | None:
    """The leaf that a node of a graph calls, while it is being captured."""
    if node.target is not _LEAF:
        return None
    key: Any = node.args[1]
    return _LIVE[key]


@contextmanager
def leaves(model: nn.Module, numbers: Iterable[int] = ()) -> Iterator[tuple[int, ...]]:
    """Meanwhile, every module of a registered class is one call of ``splinecam::leaf``.

    numbers: by which a graph that was captured before calls these modules; without it, new ones,
    which are the result.
    """
    found = {
        module: rule for module in model.modules() if (rule := taught_class(module)) is not None
    }
    keys = iter(numbers) if numbers else _KEYS
    made = {next(keys): Leaf(module, rule) for module, rule in found.items()}
    before = [(module, vars(module).get("forward")) for module in found]
    _LIVE.update(made)
    try:
        for (key, leaf), module in zip(made.items(), found, strict=True):
            vars(module)["forward"] = _stand_in(key, leaf.kind, module.forward)
        yield tuple(made)
    finally:
        for key in made:
            del _LIVE[key]
        for module, forward in before:
            vars(module).pop("forward", None)
            if forward is not None:
                vars(module)["forward"] = forward


def _stand_in(key: int, kind: str, original: Callable[..., Any]) -> Callable[..., Tensor]:
    @wraps(original)  # torch.export reads the signature
    def forward(*args: Any, **kwargs: Any) -> Tensor:
        given = [*args, *kwargs.values()]
        if len(given) != 1 or not isinstance(given[0], Tensor):
            raise CaptureError(
                f"{kind} is registered, but called with {len(given)} arguments: a registered "
                "module takes one tensor. Unregister it, or wrap the call in a module that does."
            )
        result: Tensor = _leaf(given[0], key)
        return result

    return forward
