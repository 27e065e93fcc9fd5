"""Comparison of a partition with its model: values, slopes, and no switch inside a region."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_map, tree_map_only

from splinecam._util.backend import backend_of
from splinecam._util.tolerances import (
    CONVOLUTION_PRECISION,
    EPS,
    JACOBIAN_PRECISION,
    SAFETY,
    VALUE_PRECISION,
)
from splinecam.errors import SplineCamError, ValidationError
from splinecam.geometry.checks import Check
from splinecam.network.capture import Both, FirstLayers
from splinecam.network.capture.models import (
    EXCLUSIVE,
    Output,
    private_copy,
    selected,
    unwrap,
    widened,
)
from splinecam.network.capture.tracing.diagnosis import first_line
from splinecam.network.ops.affine import convolution
from splinecam.network.program import Program
from splinecam.questions.partition_data import PartitionData

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
        real = private_copy(unwrap(model), widened if wide else lambda x: x.detach().clone())
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
            with torch.random.fork_rng([home.index or 0] if home.type == "cuda" else []):
                yield forward
            return
        with _Repeated(wide):
            yield forward


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


class _Repeated(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Restores the random state after every operation that draws random numbers.

    wide: compute in float64 or complex128 whatever the code asks to compute in lower precision.
    """

    def __init__(self, wide: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.run = _run_wide if wide else _run

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


def _run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return func(*args, **kwargs)


def _run_wide(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of an operation in float64 or complex128."""
    schema = func._schema
    if schema.is_mutable:
        for given, argument in zip(args, schema.arguments, strict=False):
            written = argument.alias_info is not None and argument.alias_info.is_write
            if written and isinstance(given, Tensor) and given.dtype in _WIDE:
                raise TypeError(f"{schema.name} writes to a tensor of lower precision")
    elif _is_view(func) and not any(_is_wide(item) for item in args):
        return func(*args, **kwargs)  # it shares memory; its readers widen what they read
    return tree_map_only(Tensor, _wide, func(*tree_map(_wide, args), **tree_map(_wide, kwargs)))


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


# Slopes are compared at so many points: of a sum of all outputs, or one by one of some outputs.
_SLOPES, _SINGLE_SLOPES, _OUTPUTS = 16, 64, 16

Tell = Callable[[int], object]
"""Is called with the number of points at which the network was evaluated since the last call."""


@dataclass(frozen=True)
class Sites:
    """The places where a partition is compared with its model, in local coordinates.

    faces: (N,) regions; centroids: (N, 2) of these regions; interior: (N, 2) random points in them;
    anywhere: (M, 2) random points of the domain; around: (M,) the regions of these points.
    """

    faces: Tensor
    centroids: Tensor
    interior: Tensor
    anywhere: Tensor
    around: Tensor

    def only(self, kept: Tensor) -> Sites:
        """The places in some of the regions, which are given by a mask (N,)."""
        faces = self.faces[kept]
        inside = torch.isin(self.around, faces)
        points = self.centroids[kept], self.interior[kept]
        return Sites(faces, *points, self.anywhere[inside], self.around[inside])

    def groups(self) -> dict[str, tuple[Tensor, Tensor]]:
        """The regions and the points, by a description of the points."""
        named = {
            "centroids": (self.faces, self.centroids),
            "random interior points": (self.faces, self.interior),
            "random points of the domain": (self.around, self.anywhere),
        }
        return {name: group for name, group in named.items() if group[0].shape[0]}


def rows_of(part: PartitionData) -> int:
    """The number of points in a block of evaluations."""
    widest = max(1, part.domain.dim, *part._network.widths)
    return max(1, backend_of(part.mesh.uv.device).checked_activations // widest)


def switches(part: PartitionData, sites: Sites, tell: Tell) -> tuple[int, Tensor]:
    """The number of regions in which a unit is on different pieces at two interior points.

    The second result, (N,), says whether rounding leaves no doubt about the pieces of a region.
    """
    switched, decided = [], []
    slack = 2 * SAFETY if part.unresolved else 1.0
    rows = rows_of(part)
    blocks = (torch.split(uv, rows) for uv in (sites.centroids, sites.interior))
    for pair in zip(*blocks, strict=True):
        walks = (part._network.walk(part.domain.embed(part._frame.to_plane(uv))) for uv in pair)
        apart = torch.zeros(pair[0].shape[0], dtype=torch.bool, device=pair[0].device)
        clear = ~apart
        with torch.no_grad():
            for (layer, a), (_, b) in zip(*walks, strict=True):
                near = part._layer_errors[layer.name]
                far = slack * near
                apart |= layer.apart(a, b, far).any(1)
                if part.unresolved:
                    clear &= layer.decided(a, near, far).all(1) & layer.decided(b, near, far).all(1)
        switched.append(apart)
        decided.append(clear)
        tell(2 * apart.shape[0])
    return int(torch.cat(switched).sum()), torch.cat(decided)


def check_model(
    part: PartitionData, sites: Sites, one_by_one: bool, generator: torch.Generator, tell: Tell
) -> list[Check]:
    """Checks of maps and slopes against the real model.

    The model runs in float64, or if that is not possible in its own precision. If smooth functions
    of the model were replaced, maps are compared with the replaced network, and within their bounds
    with the model, whose slopes are others. one_by_one: compare the slopes of single outputs
    instead of a random sum of all outputs.
    """
    predicted = {name: _predict(part, *group) for name, group in sites.groups().items()}
    exact = part.smoothing is None

    def values(forward: Forward, dtype: torch.dtype) -> list[Check]:
        return _check_values(forward, part, sites, predicted, dtype, tell)

    def slopes(forward: Forward) -> list[Check]:
        return [_check_slopes(forward, part, sites, one_by_one, generator)] if exact else []

    replaced = [] if exact else _check_replaced(part, sites, predicted)
    options = part.model, part.output, part._dtype
    checks, obstacle = compared(part, options, part.mesh.uv.device, values, slopes)
    if exact and obstacle is not None:
        own = str(part._dtype).removeprefix("torch.")
        reason = f"slopes not compared, as the model runs in {own} only ({obstacle})"
        checks.append(Check(reason, 0, 0))
    return [*replaced, *checks]


def compared(
    part: object,
    options: tuple[nn.Module, Output, torch.dtype],
    device: torch.device,
    values: Callable[[Forward, torch.dtype], list[Check]],
    slopes: Callable[[Forward], list[Check]],
) -> tuple[list[Check], CannotRun | None]:
    """Checks of values and slopes against the model in float64, or of values in its own precision.

    The second result says why the model does not run in float64. options: as for ``run_real``.
    """
    try:
        with run_real(*options, wide=True, device=device) as forward:
            return [*values(forward, torch.float64), *slopes(forward)], None
    except CannotRun as error:
        obstacle = error
    try:
        with run_real(*options, wide=False, device=device) as forward:
            return values(forward, options[2]), obstacle
    except CannotRun as error:
        raise ValidationError(f"{part!r}: the model cannot be run: {error}") from error


def worst_of(rows: int, off: Callable[..., Tensor], *columns: Tensor) -> float:
    """The largest modulus of errors, infinite if one is no number; computed in blocks of rows."""
    worst = 0.0
    for block in zip(*(torch.split(column, rows) for column in columns), strict=True):
        with torch.no_grad():
            worst = max(worst, float(off(*block).abs().max().nan_to_num(nan=torch.inf)))
    return worst


def _predict(part: PartitionData, faces: Tensor, uv: Tensor) -> Tensor:
    """The model's output at local points according to the regions' maps, (N, n_out)."""
    maps = part._maps
    shift = (uv - maps.anchor[faces])[:, :, None]
    return with_final(part._network, maps.value[faces] + (maps.weight[faces] @ shift).squeeze(2))


def with_final(program: Program, values: Tensor) -> Tensor:
    """The outputs (N, n_out) of a model from those of its program, which may lack the last step."""
    if program.final is None:
        return values
    return program.final(values.view(-1, *program.output_shape)).reshape(values.shape)


def _check_values(
    forward: Forward,
    part: PartitionData,
    sites: Sites,
    predicted: dict[str, Tensor],
    dtype: torch.dtype,
    tell: Tell,
) -> list[Check]:
    """Checks of maps against the real model, which runs in the given precision.

    What a map is off within the bounds of its region does not count.
    """

    def off(face: Tensor, at: Tensor, said: Tensor) -> Tensor:
        found = (forward(part.domain.embed(part._frame.to_plane(at))) - said).abs()
        tell(at.shape[0])
        return found if exact else (found - _allowed(part, face)).clamp(min=0)

    exact, limit = part.smoothing is None, value_limit(part.values, part._value_error, dtype)
    where = "" if dtype == torch.float64 else f" in {str(dtype).removeprefix('torch.')}"
    what = "map against the model" if exact else "map beyond its bound"
    return [
        Check(f"{what} at {name}{where}", worst_of(rows_of(part), off, *at, predicted[name]), limit)
        for name, at in sites.groups().items()
    ]


def value_limit(values: Tensor, error: Tensor, dtype: torch.dtype) -> float:
    """How far outputs may be from those of a network that runs in the given precision.

    values: (N, n_out) the outputs; error: (n_out,) their rounding errors in float64.
    """
    scale = float(values.abs().max()) or 1.0
    spread = float(values.amax(0).sub(values.amin(0)).max())
    coarse = torch.finfo(dtype).eps / EPS  # 1 in float64
    noise = SAFETY * float(error.max()) * coarse
    return VALUE_PRECISION * max(spread, EPS * scale) + noise


def _allowed(part: PartitionData, faces: Tensor) -> Tensor:
    """How far the model's outputs may be from the maps of regions (N,), (N, n_out)."""
    bounds = part.region_bounds[faces]
    if part._network.final is None:
        return bounds
    # No output of a softmax, its logarithm, a sigmoid or a tanh changes by more than twice as much.
    return 2 * bounds.amax(1, keepdim=True).expand_as(bounds)


def _check_replaced(part: PartitionData, sites: Sites, predicted: dict[str, Tensor]) -> list[Check]:
    """Checks of maps against the network whose smooth functions are replaced by tables."""
    if part.smoothing is not None and part.smoothing.refined:
        return []  # refined regions have maps of their own

    def off(at: Tensor, said: Tensor) -> Tensor:
        found = part._network(part.domain.embed(part._frame.to_plane(at)))
        return with_final(part._network, found.flatten(1)) - said

    limit, rows = value_limit(part.values, part._value_error, torch.float64), rows_of(part)
    what = "map against the replaced network"
    return [
        Check(f"{what} at {name}", worst_of(rows, off, uv, predicted[name]), limit)
        for name, (_, uv) in sites.groups().items()
    ]


def _check_slopes(
    forward: Forward,
    part: PartitionData,
    sites: Sites,
    one_by_one: bool,
    generator: torch.Generator,
) -> Check:
    """A check of slopes against the real model at some of the random interior points."""
    outputs = part.values.shape[1]
    count = _SINGLE_SLOPES if one_by_one else _SLOPES
    some = torch.randperm(sites.faces.shape[0], generator=generator)[:count]
    some = some.to(sites.faces.device)
    if one_by_one or outputs == 1:
        chosen = torch.randperm(outputs, generator=generator)[:_OUTPUTS]
        factors = torch.eye(outputs, dtype=torch.float64)[chosen]
    else:
        factors = torch.randint(2, (1, outputs), generator=generator).double() * 2 - 1
    steepest = float(part._maps.weight.abs().max()) or 1.0
    limit = JACOBIAN_PRECISION * steepest + SAFETY * float(part._value_error.max())
    limit *= float(factors.square().sum(1).max().sqrt())  # of a sum with random signs
    factors, worst, own = factors.to(part.values), 0.0, False
    try:
        for rows in torch.split(some, max(1, rows_of(part) // 4)):  # a graph keeps all activations
            faces, uv = sites.faces[rows], sites.interior[rows]
            found, defined = _slope_error(forward, part, faces, uv, factors)
            worst, own = max(worst, found), own or defined
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, CannotRun):  # an operator or a module has no gradient
        return Check("slopes not compared, as the model has no gradient", 0, 0)
    if own and worst > limit:
        return Check("slopes not compared, as the model defines a gradient of its own", 0, 0)
    return Check("slopes against autograd", worst, limit)


def _slope_error(
    forward: Forward, part: PartitionData, faces: Tensor, uv: Tensor, factors: Tensor
) -> tuple[float, bool]:
    """The largest difference of slopes along the frame's axes, both by back-propagation.

    The second result says whether the model defines a gradient of its own. factors: (K, n_out) of
    the outputs in each of K sums.
    """

    def slopes(y: Tensor, at: Tensor) -> Tensor:
        rows = [
            torch.autograd.grad((y @ row).sum(), at, retain_graph=True, materialize_grads=True)[0]
            for row in factors
        ]
        return torch.stack([row.reshape(uv.shape[0], -1) for row in rows], 1)

    with torch.enable_grad():
        x = part.domain.embed(part._frame.to_plane(uv)).requires_grad_()
        y = forward(x)
        actual = slopes(y, x) @ part.domain.basis.to(uv).T * part._frame.scale
        at = uv.clone().requires_grad_()
        off = (slopes(_predict(part, faces, at), at) - actual).abs().max()
        return float(off.nan_to_num(nan=torch.inf)), defines_gradient(y)
