"""Registered modules that capture does not look into: each call is one node of the graph."""

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
from splinecam.network.capture.models import widened
from splinecam.network.capture.tracing.diagnosis import first_line
from splinecam.network.frozen_graph import Scope
from splinecam.network.ops.register import CustomOp, Table, rule_of_class


class OpaqueModule:
    """A copy of a module, to be run in float64 with a given state: name -> parameter or buffer."""

    def __init__(self, module: nn.Module, rule: CustomOp) -> None:
        self.rule, self.original = rule, module
        self.kind = type(module).__name__
        try:
            copied = deepcopy(module)
        except Exception as error:
            raise self._wrong(f"copy.deepcopy cannot copy it: {error}") from None
        for part in copied.modules():  # tensors that are mere attributes are part of the state
            for name, value in list(vars(part).items()):
                if isinstance(value, Tensor):
                    delattr(part, name)
                    part.register_buffer(name, value)
        self.inner = Scope()  # through which its parameters are substituted meanwhile
        self.inner.module = copied.requires_grad_(False)
        named = (*self.inner.named_parameters(), *self.inner.named_buffers())
        self.state = {name: widened(tensor) for name, tensor in named}

    def _wrong(self, why: str) -> CaptureError:
        return CaptureError(f"{self.kind} is registered, but {why}")

    def on(self, device: torch.device) -> dict[str, Tensor]:
        """A copy of the state on a device."""
        return {name: tensor.to(device, copy=True) for name, tensor in self.state.items()}

    def value(self, x: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        """The module's own forward, without its hooks: they are in the graph, around the call."""
        result: Tensor = self._call(lambda module, x: module.forward(x), x, state)
        return result

    def borders(self, x: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        """The functions whose zeros are the borders of the pieces, (B, m)."""
        assert self.rule.cuts is not None
        return as_columns(self._call(self.rule.cuts, x, state))

    def curvature(self, low: Tensor, high: Tensor, state: Mapping[str, Tensor]) -> Any:
        """The bound on its second derivative on intervals."""
        limit = self.rule.curvature
        if not callable(limit):
            return limit
        return self._call(lambda module, ends: limit(module, *ends), (low, high), state)

    def table(self, state: Mapping[str, Tensor]) -> Table | None:
        """Its functions of one variable, if it consists of these."""
        table = self.rule.table
        return None if table is None else self._call(lambda module, _: table(module), None, state)

    def _call(self, run: Callable[..., Any], x: Any, state: Mapping[str, Tensor]) -> Any:
        call: Any = run, [self.inner.module, x], {}
        return torch.func.functional_call(self.inner, dict(state), call)

    def shape(self, shape: torch.Size) -> list[Any]:
        """The shape of the result for an input's, in which the batch may be a symbol."""
        if self.rule.table is not None:
            return [*shape, *self.state["module.values"].shape[1:]]
        if any(isinstance(size, torch.SymInt) for size in shape[1:]):
            raise self._wrong("the first dimension of its input is not the batch")
        rows = 2 if isinstance(shape[0], torch.SymInt) else shape[0]
        device = next((tensor.device for tensor in self.state.values()), None)
        # On real zeros, also where torch.export follows tensors without data.
        with _disable_current_modes(), torch.no_grad(), torch.random.fork_rng(devices=[]):
            try:
                zeros = torch.zeros((rows, *shape[1:]), dtype=torch.float64, device=device)
                result: Any = self.value(zeros, self.state)
            except Exception as error:
                why = f"a tensor {(rows, *shape[1:])} of float64: {first_line(error)}"
                raise self._wrong(f"cannot be run on {why}") from error
        if not isinstance(result, Tensor) or not result.is_floating_point():
            raise CaptureError(f"{self.kind} is registered: its forward must return one tensor")
        if result.dim() == 0 or result.shape[0] != rows:
            made = f"makes {tuple(result.shape)} of an input {(rows, *shape[1:])}"
            raise self._wrong(f"{made}: the first dimension must be the batch")
        return [shape[0], *result.shape[1:]]


def as_columns(functions: Any) -> Tensor:
    """The functions of borders as (B, m), whatever shape (B, ...) they were given in."""
    if not isinstance(functions, Tensor):
        raise CaptureError(f"cuts must give a tensor, not {type(functions).__name__}")
    return functions.reshape(*functions.shape[:1], -1)


_CAPTURED: dict[int, OpaqueModule] = {}  # of the captures under way
_KEYS = count()


@torch.library.custom_op("splinecam::opaque", mutates_args=())
def _opaque(x: Tensor, key: int) -> Tensor:
    module = _CAPTURED[key]
    return module.value(x.to(torch.float64), module.on(x.device)).clone()


@_opaque.register_fake
def _(x: Tensor, key: int) -> Tensor:
    return x.new_empty(_CAPTURED[key].shape(x.shape))


_OPAQUE = torch.ops.splinecam.opaque.default


def opaque_call(module: nn.Module) -> tuple[Any, list[int]]:
    """The operation that calls a registered module while it is captured, and its last argument."""
    return _OPAQUE, [key for key, other in _CAPTURED.items() if other.original is module]


def opaque_module_of(node: fx.Node) -> OpaqueModule | None:
    """The registered module that a node of a graph calls, while it is being captured."""
    if node.target is not _OPAQUE:
        return None
    key: Any = node.args[1]
    return _CAPTURED[key]


@contextmanager
def opaque_modules(model: nn.Module, keys: Iterable[int] = ()) -> Iterator[tuple[int, ...]]:
    """Make a registered module one call of ``splinecam::opaque`` here; yield their numbers."""
    found = {
        module: rule for module in model.modules() if (rule := rule_of_class(module)) is not None
    }
    numbers = iter(keys) if keys else _KEYS
    copies = {next(numbers): OpaqueModule(module, rule) for module, rule in found.items()}
    before = [(module, vars(module).get("forward")) for module in found]
    _CAPTURED.update(copies)
    try:
        for (key, opaque), module in zip(copies.items(), found, strict=True):
            vars(module)["forward"] = _stand_in(key, opaque.kind, module.forward)
        yield tuple(copies)
    finally:
        for key in copies:
            del _CAPTURED[key]
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
        result: Tensor = _opaque(given[0], key)
        return result

    return forward
