"""The real model, run in float64 by a private copy, to compare a partition with it."""

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
from splinecam.errors import SplineCamError
from splinecam.network.capture.diagnosis import first_line
from splinecam.network.capture.isolation import EXCLUSIVE, private_copy, unwrap, widened
from splinecam.network.capture.outputs import Output, selected
from splinecam.network.ops.convolution import convolution

__all__ = ["CannotRun", "Forward", "own_gradient", "run_real"]

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
    model: nn.Module, output: Output, dtype: torch.dtype, *, wide: bool, device: torch.device
) -> Iterator[Forward]:
    """The model as a function from inputs (B, ...) to outputs (B, n_out) on the given device.

    A copy runs, on the device where the model is: nothing that it does to its buffers, to the
    random state or to its modes is seen outside. wide: compute in float64 what the model computes
    in lower precision, whatever types its code names; ``x.dtype`` still is ``dtype``, which is the
    model's own. Otherwise the copy is run as it is. Gradients must be taken within the context.
    """
    with EXCLUSIVE:  # while another thread exports a model, no module can be run
        real = private_copy(unwrap(model), widened if wide else _cloned)
        tensors = (*real.parameters(), *real.buffers())
        home = next((tensor.device for tensor in tensors), device)
        own = torch.float64 if wide else dtype

        def forward(x: Tensor) -> Tensor:
            pretend = _Pretend(dtype, torch.is_grad_enabled()) if wide else nullcontext()
            try:
                with pretend:
                    result = selected(real(x.to(home, own, copy=True)), output)
                return result.reshape(x.shape[0], -1).to(device, torch.float64)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:
                raise CannotRun(f"{type(error).__name__}: {first_line(error)}") from error

        with _Wide() if wide else _Reproducible():  # type: ignore[no-untyped-call]
            yield forward


def _cloned(tensor: Tensor) -> Tensor:
    return tensor.detach().clone()


def own_gradient(y: Tensor) -> bool:
    """Whether a function with a gradient of its own (``autograd.Function``) has a part in y."""
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


class _Pretend(TorchFunctionMode):
    """Shows float64 tensors in the model's own type; with gradient, nothing cuts that off.

    A partition knows the true slopes, also those that the model keeps from training.
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
    """A convolution; with a channel at a time in a faster way, which is compared with torch's.

    On a CPU, torch takes as long for all channels of one image as the faster way takes for many
    images, so that one channel of one image is compared.
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
    if not torch.allclose(own, made[:1, -last:], rtol=_AGREEMENT, atol=_AGREEMENT):
        raise RuntimeError("convolutions of one channel at a time do not agree")
    return made


_AGREEMENT = 1e-10
_DEFAULTS = {
    **{"input": None, "weight": None, "bias": None},
    **{"stride": 1, "padding": 0, "dilation": 1, "groups": 1},
}
_CONVOLUTIONS = (torch.conv1d, torch.conv2d, torch.conv3d)
_DTYPE = Tensor.dtype.__get__  # type: ignore[attr-defined]
_DETACH = (Tensor.detach, torch.detach, Tensor.data.__get__)  # type: ignore[attr-defined]


class _Reproducible(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Leaves the random state as it was after every operation that draws random numbers."""

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


class _Wide(_Reproducible):  # type: ignore[no-untyped-call]
    """Computes in float64, or complex128, what code asks to be computed in lower precision."""

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        schema = func._schema
        if schema.is_mutable:
            written = (a for a, s in zip(args, schema.arguments, strict=False) if _is_written(s))
            if any(isinstance(a, Tensor) and a.dtype in _WIDE for a in written):
                raise TypeError(f"{schema.name} writes to a tensor of lower precision")
        elif _is_view(func) and not any(_is_wide(item) for item in args):
            return func(*args, **kwargs)  # it shares memory: what reads the view makes it wide
        return tree_map_only(Tensor, _wide, func(*tree_map(_wide, args), **tree_map(_wide, kwargs)))


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _is_view(func: Any) -> bool:
    """Whether the result shares memory with an argument; fresh tensors are seen by nobody yet."""
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
