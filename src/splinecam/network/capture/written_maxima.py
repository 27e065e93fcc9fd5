"""Minima and maxima that a network writes with ReLUs, as layers of maxima.

    max(a, b) = a + relu(b - a) = (a + b) / 2 + |a - b| / 2,  where  x = relu(x) - relu(-x)

An affine function y of the results of a layer of ReLUs is *simple* if all of its units but those
of one direction cancel to affine functions: then it is the larger, or the smaller, of two affine
functions of the units before the ReLUs. If these are simple functions of an earlier layer in turn,
all of one kind, y is the largest of four functions; and so on. Whole layers are replaced if all
that is read of them is simple. They then have no border between two functions that both lose.

All sums and products of weights are exact: where one would be rounded, the ReLUs stay.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from splinecam._util.backend import is_cpu
from splinecam.network.capture.reading.stages import make_stages, refs
from splinecam.network.capture.reading.unit_groups import extreme
from splinecam.network.nonlinearities import MaxNonlinearity, Nonlinearity
from splinecam.network.ops.bounds import role_of
from splinecam.network.ops.registry import AffineRule, rule_of
from splinecam.network.program import Program, Stage, Step, Written
from splinecam.network.values import Operation, Ref, Rows

_LINEAR, _TIMES = torch.ops.aten.linear.default, torch.ops.aten.mul.Tensor
_TERMS = 64  # that are added up exactly
_MEMBERS = 1 << 12  # functions of one maximum
_LEAST = 2.0**-900  # a smaller product may be rounded without a trace
_SPLIT = 2.0**27 + 1

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Forms:
    """Affine functions of some values: entries in order of rows and of columns, and constants.

    row, col, value: (P,) of entries that are not zero; constant: (n,); width: of the values.
    """

    row: Array
    col: Array
    value: Array
    constant: Array
    width: int

    @classmethod
    def of(cls, step: Step) -> Forms:
        """The functions that a product with a matrix computes."""
        weight, bias = step.args[1], step.args[2] if len(step.args) > 2 else None
        at = weight.nonzero()
        row, col = at.cpu().numpy().T
        value = weight[at[:, 0], at[:, 1]].cpu().numpy()
        constant = np.zeros(weight.shape[0]) if bias is None else bias.cpu().numpy() + 0.0
        return cls(row, col, value, constant, weight.shape[1])

    @classmethod
    def summed(
        cls, parts: list[tuple[Array, Array, Array]], constant: Array, width: int
    ) -> Forms | None:
        """The sums of entries (row, col, value) at the same places; None if one is not exact."""
        row, col, value = (np.concatenate(part) for part in zip(*parts, strict=True))
        found = _exact_sums(row * width + col, value)
        if found is None:
            return None
        key, value = (part[found[1] != 0] for part in found)
        return cls(key // width, key % width, value, constant, width)

    @classmethod
    def same(cls, n: int) -> Forms:
        """The values themselves."""
        return cls(np.arange(n), np.arange(n), np.ones(n), np.zeros(n), n)

    def __len__(self) -> int:
        return len(self.constant)

    @property
    def counts(self) -> Array:
        """The numbers of entries of the functions."""
        return np.bincount(self.row, minlength=len(self))

    @property
    def cost(self) -> int:
        """What it costs to compute them."""
        return len(self.row) + len(self)

    @property
    def selects(self) -> bool:
        """Whether each function is one of the values."""
        alone = np.array_equal(self.row, np.arange(len(self)))
        return alone and bool((self.value == 1).all()) and not self.constant.any()

    def dense(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """The matrix and the constants as tensors."""
        weight = torch.zeros((len(self), self.width), dtype=like.dtype)
        weight[self.row, self.col] = torch.from_numpy(self.value)
        return weight.to(like.device), torch.from_numpy(self.constant).to(like.device)

    def picked(self, rows: Array, sign: Array | float = 1.0) -> Forms:
        """Some of the functions, times signs."""
        starts = np.searchsorted(self.row, np.arange(len(self) + 1))
        counts = (starts[1:] - starts[:-1])[rows]
        row, entry = _ranges(starts[rows], counts)
        signs = np.broadcast_to(np.asarray(sign), rows.shape)
        value = self.value[entry] * signs[row]
        constant = self.constant[rows] * signs + 0.0
        return Forms(row, self.col[entry], value, constant, self.width)

    def through(self, inner: Forms) -> Forms | None:
        """The same functions of the values of which theirs are ``inner``; None if not exact."""
        starts = np.searchsorted(inner.row, np.arange(len(inner) + 1))
        own, entry = _ranges(starts[self.col], inner.counts[self.col])
        value = _exact_products(self.value[own], inner.value[entry])
        shift = _exact_products(self.value, inner.constant[self.col])
        if value is None or shift is None:
            return None
        rows = np.concatenate([np.arange(len(self)), self.row])
        constant = _exact_sums(rows, np.concatenate([self.constant, shift]))
        if constant is None:
            return None
        parts = [(self.row[own], inner.col[entry], value)]
        return Forms.summed(parts, constant[1], inner.width)

    def alike(self, *, signed: bool) -> tuple[Array, Array] | None:
        """The first function that each equals, (n,), and with ``signed``, with which sign."""
        counts = self.counts
        starts = np.cumsum(counts) - counts
        sign = np.ones(len(self))
        if signed:
            some = counts > 0
            lead = np.where(some, 0.0, self.constant)
            lead[some] = self.value[starts[some]]
            sign = np.where(lead < 0, -1.0, 1.0)
        value, constant = self.value * sign[self.row], self.constant * sign + 0.0
        key = _mixed(constant.view(np.uint64))
        at = self.col.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        np.add.at(key, self.row, _mixed(value.view(np.uint64) + at))
        _, first, group = np.unique(key, return_index=True, return_inverse=True)
        first = first[group]
        if not (np.array_equal(counts[first], counts) and (constant[first] == constant).all()):
            return None  # two keys are equal by chance
        other = starts[first][self.row] + np.arange(len(self.row)) - starts[self.row]
        same = (self.col[other] == self.col) & (value[other] == value)
        return (first, sign) if bool(same.all()) else None


def _ranges(start: Array, count: Array) -> tuple[Array, Array]:
    """The numbers of ranges, each as often as it has entries, and the entries."""
    owner = np.repeat(np.arange(len(count)), count)
    return owner, np.arange(len(owner)) + (start - np.cumsum(count) + count)[owner]


def _mixed(bits: Array) -> Array:
    """Numbers of 64 bits that look random."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Array = bits ^ (bits >> np.uint64(31))
    return mixed


