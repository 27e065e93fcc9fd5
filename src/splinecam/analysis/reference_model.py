"""A private copy of the real model, run in float64, with which a partition is compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_map, tree_map_only

from splinecam._util.backend import backend_of
from splinecam._util.tolerances import CONVOLUTION_PRECISION
from splinecam.errors import SplineCamError
from splinecam.network.capture import Both, FirstLayers
from splinecam.network.capture.isolation import EXCLUSIVE, private_copy, unwrap, widened
from splinecam.network.capture.outputs import Output, selected
from splinecam.network.capture.tracing.diagnosis import first_line
from splinecam.network.ops.convolution import convolution

__all__ = ["CannotRun", "Forward", "defines_gradient", "run_real"]

Forward = Callable[[Tensor], Tensor]

_WIDE = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}


class CannotRun(SplineCamError):
    """The model raised an error when it was run."""


@contextmanager
def run_real(
    model: nn.Module,
    output: Output,
    dtype: torch.dtype,
    *,
    wide: bool,
    device: torch.device,
    repeatable: bool = True,
) -> Iterator[Forward]:
    """The model as a function from inputs (B, ...) to outputs (B, n_out) on the given device.

    A copy runs on the device of the model, and leaves the model's buffers and modes and the random
    state unchanged. Gradients must be taken within the context.

    wide: compute in float64 what the model computes in lower precision, whatever types its code
    names, while ``x.dtype`` still is the model's own ``dtype``; otherwise the copy runs as it is.
    The first layers of a model are run by the program that is captured from the model now.
    repeatable: every call draws the same random numbers, if the model draws any. Without this and
    without wide, a first call takes milliseconds instead of the seconds in which torch imports
    what modes need.
    """
    if isinstance(model, FirstLayers) or (isinstance(model, Both) and model.by_program):
        yield lambda x: model(x.to(device)).flatten(1)
        return
    with EXCLUSIVE:  # no module can run while another thread exports a model
        real = private_copy(unwrap(model), widened if wide else _cloned)
        tensors = (*real.parameters(), *real.buffers())
        home = next((tensor.device for tensor in tensors), device)
        own = torch.float64 if wide else dtype

        def forward(x: Tensor) -> Tensor:
            pretend = _ReportedDtype(dtype, torch.is_grad_enabled()) if wide else nullcontext()
            try:
                with pretend:
                    result = selected(real(x.to(home, own, copy=True)), output)
                return result.reshape(x.shape[0], -1).to(device, torch.float64)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:
                raise CannotRun(f"{type(error).__name__}: {first_line(error)}") from error

        if not wide and not repeatable:
            with torch.random.fork_rng(_devices(home)):
                yield forward
            return
        with _Widened() if wide else _Reproducible():  # type: ignore[no-untyped-call]
            yield forward


def _devices(home: torch.device) -> list[int]:
    """The GPUs whose random state a model on a device can change."""
    return [home.index or 0] if home.type == "cuda" else []


def _cloned(tensor: Tensor) -> Tensor:
    return tensor.detach().clone()


def defines_gradient(y: Tensor) -> bool:
    """Whether y depends on a function that defines its gradient (``autograd.Function``)."""
    seen, waiting = set(), [y.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            return True
        waiting += [following for following, _ in node.next_functions]
    return False


class _ReportedDtype(TorchFunctionMode):
    """Reports the model's own type for float64 tensors; with gradient, ``detach`` has no effect.

    A partition has the true slopes, including those that the model detaches in training.
    """

    def __init__(self, dtype: torch.dtype, gradient: bool) -> None:
        super().__init__()
        self.dtype, self.gradient = dtype, gradient

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if self.gradient and func in _DETACH:
            return args[0].view_as(args[0])
        if self.gradient and func is torch._C._set_grad_enabled:
            return None
        kwargs = kwargs or {}
        if func is Tensor.new_tensor:  # rounded to the type of the tensor, as torch.tensor does
            kwargs = {"dtype": self.dtype, **kwargs}
        if func in _CONVOLUTIONS:
            return _convolve(func, *args, **kwargs)
        made = func(*args, **kwargs)
        return self.dtype if func == _DTYPE and made == torch.float64 else made


def _convolve(run: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
    """A convolution; one with groups on a CPU is computed in a faster way than torch's.

    The faster way is compared with torch's for one channel of one image only, as torch takes as
    long for all channels of one image as the faster way takes for many images.
    """
    call = _DEFAULTS | dict(zip(_DEFAULTS, args, strict=False)) | kwargs
    x, weight, bias, groups = call["input"], call["weight"], call["bias"], call["groups"]
    slow = groups > 1 and backend_of(x.device).slow_windows
    if not slow or x.dim() != weight.dim() or not x.shape[0]:
        return run(**call)
    last = weight.shape[0] // groups
    one = {"input": x[:1, -(x.shape[1] // groups) :], "weight": weight[-last:], "groups": 1}
    with _disable_current_modes():
        made: Tensor = convolution(run)(*call.values())
        own = run(**call | one | {"bias": None if bias is None else bias[-last:]})
    precision = CONVOLUTION_PRECISION
    if not torch.allclose(own, made[:1, -last:], rtol=precision, atol=precision):
        raise RuntimeError("convolutions of one channel at a time do not agree")
    return made


_DEFAULTS = {
    **{"input": None, "weight": None, "bias": None},
    **{"stride": 1, "padding": 0, "dilation": 1, "groups": 1},
}
_CONVOLUTIONS = (torch.conv1d, torch.conv2d, torch.conv3d)
_DTYPE = Tensor.dtype.__get__  # type: ignore[attr-defined]
_DETACH = (Tensor.detach, torch.detach, Tensor.data.__get__)  # type: ignore[attr-defined]


class _Reproducible(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Restores the random state after every operation that draws random numbers."""

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return self.run(func, args, kwargs or {})
        with torch.random.fork_rng():
            return self.run(func, args, kwargs or {})

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The operation itself."""
        return func(*args, **kwargs)


class _Widened(_Reproducible):  # type: ignore[no-untyped-call]
    """Computes in float64 or complex128 whatever the code asks to compute in lower precision."""

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        schema = func._schema
        if schema.is_mutable:
            written = (a for a, s in zip(args, schema.arguments, strict=False) if _is_written(s))
            if any(isinstance(a, Tensor) and a.dtype in _WIDE for a in written):
                raise TypeError(f"{schema.name} writes to a tensor of lower precision")
        elif _is_view(func) and not any(_is_wide(item) for item in args):
            return func(*args, **kwargs)  # it shares memory; its readers widen what they read
        return tree_map_only(Tensor, _wide, func(*tree_map(_wide, args), **tree_map(_wide, kwargs)))


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _is_view(func: Any) -> bool:
    """Whether the result shares memory with an argument that other code can see."""
    shared = any(result.alias_info is not None for result in func._schema.returns)
    return shared and func is not torch.ops.aten.lift_fresh.default


def _is_wide(item: Any) -> bool:
    return isinstance(item, Tensor) and item.dtype in _WIDE.values()


def _wide(item: Any) -> Any:
    if isinstance(item, torch.dtype):
        return _WIDE.get(item, item)
    if isinstance(item, Tensor) and item.dtype in _WIDE:
        return item.to(_WIDE[item.dtype])
    return item
