"""A captured network: affine stages, each but the last followed by a layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from itertools import pairwise
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from splinecam._util.tolerances import EPS
from splinecam.network.nonlinearities import MaxNonlinearity, Nonlinearity
from splinecam.network.ops.bounds import AffineCall, Bound, Roles, measured_modulus
from splinecam.network.ops.registry import AffineRule
from splinecam.network.values import Env, Ref, resolve

_LINEAR = torch.ops.aten.linear.default
_REDUCTIONS = (torch.ops.aten.mean.dim, torch.ops.aten.sum.dim_IntList)
_ENTRYWISE = ("self", "other")  # factors of products that sum over nothing
_DENSE = 1 << 25  # coefficients of a stage at most that are found
_ROWS = 1 << 9  # of them at a time
FAR = 2.0**64  # a factor of directions, beside which the offsets of a stage round away


@dataclass(frozen=True)
class Step:
    """One call of the program."""

    name: str
    run: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    arg_names: tuple[str, ...]
    rule: AffineRule | None  # None if the result does not depend on the input
    roles: Roles
    frees: tuple[str, ...] = ()  # values that no later step needs

    def _arguments(self, env: Env, batch: int, device: torch.device) -> tuple[Any, Any]:
        tensors = (x for x in env.values() if isinstance(x, Tensor) and x.is_floating_point())
        dtype = next((x.dtype for x in tensors), torch.float64)
        args = [resolve(item, env, batch, device, dtype) for item in self.args]
        return args, resolve(self.kwargs, env, batch, device, dtype) if self.kwargs else {}

    def call(self, env: Env, batch: int, device: torch.device) -> Any:
        """The result for values ``env`` of so many points."""
        args, kwargs = self._arguments(env, batch, device)
        return self.run(*args, **kwargs)

    def fill(self, env: Env, batch: int, device: torch.device, out: Tensor) -> Tensor:
        """Put the result in ``out``."""
        args, kwargs = self._arguments(env, batch, device)
        if self.run is not _LINEAR or args[0].dim() != 2:
            return out.copy_(self.run(*args, **kwargs))
        x, weight, *bias = args
        if bias and bias[0] is not None:
            return torch.addmm(bias[0], x, weight.T, out=out)
        return torch.mm(x, weight.T, out=out)

    def bound(self, env: Env, device: torch.device, rows: int = 1) -> Any:
        """The bound of the result from the bounds ``env`` of values, of so many rows."""
        args, kwargs = self._arguments(env, rows, device)
        if self.rule is None:
            return self.run(*args, **kwargs)
        if self.rule.bound is None:
            return AffineCall(self.rule, self.run, args, kwargs, self.roles).bound()
        return self._own_bound(self.rule.bound, args, kwargs)

    def _own_bound(self, bound: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
        """The bound of the result by the function that the rule has for it."""
        assert self.rule is not None
        call = dict(zip(self.arg_names, args, strict=False)) | kwargs
        for key in self.rule.data:
            if isinstance(call.get(key), Tensor):
                call[key] = Bound(call[key].abs(), torch.zeros_like(call[key]))
        magnitudes = [x.magnitude if isinstance(x, Bound) else x for x in args]
        call["run"] = partial(self.run, *magnitudes, **kwargs)
        found = bound(call)
        if isinstance(found[0], Tensor):
            return Bound(*found)
        return tuple(Bound(*part) for part in found)

    def modulus(self, env: Env, batch: int, device: torch.device) -> Any:
        """The result for values ``env`` with the modulus of every coefficient and offset."""
        args, kwargs = self._arguments(env, batch, device)
        rule = self.rule
        if rule is None:
            return self.run(*args, **kwargs)
        if rule.measured:
            return measured_modulus(lambda x: self.run(x, *args[1:], **kwargs), args[0])
        if rule.bound is None or rule.product:
            return AffineCall(rule, self.run, args, kwargs, self.roles).modulus()
        found = self._own_bound(rule.bound, args, kwargs)
        if isinstance(found, Bound):
            return found.magnitude
        return tuple(part.magnitude for part in found)

    def rounding(self, env: Env, result: Any, device: torch.device) -> float:
        """By how much an entry of the result is off at most, relative to ``modulus``.

        env, result: for one point. A sum of n products is off by at most n / 2 ``EPS`` of
        the sum of their moduli, in any order. A few more cover an offset and factors.
        """
        rule = self.rule
        if rule is None or rule.exact or rule.reshapes or rule.identity:
            return 0.0
        ones = {name: tree_map_only(Tensor, torch.ones_like, value) for name, value in env.items()}
        args, kwargs = self._arguments(ones, 1, device)
        terms = sum(x.numel() for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor))
        if self.run in _REDUCTIONS:
            terms = args[0].numel() // result.numel()
        elif "running_var" in self.arg_names:  # a normalisation, which scales and shifts each entry
            terms = 4
        elif not rule.measured and (rule.product or "other" in rule.data + rule.factor):
            terms = AffineCall(rule, self.run, args, kwargs, self.roles).most_terms()
        return (terms + 4) * EPS / 2


def _multiplied(step: Step, result: Any) -> int:
    """About how many multiplications with a constant matrix a step makes."""
    if not _mixes(step) or not isinstance(result, Tensor):
        return 0
    constants = [x for x in step.args if isinstance(x, Tensor) and x.dim() > 1 and x.numel()]
    return max((result.numel() * x.numel() // x.shape[0] for x in constants), default=0)


def _mixes(step: Step) -> bool:
    """Whether a step adds units to each other, rather than to move, scale or shift them."""
    return step.rule is not None and step.rule.product not in ((), _ENTRYWISE)


def _derivative(layer: Nonlinearity, at: Tensor, ways: Tensor) -> Tensor:
    """The derivative of a layer at points (B, ...) along ways (K, B, ...), (K * B, ...)."""
    if layer.rectifies:
        return (ways * (at > 0)).flatten(0, 1)
    again, along = at.repeat(ways.shape[0], *[1] * (at.dim() - 1)), ways.flatten(0, 1).contiguous()
    found: Tensor = torch.func.jvp(layer.apply, (again,), (along,))[1]
    return found


def _rise(layer: Nonlinearity, at: Tensor, shift: Tensor) -> Tensor:
    """By how much a layer rises from ``at`` (1, ...) by shifts (K, 1, ...), scaled up: (K, ...)."""
    far, shift = FAR * at, shift[:, 0]
    if layer.rectifies:
        return torch.maximum(shift + far.clamp(max=0), -far.clamp(min=0))
    assert isinstance(layer, MaxNonlinearity)
    pick = torch.minimum if layer.smallest else torch.maximum
    base, moved = (list(layer.groups.columns(x.flatten(1))) for x in (far, shift))
    top = reduce(pick, base)
    return reduce(pick, [x - top + y for x, y in zip(base, moved, strict=True)])


@dataclass(frozen=True)
class Written:
    """Layers of ReLUs that only write maxima, or affine functions.

    layer: the name of the layer of maxima in place of them, None if there is none.
    """

    layer: str | None
    relus: tuple[str, ...]

    def __str__(self) -> str:
        one = len(self.relus) == 1
        what = f"the layer {self.relus[0]!r} is" if one else f"the layers {self.relus} are"
        if self.layer is None:
            return f"{what} left out: the ReLUs pass on affine functions"
        return f"{what} read as the maxima or minima {self.layer!r} that the ReLUs write"


@dataclass(frozen=True)
class Stage:
    """An affine part of the network and the layer that follows it (None for the last)."""

    live_in: tuple[str, ...]  # the values that it takes
    live_out: tuple[str, ...]  # what later stages need, the source of the layer, or the output
    layer: Nonlinearity | None
    steps: tuple[Step, ...] = ()

    @property
    def body(self) -> list[Step | Nonlinearity]:
        """The steps, and then the layer."""
        return [*self.steps, *(() if self.layer is None else (self.layer,))]


Values = Mapping[str, Tensor]
Visit = Callable[[Step, dict[str, Any]], None]


def _product(stage: Stage) -> tuple[str, Step] | None:
    """The value that a stage reshapes at most and multiplies with a matrix, and the step."""
    if not stage.steps or stage.live_out != (stage.steps[-1].name,):
        return None
    *before, step = stage.steps
    if step.run is not _LINEAR or not isinstance(step.args[1], Tensor):
        return None
    source = step.args[0]
    for shaping in reversed(before):
        if shaping.rule is None or not shaping.rule.reshapes or source != Ref(shaping.name):
            return None
        source = shaping.args[0]
    return (source.name, step) if isinstance(source, Ref) else None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Program:
    """A network that is run stage by stage on any number of points, in float64 for exact answers.

    stripped: the final function that is not part of the program, in words; the model's output is
    ``final(program(x))``. written: the ReLUs of the model that are no layers of the program.

    >>> from torch import nn
    >>> from splinecam.network.capture import capture
    >>> program = capture(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)), (2,))
    >>> program(torch.zeros(5, 2)).shape
    torch.Size([5, 1])
    """

    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    input_name: str
    output_name: str
    stages: tuple[Stage, ...]
    stripped: str | None
    final: Callable[[Tensor], Tensor] | None
    device: torch.device
    dtype: torch.dtype = torch.float64
    written: tuple[Written, ...] = ()

    def __repr__(self) -> str:
        units = sum(prod(layer.shape) for layer in self.layers)
        shapes = f"{self.input_shape} -> {self.output_shape}"
        return f"Program({shapes}, {len(self.layers)} layers, {units} units)"

    def to(self, device: torch.device | str, dtype: torch.dtype = torch.float64) -> Program:
        """The same program with its constants on another device, or of another type."""
        device = torch.device(device)
        moved: dict[int, Tensor] = {}

        def move(constant: Tensor) -> Tensor:
            kind = dtype if constant.dtype == self.dtype else constant.dtype
            return moved.setdefault(id(constant), constant.to(device, kind))

        def moved_stage(stage: Stage) -> Stage:
            calls = [tree_map_only(Tensor, move, (step.args, step.kwargs)) for step in stage.steps]
            pairs = zip(stage.steps, calls, strict=True)
            steps = tuple(replace(step, args=args, kwargs=kwargs) for step, (args, kwargs) in pairs)
            return replace(stage, layer=stage.layer and stage.layer.to(device, move), steps=steps)

        stages = tuple(map(moved_stage, self.stages))
        return replace(self, stages=stages, device=device, dtype=dtype)

    def advance(
        self, i: int, live: Values, out: Values | None = None, visit: Visit | None = None
    ) -> dict[str, Tensor]:
        """The results (B, ...) of the affine steps of stage i on a batch of values (B, ...).

        They may be views of ``live``; results named in ``out`` are put there. visit: is
        called after each step with the values so far, and may change them.
        """
        batch = live[self.stages[i].live_in[0]].shape[0]

        def make(step: Step, env: Env) -> Any:
            if out is not None and step.name in out:
                return step.fill(env, batch, self.device, out[step.name])
            return step.call(env, batch, self.device)

        return self._through(i, live, make, visit)

    def _through(
        self, i: int, live: Env, make: Callable[[Step, Env], Any], visit: Visit | None = None
    ) -> dict[str, Any]:
        """What ``make`` makes of the steps of stage i; visit: called after each step."""
        stage = self.stages[i]
        env: dict[str, Any] = {name: live[name] for name in stage.live_in}
        for step in stage.steps:
            env[step.name] = make(step, env)
            if visit is not None:
                visit(step, env)
            for name in step.frees:
                del env[name]
        return {name: env[name] for name in stage.live_out}

    @cached_property
    def widths(self) -> list[int]:
        """How many numbers per vertex are live after each stage."""
        return [width for width, _, _ in self._sizes]

    @property
    def products(self) -> list[int]:
        """About how many multiplications with constants each stage makes per vertex."""
        return [products for _, products, _ in self._sizes]

    def with_constants(self, stages: tuple[Stage, ...], **names: str) -> Program:
        """The same program with stages of other constants or names, and of the same sizes."""
        changed = replace(self, stages=stages, **names)  # type: ignore[arg-type]
        vars(changed)["_sizes"] = self._sizes  # finding them runs all stages
        if all(new.steps is old.steps for new, old in zip(stages, self.stages, strict=True)):
            vars(changed)["_dense_moduli"] = self._dense_moduli
            vars(changed).update(_roundings=self._roundings, _row_shapes=self._row_shapes)
        return changed

    @cached_property
    def _sizes(self) -> list[tuple[int, int, dict[str, torch.Size]]]:
        """The width of each stage, its multiplications, and the shapes of what it takes."""
        x = torch.zeros((1, *self.input_shape), dtype=torch.float64, device=self.device)
        live, sizes = {self.input_name: x}, []
        for i, stage in enumerate(self.stages):
            env, products = dict(live), 0
            shapes = {name: live[name].shape[1:] for name in stage.live_in}
            for step in stage.steps:
                env[step.name] = step.call(env, 1, self.device)
                products += _multiplied(step, env[step.name])
            live = {name: env[name] for name in stage.live_out}
            sizes.append((sum(value.numel() for value in live.values()), products, shapes))
            live = self._apply_layer(i, live)
        return sizes

    def columns(self, i: int, name: str, live: Values) -> dict[str, Tensor]:
        """The results of stage i for each unit of one live value alone, less the offset: (n, m).

        live: (1, ...) each; the value is about as large as its units, so that little is
        lost.
        """
        stage = self.stages[i]
        size, n, dense = live[name], live[name].numel(), self.dense(i)
        if dense is not None and dense[0] == name and dense[1].args[1].shape[1] == n:
            return {dense[1].name: dense[1].args[1].T.contiguous()}
        scale = torch.where(size == 0, 1.0, size).reshape(n, 1)
        batch = {key: live[key].new_zeros((n + 1, *live[key].shape[1:])) for key in stage.live_in}
        batch[name].view(n + 1, n).diagonal().copy_(scale[:, 0])
        made = self.advance(i, batch)
        return {key: (value[:n] - value[n:]).reshape(n, -1) / scale for key, value in made.items()}

    def mixes(self, i: int) -> bool:
        """Whether stage i adds units to each other, rather than to move, scale or shift them."""
        return any(map(_mixes, self.stages[i].steps))

    def dense(self, i: int) -> tuple[str, Step] | None:
        """The value that stage i reshapes at most and multiplies with a matrix, and the step."""
        return self._dense[i]

    @cached_property
    def _dense(self) -> list[tuple[str, Step] | None]:
        return [_product(stage) for stage in self.stages]

    def bounds(self, i: int, live: Mapping[str, Bound]) -> dict[str, Bound]:
        """Bounds on the magnitudes and the rounding errors of stage i's results, (R, ...) each."""
        taken = (live[name].error.shape[0] for name in self.stages[i].live_in)
        rows = max(taken, default=1)
        return self._through(i, live, lambda step, env: step.bound(env, self.device, rows))

    def moduli(self, i: int, live: Values) -> dict[str, Tensor]:
        """Stage i on values m >= 0, (B, ...), with moduli as coefficients: ``|W| m + |b|``."""
        batch = live[self.stages[i].live_in[0]].shape[0]
        return self._through(i, live, lambda step, env: step.modulus(env, batch, self.device))

    def roundings(self, i: int) -> dict[str, float]:
        """By how much the steps of stage i round, by their names, see ``Step.rounding``."""
        if i not in self._roundings:
            found: dict[str, float] = {}

            def visit(step: Step, env: dict[str, Any]) -> None:
                found[step.name] = step.rounding(env, env[step.name], self.device)

            self.advance(i, self.zeros(i, 1), visit=visit)
            self._roundings[i] = found
        return self._roundings[i]

    def row_shapes(self, i: int) -> dict[str, torch.Size]:
        """The shapes of a point's results of steps of stage i, as far as each point has a row."""
        if i in self._row_shapes:
            return self._row_shapes[i]
        shapes: dict[str, list[tuple[int, ...]]] = {}

        def visit(step: Step, env: dict[str, Any]) -> None:
            if isinstance(result := env[step.name], Tensor):
                shapes.setdefault(step.name, []).append(tuple(result.shape))

        for rows in (1, 2, 3):
            self.advance(i, self.zeros(i, rows), visit=visit)
        self._row_shapes[i] = {
            name: torch.Size(each[0][1:])
            for name, each in shapes.items()
            if each == [(rows, *each[0][1:]) for rows in (1, 2, 3)]
        }
        return self._row_shapes[i]

    def dense_moduli(self, i: int) -> dict[str, dict[str, Tensor]] | None:
        """The moduli (n, m) of the coefficients of stage i, by result and by source.

        Sources are the values that the stage takes, and the results of some of its steps.
        What several steps add up to is far smaller than the product of their moduli. None
        if one step says the same, or if there are too many coefficients.
        """
        if i not in self._dense_moduli:
            self._dense_moduli[i] = self._moduli_of(i)
        return self._dense_moduli[i]

    @cached_property
    def _roundings(self) -> dict[int, dict[str, float]]:
        return {}

    @cached_property
    def _row_shapes(self) -> dict[int, dict[str, torch.Size]]:
        return {}

    @cached_property
    def _dense_moduli(self) -> dict[int, dict[str, dict[str, Tensor]] | None]:
        return {}

    def zeros(self, i: int, rows: int) -> dict[str, Tensor]:
        """Zeros in place of the values that stage i takes."""
        make = partial(torch.zeros, dtype=torch.float64, device=self.device)
        return {name: make((rows, *shape)) for name, shape in self._sizes[i][2].items()}

    def _moduli_of(self, i: int) -> dict[str, dict[str, Tensor]] | None:
        mixing = [step.name for step in self.stages[i].steps if _mixes(step)]
        live = self.zeros(i, 1)
        numbers = sum(value.numel() for value in live.values())
        if len(mixing) < 2 or numbers * self.widths[i] > _DENSE:
            return None
        sources = {name: value.shape[1:] for name, value in live.items()}
        most = _DENSE // self.widths[i] - numbers
        sources.update(self._inner_sources(i, mixing, most))
        found: dict[str, dict[str, Tensor]] = {name: {} for name in self.stages[i].live_out}
        for name, shape in sources.items():
            ways = FAR * torch.eye(prod(shape), dtype=torch.float64, device=self.device)
            rows = torch.split(ways.view(-1, *shape), _ROWS)
            parts = [self._from(i, name, some) for some in rows]
            for key in found:
                less = [(part[key][:-1] - part[key][-1:]).flatten(1) for part in parts]
                found[key][name] = torch.cat(less).abs_().div_(FAR)
        return found

    def _inner_sources(self, i: int, mixing: list[str], most: int) -> dict[str, torch.Size]:
        """Some results of products from which a stage goes on to two more, with shapes."""
        shapes, found = self.row_shapes(i), {}
        for name, after in pairwise(mixing[:-1]):
            numbers = prod(shapes[name]) if name in shapes else most + 1
            if numbers <= min(most, prod(shapes.get(after, ()))):
                found[name] = shapes[name]
                most -= numbers
        return found

    def _from(self, i: int, name: str, ways: Tensor) -> dict[str, Tensor]:
        """The results of stage i where one value is moved by ways (n, ...), and without, last."""
        live = self.zeros(i, len(ways) + 1)

        def visit(step: Step, env: dict[str, Any]) -> None:
            if step.name == name:
                env[name] = torch.cat([env[name][:-1] + ways, env[name][-1:]])

        if name in live:
            live[name][:-1] = ways
        return self.advance(i, live, visit=visit)

    def __call__(self, x: Tensor) -> Tensor:
        """The network on ``(B, *input_shape)`` in float64: ``(B, *output_shape)``."""
        live = self._entry(x)
        for i in range(len(self.stages)):
            live = self._apply_layer(i, self.advance(i, live))
        return live[self.output_name]

    def derivatives(self, x: Tensor, ways: Tensor) -> Tensor:
        """The derivatives (K, B, n) of the flat output at x (B, ...) along ways (K, B, ...)."""
        return self._run_ways(x, ways, _derivative)

    @property
    def subtracts(self) -> bool:
        """Whether ``differences`` knows all layers."""
        return all(layer.rectifies or isinstance(layer, MaxNonlinearity) for layer in self.layers)

    def differences(self, x: Tensor, shifts: Tensor) -> Tensor:
        """By how much the flat output changes from x (1, ...) by shifts (K, ...), (K, n)."""
        return self._run_ways(x, shifts[:, None], _rise)[:, 0]

    def _run_ways(
        self, x: Tensor, ways: Tensor, follow: Callable[[Nonlinearity, Tensor, Tensor], Tensor]
    ) -> Tensor:
        """What becomes of ways (K, B, ...) at points x (B, ...), (K, B, n); follow: by layers."""
        B = x.shape[0]
        # Points and ways run through a stage as one batch. Its last row is zero, for the offset.
        live = self._entry(torch.cat([x, FAR * ways.flatten(0, 1), torch.zeros_like(x[:1])]))
        for i, stage in enumerate(self.stages):
            made = self.advance(i, live)
            live = {
                name: torch.cat([z[:B], z[B:] - z[-1:]]) if bool(z[-1].any()) else z
                for name, z in made.items()
            }
            if stage.layer is not None:
                z = live[stage.layer.argument]
                at = stage.layer.apply(z[:B])
                along = follow(stage.layer, z[:B], z[B:-1].view(-1, B, *z.shape[1:]))
                rows = [at, along.reshape(-1, *at.shape[1:]), torch.zeros_like(at[:1])]
                live[stage.layer.result] = torch.cat(rows)
        return (live[self.output_name][B:-1] / FAR).reshape(*ways.shape[:2], -1)

    def walk(self, x: Tensor) -> Iterator[tuple[Nonlinearity, Tensor]]:
        """Yield the layers in order, each with its source at the points ``(B, *input_shape)``."""
        if self.layers:
            yield from self.walk_on(0, self.advance(0, self._entry(x)))

    def walk_on(self, i: int, live: dict[str, Tensor]) -> Iterator[tuple[Nonlinearity, Tensor]]:
        """Yield the layers from that of stage i on; live: the values before that layer."""
        for k in range(i, len(self.layers)):  # every stage but the last ends with a layer
            live = live if k == i else self.advance(k, live)
            layer = self.layers[k]
            yield layer, live[layer.source]
            live = self._apply_layer(k, live)

    def _entry(self, x: Tensor) -> dict[str, Tensor]:
        return {self.input_name: x.to(device=self.device, dtype=self.dtype)}

    def _apply_layer(self, i: int, live: dict[str, Tensor]) -> dict[str, Tensor]:
        layer = self.stages[i].layer
        return live if layer is None else {**live, layer.result: layer.apply(live[layer.argument])}

    def patterns(self, x: Tensor, errors: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
        """The pieces that the units of each layer are on: name -> integers ``(B, units)``.

        errors: name -> rounding error ``(n,)``, see :meth:`Nonlinearity.pieces`.
        """
        error = errors or {}
        return {
            layer.name: layer.pieces(z, error.get(layer.name, 0.0)) for layer, z in self.walk(x)
        }

    @cached_property
    def layers(self) -> tuple[Nonlinearity, ...]:
        """The layers, in order."""
        return tuple(stage.layer for stage in self.stages if stage.layer is not None)