def _exact_products(a: Array, b: Array) -> Array | None:
    """The products of numbers; None if one is rounded (Dekker's way)."""
    with np.errstate(all="ignore"):
        product = a * b
        (a0, a1), (b0, b1) = _halves(a), _halves(b)
        rest = ((a0 * b0 - product) + a0 * b1 + a1 * b0) + a1 * b1
    small = (np.abs(product) < _LEAST) & (a != 0) & (b != 0)
    return None if bool((small | (rest != 0)).any()) else product


def _halves(x: Array) -> tuple[Array, Array]:
    far = _SPLIT * x
    high = far - (far - x)
    return high, x - high


def _exact_sums(key: Array, value: Array) -> tuple[Array, Array] | None:
    """The keys in order, and the sums of their values; None if one is rounded (Knuth's way)."""
    order = np.argsort(key, kind="stable")
    key, value = key[order], value[order]
    first = np.flatnonzero(np.diff(key, prepend=-1))
    count = np.diff(np.append(first, len(key)))
    total = value[first]
    if len(count) and count.max() > _TERMS:
        return None
    with np.errstate(all="ignore"):
        for k in range(1, int(count.max(initial=1))):
            at = np.flatnonzero(count > k)
            a, b = total[at], value[first[at] + k]
            made = a + b
            part = made - a
            if bool((((a - (made - part)) + (b - part)) != 0).any()):
                return None
            total[at] = made
    return key[first], total


@dataclass(frozen=True)
class _Branches:
    """Simple functions of ReLUs as the larger or smaller of two functions of the units.

    forms: of the units; pair: (n, 2) the two of each; kind: (n,) 1 for the larger, -1 for the
    smaller, 0 where they are one. saved: how many units have the direction of another.
    """

    forms: Forms
    pair: Array
    kind: Array
    saved: int


