"""Validation: the structure of a partition by itself, and its maps against the real model.

The real model is a private copy that runs in float64 whatever types its code names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_map, tree_map_only

from splinecam._util.arrays import as_rows, owners_of, take_rows
from splinecam._util.backend import backend_of
from splinecam._util.progress import progress_bar
from splinecam._util.tolerances import (
    CONVOLUTION_PRECISION,
    EPS,
    JACOBIAN_PRECISION,
    SAFETY,
    UNRESOLVED_REACH,
    UV_ERROR,
    VALUE_PRECISION,
)
from splinecam.errors import SplineCamError, ValidationError
from splinecam.geometry.checks import Check, check_mesh
from splinecam.geometry.point_location import signed_distances
from splinecam.geometry.subdivision import Mesh
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
from splinecam.questions.partition_data import PartitionData, counted
from splinecam.questions.wanted import Wanted

Forward = Callable[[Tensor], Tensor]

_WIDE = dict.fromkeys((torch.float16, torch.bfloat16, torch.float32), torch.float64)
_WIDE |= dict.fromkeys((torch.complex32, torch.complex64), torch.complex128)


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

    wide: compute in float64 whatever lower precision the model's code names, although ``x.dtype``
    is the model's own ``dtype``. repeatable: every call draws the same random numbers. Without both
    a first call is fast, as torch need not import its modes.
    """
    if isinstance(model, FirstLayers) or (isinstance(model, Both) and model.by_program):
        yield lambda x: as_rows(model(x.to(device)))
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

    A partition has the true slopes, also where the model detaches them in training.
    """

    def __init__(self, dtype: torch.dtype, gradient: bool) -> None:
        super().__init__()
        self.dtype, self.gradient = dtype, gradient

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
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
    """A convolution; with groups on a CPU in a faster way, compared with torch's in one channel."""
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
    """Restores the random state after each operation; wide: computes in float64 or complex128."""

    def __init__(self, wide: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.wide = wide

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags:
            with torch.random.fork_rng():
                return self._run(func, args, kwargs or {})
        return self._run(func, args, kwargs or {})

    def _run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return _run_wide(func, args, kwargs) if self.wide else func(*args, **kwargs)


def _run_wide(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of an operation in float64 or complex128."""
    schema = func._schema
    if schema.is_mutable:
        for given, argument in zip(args, schema.arguments, strict=False):
            written = argument.alias_info is not None and argument.alias_info.is_write
            if written and isinstance(given, Tensor) and given.dtype in _WIDE:
                raise TypeError(f"{schema.name} writes to a tensor of lower precision")
    elif any(result.alias_info is not None for result in schema.returns):
        # A view shares memory that other code can see; its readers widen what they read.
        wide = any(getattr(item, "dtype", None) in _WIDE.values() for item in args)
        if func is not torch.ops.aten.lift_fresh.default and not wide:
            return func(*args, **kwargs)
    return tree_map_only(Tensor, _wide, func(*tree_map(_wide, args), **tree_map(_wide, kwargs)))


def _wide(item: Any) -> Any:
    """A tensor or a type in float64 or complex128; other things as they are."""
    if isinstance(item, torch.dtype):
        return _WIDE.get(item, item)
    return item.to(_WIDE.get(item.dtype, item.dtype)) if isinstance(item, Tensor) else item


# The numbers of points at which slopes of sums or of single outputs are compared, and of outputs.
_SLOPES, _SINGLE_SLOPES, _OUTPUTS = 16, 64, 16

Tell = Callable[[int], object]
"""A function that is told how many more points the network was evaluated at."""


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
    """The number of regions in which a unit switches, and which regions are beyond doubt, (N,)."""
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
    """Checks of maps and slopes, one_by_one or of a sum, against the model, see ``validate``."""
    claims = {name: (*at, _predict(part, *at)) for name, at in sites.groups().items()}
    exact = part.smoothing is None  # otherwise the model has other slopes than the maps

    def slopes(forward: Forward) -> list[Check]:
        return [_check_slopes(forward, part, sites, one_by_one, generator)] if exact else []

    replaced = [] if exact else _check_replaced(part, claims)
    checks, obstacle = compared(
        part,
        (part.model, part._chosen_output, part._dtype),
        part.mesh.uv.device,
        lambda forward, dtype: _check_values(forward, part, claims, dtype, tell),
        slopes,
    )
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
    """Checks in float64, or of values in the model's own precision with the reason for that."""
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
    maps = part._known_maps
    shift = (uv - maps.anchor[faces])[:, :, None]
    return with_final(part._network, maps.value[faces] + (maps.weight[faces] @ shift).squeeze(2))


def with_final(program: Program, values: Tensor) -> Tensor:
    """The outputs (N, n_out) of a model from those of its program, which may lack the last step."""
    if program.final is None:
        return values
    return program.final(values.view(-1, *program.output_shape)).reshape(values.shape)


Claims = dict[str, tuple[Tensor, Tensor, Tensor]]
"""Regions (N,), local points (N, 2) in them and predicted outputs there, by a description."""


def _check_values(
    forward: Forward, part: PartitionData, claims: Claims, dtype: torch.dtype, tell: Tell
) -> list[Check]:
    """Checks that maps are within their bounds of the real model, which runs in a precision."""

    def off(face: Tensor, at: Tensor, said: Tensor) -> Tensor:
        found = (forward(part.domain.embed(part._frame.to_plane(at))) - said).abs()
        tell(at.shape[0])
        if exact:
            return found
        bounds = part.region_bounds[face]
        if part._network.final is not None:
            # A softmax, its logarithm, a sigmoid or a tanh doubles a change at most.
            bounds = 2 * bounds.amax(1, keepdim=True).expand_as(bounds)
        return (found - bounds).clamp(min=0)

    exact, limit = part.smoothing is None, value_limit(part._outputs, part._value_error, dtype)
    where = "" if dtype == torch.float64 else f" in {str(dtype).removeprefix('torch.')}"
    what = "map against the model" if exact else "map beyond its bound"
    return [
        Check(f"{what} at {name}{where}", worst_of(rows_of(part), off, *columns), limit)
        for name, columns in claims.items()
    ]


def value_limit(values: Tensor, error: Tensor, dtype: torch.dtype) -> float:
    """How far outputs (N, n_out) with errors (n_out,) may be from those in another precision."""
    scale = float(values.abs().max()) or 1.0
    spread = float(values.amax(0).sub(values.amin(0)).max())
    coarse = torch.finfo(dtype).eps / EPS  # 1 in float64
    noise = SAFETY * float(error.max()) * coarse
    return VALUE_PRECISION * max(spread, EPS * scale) + noise


def _check_replaced(part: PartitionData, claims: Claims) -> list[Check]:
    """Checks of maps against the network whose smooth functions are replaced by tables."""
    if part.smoothing is not None and part.smoothing.refined:
        return []  # refined regions have maps of their own

    def off(at: Tensor, said: Tensor) -> Tensor:
        found = part._network(part.domain.embed(part._frame.to_plane(at)))
        return with_final(part._network, as_rows(found)) - said

    limit, rows = value_limit(part._outputs, part._value_error, torch.float64), rows_of(part)
    return [
        Check(f"map against the replaced network at {name}", worst_of(rows, off, uv, said), limit)
        for name, (_, uv, said) in claims.items()
    ]


def _check_slopes(
    forward: Forward, part: PartitionData, sites: Sites, single: bool, generator: torch.Generator
) -> Check:
    """A check of slopes against the real model at some of the random interior points."""
    outputs = part._n_out
    count = _SINGLE_SLOPES if single else _SLOPES
    some = torch.randperm(sites.faces.shape[0], generator=generator)[:count]
    some = some.to(sites.faces.device)
    if single or outputs == 1:
        chosen = torch.randperm(outputs, generator=generator)[:_OUTPUTS]
        factors = torch.eye(outputs, dtype=torch.float64)[chosen]
    else:
        factors = torch.randint(2, (1, outputs), generator=generator).double() * 2 - 1
    steepest = float(part._known_maps.weight.abs().max()) or 1.0
    limit = JACOBIAN_PRECISION * steepest + SAFETY * float(part._value_error.max())
    limit *= float(factors.square().sum(1).max().sqrt())  # of a sum with random signs
    factors, worst, own = factors.to(part._outputs), 0.0, False
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
    """The largest error of the slopes of K sums, and whether the model defines its gradient."""

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


# Points at which the model is run by default: as many as there are vertices, within these limits.
_LEAST, _MOST = 1000, 4000
_LOCATED = 2000  # random points of the domain that are located
_BATCH = 1 << 24  # distances in a block


@dataclass(frozen=True, repr=False)
class Report:
    """All checks of a partition, and how much of it was compared with the real model.

    checks: the checks; regions: the number of regions; sampled: the number of regions whose maps
    were compared; excused: the number of regions next to places that the partition reports as
    unresolved; points: the number of points at which the maps were compared; notes: which ReLUs of
    the model were read as maxima.
    """

    checks: tuple[Check, ...]
    regions: int
    sampled: int
    excused: int = 0
    points: int = 0
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)

    def __repr__(self) -> str:
        passed = f"{sum(check.ok for check in self.checks)} of {len(self.checks)} checks passed"
        return f"{type(self).__name__}({passed}, {self._extent()})"

    def __str__(self) -> str:
        return "\n".join([self._extent(), *map(str, self.checks), *self.notes])

    def _extent(self) -> str:
        regions = f"{self.sampled:,} of {counted(self.regions, 'region')}"
        excused = f", {self.excused:,} at unresolved places excused" if self.excused else ""
        return f"{regions} compared with the model at {self.points:,} points{excused}"


def validate(
    part: PartitionData,
    *,
    samples: int | None = None,
    thorough: bool = False,
    seed: int = 0,
    progress: bool = True,
) -> Report:
    """Check the structure of all regions, and the maps of some of them against the real model.

    Returns a report of the checks, or raises a ``ValidationError`` with those that failed. A
    private copy of the model runs in float64. A model that cannot run in float64 is compared in its
    own precision, and the names of these checks say so. If smooth functions of the model were
    replaced, maps are compared with the replaced network, and with the model within their bounds.

    By default the model is run at as many points as the partition has vertices, but at least at
    1,000 and at most at 4,000. For a large network whose partition has fewer vertices, this takes
    several times as long as the partition.

    samples: compare this many regions instead, at two points each. thorough: compare every region,
    and slopes output by output. seed: determines the random regions and points. progress: show a
    progress bar in interactive use.
    """
    if samples is not None and samples < 1:
        raise ValueError(f"samples must be at least 1, not {samples}")
    if samples is not None and thorough:
        raise ValueError("give either samples, or thorough=True for all regions")
    points = min(_MOST, max(_LEAST, part.mesh.num_vertices))
    most = len(part) if thorough else points // 2 if samples is None else samples
    generator = torch.Generator().manual_seed(seed)
    with torch.inference_mode(False):
        trusted = ~near_unresolved(part)
        excused = int((~trusted).sum())
        checks = check_mesh(part.mesh, float(part.domain.area) / part._frame.scale**2, trusted)
        if not all(check.ok for check in checks) or not bool(trusted.any()):
            return accepted(Report(tuple(checks), len(part), 0, excused), part)
        least = 0 if samples else _LEAST
        sites, located = _sites(part, trusted & part.complete, most, least, generator)
        evaluations = 4 * sites.faces.shape[0] + sites.around.shape[0]
        with progress_bar(evaluations, "point", progress) as bar:
            checks += located
            if len(sites.faces):
                switched, decided = switches(part, sites, bar.update)
                checks.append(Check("regions inside which a unit switches", switched, 0))
                if part.unresolved:  # the uncertainty may reach farther than the place itself
                    excused += int((~decided).sum())
                    sites = sites.only(decided)
            if part._wanted is not None:
                settled = chosen_regions(
                    part, trusted & ~part.complete & ~part.undecided, most, generator
                )
                if len(settled):
                    checks += check_claims(part, part._wanted, settled, generator)
            sampled = int(sites.faces.shape[0])
            if sampled:
                checks += check_model(part, sites, thorough, generator, bar.update)
    compared_at = sum(faces.shape[0] for faces, _ in sites.groups().values())
    notes = tuple(map(str, part._network.written))
    return accepted(Report(tuple(checks), len(part), sampled, excused, compared_at, notes), part)


R = TypeVar("R", bound=Report)


def accepted(report: R, part: object) -> R:
    """The report on a part; a ``ValidationError`` with the failed checks, if there are any."""
    failed = [check for check in report.checks if not check.ok]
    if not failed:
        return report
    listed = "\n".join(f"  {check}" for check in failed)
    hint = ""
    if report.sampled and not any("switches" in check.name for check in failed):
        hint = "\nIf the model was changed since (weights, train mode), partition it again."
    raise ValidationError(f"{part!r} is not valid:\n{listed}{hint}")


def check_claims(
    part: PartitionData, wanted: Wanted, faces: Tensor, generator: torch.Generator
) -> list[Check]:
    """Checks that the model's answer inside of settled regions (N,) is the one that is claimed."""
    first = part._face_vertices[part.mesh.offsets[faces]]
    claimed = wanted.labels(part._outputs[first])
    points = {
        "centroids": part._frame.to_local(part.centroids[faces]),
        "random interior points": interior_points(part.mesh, faces, generator),
    }

    def count(forward: Forward, dtype: torch.dtype) -> list[Check]:
        # Lower precision, and a final softmax in any precision, may make equal what is not.
        exact = dtype == torch.float64 and part._network.final is None
        real = forward if exact else part._network

        def wrong(uv: Tensor, said: Tensor) -> Tensor:
            outputs = as_rows(real(part.domain.embed(part._frame.to_plane(uv))))
            return (wanted.labels(outputs) != said).any(1).double()

        rows, name = rows_of(part), "settled regions with another answer at"
        return [
            Check(f"{name} {where}", worst_of(rows, wrong, uv, claimed), 0)
            for where, uv in points.items()
        ]

    options = part.model, part._chosen_output, part._dtype
    return compared(part, options, part.mesh.uv.device, count, lambda _: [])[0]


def near_unresolved(part: PartitionData) -> Tensor:
    """Whether each region has a vertex at a place that is reported as unresolved, (F,)."""
    mesh = part.mesh
    if not part.unresolved:  # the mesh may be damaged
        return torch.zeros(mesh.num_faces, dtype=torch.bool, device=mesh.uv.device)
    near = torch.zeros(mesh.num_vertices, dtype=torch.bool, device=mesh.uv.device)
    places = sorted({item.place for item in part.unresolved})
    local = part._frame.to_local(torch.tensor(places, dtype=torch.float64).view(-1, 2)).to(mesh.uv)
    for place in torch.split(local, max(1, _BATCH // mesh.num_vertices)):
        near |= (torch.cdist(mesh.uv, place) <= UNRESOLVED_REACH).any(1)
    return mesh.sums(near[mesh.corner_vertices()].long()) > 0


def _sites(
    part: PartitionData, trusted: Tensor, most: int, least: int, generator: torch.Generator
) -> tuple[Sites, list[Check]]:
    """Places in at most so many regions, at least so many points, and checks of ``locate``."""
    faces = chosen_regions(part, trusted, most, generator)
    more = max(0, least - 2 * faces.shape[0])
    centroids = part._frame.to_local(part.centroids[faces])
    interior = interior_points(part.mesh, faces, generator)
    # Random convex combinations of the corners are random points of the domain.
    corners = part._frame.to_local(part.domain.corners.to(part.mesh.uv))
    share = torch.rand((_LOCATED, corners.shape[0]), generator=generator, dtype=torch.float64)
    share = -share.clamp(min=EPS).log()
    anywhere = (share / share.sum(1, keepdim=True)).to(corners) @ corners
    uv = torch.cat([anywhere, centroids, interior])
    found = part._locator(uv)
    some = (found >= 0).nonzero()[:, 0]
    depth = signed_distances(part.mesh, uv[some], found[some])
    off = float(depth.clamp(max=0).min().abs()) if some.shape[0] else 0.0
    checks = [
        Check("points of the domain that locate finds in no region", len(uv) - len(some), 0),
        Check("distance of points from the region that locate finds", off, SAFETY * UV_ERROR),
    ]
    inside = (found[:more] >= 0).nonzero()[:, 0]
    inside = inside[trusted[found[inside]]]
    return Sites(faces, centroids, interior, anywhere[inside], found[inside]), checks


def chosen_regions(
    part: PartitionData, trusted: Tensor, samples: int, generator: torch.Generator
) -> Tensor:
    """All trusted regions, or the largest, the smallest and random ones."""
    faces = trusted.nonzero()[:, 0]
    F = faces.shape[0]
    if samples >= F:
        return faces
    order = torch.argsort(part.areas[faces]).cpu()
    extremes = torch.cat([order[: samples // 8], order[F - samples // 8 :]])
    others = torch.randperm(F, generator=generator)[: samples - 2 * (samples // 8)]
    chosen: Tensor = torch.unique(torch.cat([extremes, others]))
    return faces[chosen.to(faces.device)]


def interior_points(mesh: Mesh, faces: Tensor, generator: torch.Generator) -> Tensor:
    """One random point inside each face, (N, 2): a random convex combination of its corners."""
    entries, counts = take_rows(mesh.offsets, faces)
    owner = owners_of(counts)
    share = torch.rand(owner.shape[0], generator=generator, dtype=torch.float64).to(mesh.uv.device)
    share = share + 1 / SAFETY  # keep away from the border
    total = share.new_zeros(faces.shape[0]).index_add_(0, owner, share)
    vertex = mesh.edges.view(-1)[mesh.corners[entries]]
    points = mesh.uv.new_zeros((faces.shape[0], 2))
    points.index_add_(0, owner, mesh.uv[vertex] * (share / total[owner])[:, None])
    return points