def _branches(outer: Forms, units: Forms) -> _Branches | None:
    """What functions of the ReLUs of some units are of the units; None if one is not simple."""
    used, place = np.unique(outer.col, return_inverse=True)
    own = units.picked(used)
    found = own.alike(signed=True)
    if found is None or not bool((own.counts > 0).all()):
        return None
    first, sign = found
    direction, n = first[place], len(outer)
    # relu(-x) is relu(x) - x, where x is the unit of a direction with its sign.
    back = sign[place] < 0
    kinks = _exact_sums(outer.row * len(used) + direction, outer.value)
    if kinks is None:
        return None
    key, kink = (part[kinks[1] != 0] for part in kinks)
    row, bent = key // len(used), key % len(used)
    if len(row) > 1 and bool((np.diff(row) == 0).any()):
        return None
    straight = outer.row[back], used[direction[back]], -outer.value[back] * sign[direction[back]]
    more = n + np.arange(len(row)), used[bent], kink * sign[bent]
    both = np.full(n, -1)
    both[row] = more[0]
    two = both[straight[0]] >= 0
    again = both[straight[0]][two], straight[1][two], straight[2][two]
    constant = np.concatenate([outer.constant, outer.constant[row]])
    forms = Forms.summed([straight, again, more], constant, len(units))
    if forms is None:
        return None
    pair = np.stack([np.arange(n), np.where(both < 0, np.arange(n), both)], 1)
    kind = np.zeros(n, dtype=np.int64)
    kind[row] = np.sign(kink)
    return _Branches(forms, pair, kind, len(used) - len(np.unique(first)))


@dataclass(frozen=True)
class _Found:
    """Functions of the results of layers of ReLUs as maxima of functions of an earlier value.

    low, top: the first and the last of the layers; kept: how many steps of the stage of the first
    are needed; forms: of what these give, or of the input of the steps that are left out; members:
    (G, R) which of them each maximum is of; kind: (G,) as of ``_Branches``; saved: how many units
    have the direction of another. lower: whether the functions are maxima that were found, too.
    """

    low: int
    top: int
    kept: int
    forms: Forms
    members: Array
    kind: Array
    saved: int
    lower: bool = False

    def distinct(self) -> _Found | None:
        """The same with each function once."""
        found = self.forms.alike(signed=False)
        if found is None:
            return None
        own, place = np.unique(found[0], return_inverse=True)
        members = np.sort(place[self.members], 1)
        new = np.diff(members, axis=1, prepend=-1) > 0
        column = np.cumsum(new, 1)[new] - 1
        least = np.repeat(members[:, :1], new.sum(1).max(initial=1), 1)
        least[new.nonzero()[0], column] = members[new]
        return replace(self, forms=self.forms.picked(own), members=least)

    def through(self, step: Step) -> _Found | None:
        """The same of the input of the last step that is needed."""
        forms = self.forms.through(Forms.of(step))
        return None if forms is None else replace(self, kept=self.kept - 1, forms=forms).distinct()

    def branched(self, units: Forms, kept: int) -> _Found | None:
        """The same of the units of the layer before, on which ReLUs the functions depend."""
        found = _branches(self.forms, units)
        if found is None:
            return None
        kinds = found.kind[self.members]
        up, down = (kinds > 0).any(1) | (self.kind > 0), (kinds < 0).any(1) | (self.kind < 0)
        members = found.pair[self.members].reshape(len(self.members), -1)
        if bool((up & down).any()) or members.shape[1] > _MEMBERS:
            return None
        kind = up.astype(np.int64) - down
        saved = self.saved + found.saved
        new = _Found(self.low - 1, self.top, kept, found.forms, members, kind, saved)
        return new.distinct()


@dataclass
class _Chain:
    """The stages of a program as far as they are products with matrices and ReLUs.

    products: of each layer, the products in a row that make its units; heads: of each layer, the
    product that alone reads its results, if it is so; joined: whether the first of its products is
    the head of the layer before.
    """

    program: Program
    products: list[list[Step]] = field(init=False)
    heads: list[Step | None] = field(init=False)
    joined: list[bool] = field(init=False)

    def __post_init__(self) -> None:
        stages = self.program.stages
        self.products = [_products(stage) for stage in stages[:-1]]
        self.heads = [_head(*pair) for pair in pairwise(stages)]
        self.joined = [False]
        for stage, products, head in zip(stages[1:], self.products[1:], self.heads, strict=False):
            whole = head is not None and len(products) == len(stage.steps)
            self.joined.append(whole and bool(self.products[len(self.joined) - 1]))

    def drops_head(self, found: _Found) -> bool:
        """Whether functions are of the results of a layer, without the product that reads them."""
        return not found.lower and not found.kept and self.joined[found.low]

    def maxima_below(self, top: int, outer: Forms) -> list[_Found]:
        """Functions of the results of a layer as maxima, and what these are of in turn."""
        n, best = len(outer), None
        start = _Found(top + 1, top, 0, outer, np.arange(n)[:, None], np.zeros(n, dtype=int), 0)
        at = start.distinct()
        while at is not None and (at.low > top or self.joined[at.low]):
            products = self.products[at.low - 1]
            more = at.branched(Forms.of(products[-1]), len(products)) if products else None
            if more is None:
                break
            at = best = more
            for step in reversed(products):
                at = at.through(step)
                if at is None:
                    break
                best = at if at.forms.cost <= best.forms.cost else best
        if best is None or not best.saved:
            return []
        if at is not None and at.low <= top and self.joined[at.low]:
            lower = self.maxima_below(at.low - 1, at.forms)
            if lower:
                return [replace(at, forms=Forms.same(len(at.forms)), lower=True), *lower]
        return [best]


def _products(stage: Stage) -> list[Step]:
    """The products with matrices, one of the other, that make the units of a layer of ReLUs."""
    layer, found = stage.layer, list[Step]()
    if layer is None or not layer.rectifies or len(layer.shape) != 1:
        return []
    if layer.argument != layer.source or stage.live_out != (layer.source,):
        return []
    wanted, width = layer.source, layer.shape[0]
    for step in reversed(stage.steps):
        if step.name != wanted or not _multiplies(step) or step.args[1].shape[0] != width:
            break
        found.append(step)
        wanted, width = step.args[0].name, step.args[1].shape[1]
    return found[::-1]


def _multiplies(step: Step) -> bool:
    return (
        step.run is _LINEAR
        and not step.kwargs
        and isinstance(step.args[0], Ref)
        and isinstance(step.args[1], Tensor)
        and step.args[1].dim() == 2
    )


def _head(stage: Stage, after: Stage) -> Step | None:
    """The product that alone reads the results of a layer, if it is the next step."""
    layer, head = stage.layer, after.steps[0] if after.steps else None
    if layer is None or head is None or not _multiplies(head) or head.args[0].name != layer.result:
        return None
    others = (ref.name for step in after.steps[1:] for ref in refs((step.args, step.kwargs)))
    passed = layer.result in after.live_out or layer.result in others
    return None if passed or head.args[1].shape[1] != prod(layer.shape) else head


def _likely(stage: Stage, after: Stage) -> bool:
    """Whether the first function of the ReLUs between two stages may be simple."""
    if stage.layer is None or not stage.layer.rectifies or not stage.steps or not after.steps:
        return False
    units, outer = stage.steps[-1], after.steps[0]
    if not (_multiplies(units) and _multiplies(outer)):
        return False
    (n, inputs), (outputs, own) = units.args[1].shape, outer.args[1].shape
    return n == own and min(outputs, n, inputs) > 0 and not _hopeless(outer.args[1], units.args[1])


def _hopeless(outer: Tensor, units: Tensor) -> bool:
    """Whether the first function of ReLUs is clearly not simple, as most of its units are alone."""
    fast = is_cpu(units.device)  # numpy takes a row in a third of the time
    after, before = (outer.numpy(), units.numpy()) if fast else (outer, units)
    factors, first = after[0].tolist(), before[:, 0].tolist()
    two = [*islice((x for x, factor in zip(first, factors, strict=True) if factor), 2)]
    if len(two) == 2 and all(first.count(x) + first.count(-x) < 2 for x in two):
        return True
    size = units[outer[0] != 0].abs().sum(1)
    return 2 * len(torch.unique(size)) > len(size) + 1


def with_maxima(program: Program) -> Program:
    """The same program with layers of maxima in place of ReLUs that are nothing else."""
    stages = program.stages
    likely = [_likely(*pair) for pair in pairwise(stages)]
    if not any(likely):
        return program
    chain, found, k = _Chain(program), list[_Found](), len(likely) - 1
    while k >= 0:
        head, new = chain.heads[k], list[_Found]()
        if likely[k] and head is not None and chain.products[k]:
            new = chain.maxima_below(k, Forms.of(head))
        found += new
        k = new[-1].low - 1 - chain.drops_head(new[-1]) if new else k - 1
    return _rebuilt(chain, found) if found else program


def _rebuilt(chain: _Chain, found: list[_Found]) -> Program:
    """The program with the maxima that were found, from the last one to the first."""
    program, body, written = chain.program, list[Any](), list[Written]()
    names: dict[int, str] = {}  # of what stands for the head of a layer
    starts = {each.low: each for each in found}
    inner = {i for each in found for i in range(each.low + 1, each.top + 1)}
    for i, stage in enumerate(program.stages):
        steps, each = [*stage.steps], starts.get(i)
        if i in inner:
            continue
        if each is None:
            body += [*steps[i - 1 in names :], *([] if stage.layer is None else [stage.layer])]
            continue
        above = starts.get(each.top + 1)
        head, products = chain.heads[each.top], chain.products[i]
        assert head is not None
        name = names[each.top] = f"{head.name}.units" if above and above.lower else head.name
        if each.lower:
            base = names[i - 1]
        else:
            base = [products[0].args[0].name, *(step.name for step in products)][each.kept]
            body += steps[i - 1 in names : len(steps) - len(products) + each.kept]
        relus = program.layers[i : each.top + 1]
        made = _maxima(each, base, name, relus, products[0].args[1])
        body += made
        layer = next((x for x in made if isinstance(x, MaxNonlinearity)), None)
        written.append(
            Written(None if layer is None else layer.name, tuple(relu.name for relu in relus))
        )
    stages = make_stages(body, {}, defaultdict(Rows), program.output_name)
    return replace(program, stages=stages, written=tuple(written))


def _maxima(
    found: _Found, base: str, name: str, relus: tuple[Nonlinearity, ...], like: Tensor
) -> list[Any]:
    """The steps and the layer that make values ``name`` of values ``base``."""
    forms, members, signs = found.forms, found.members, np.where(found.kind < 0, -1.0, 1.0)
    mixed = bool((found.kind > 0).any() and (found.kind < 0).any())
    if mixed:  # the smallest of some is the largest of their negatives, negated
        signed = 2 * members + (signs < 0)[:, None]
        own, place = np.unique(signed, return_inverse=True)
        forms, members = forms.picked(own // 2, 1.0 - 2 * (own % 2)), place.reshape(members.shape)
    if members.shape[1] == 1:
        return [_product(name, base, forms.picked(members[:, 0]), like)]
    units = base if forms.selects else f"{name}.of"
    made: list[Any] = [] if forms.selects else [_product(units, base, forms, like)]
    if forms.selects:
        members = forms.col[members]
    names = [relu.name for relu in relus]
    group = torch.from_numpy(members).to(like.device)
    shape, smallest = [len(members)], not mixed and bool((found.kind < 0).any())
    layer = MaxNonlinearity(
        name=names[0] if len(names) == 1 else f"{names[0]}..{names[-1]}",
        target="minimum" if smallest else "maximum",
        source=units,
        argument=units,
        result=f"{name}.max" if mixed else name,
        shape=(forms.width if forms.selects else len(forms),),
        operation=Operation(extreme, (Operation.VARIABLE, group, shape, smallest), {}),
        after=relus[0].after,
        members=group,
        smallest=smallest,
    )
    made.append(layer)
    if mixed:
        made.append(_step(_TIMES, name, ("self", "other"), layer.result, torch.from_numpy(signs)))
    return made


def _product(name: str, base: str, forms: Forms, like: Tensor) -> Step:
    weight, bias = forms.dense(like)
    constants = (weight, bias) if bool(bias.any()) else (weight,)
    return _step(_LINEAR, name, ("input", "weight", "bias"), base, *constants)


def _step(run: Any, name: str, names: tuple[str, ...], base: str, *constants: Tensor) -> Step:
    rule = rule_of(run)
    assert isinstance(rule, AffineRule)
    names = names[: 1 + len(constants)]
    roles = tuple(role_of(rule, name) for name in names)
    return Step(name, run, (Ref(base), *constants), {}, names, rule, (roles, {}))
