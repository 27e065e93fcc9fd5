"""The difference of two networks: how large it is, where, and where decisions differ.

On every region of the common partition the difference is affine, and its modulus and its norms are
convex, so that they are largest at vertices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor

from splinecam._util.arrays import take
from splinecam._util.text import TextTable, number_text
from splinecam._util.tolerances import EPS
from splinecam.arrangement.crossings import Ambiguities
from splinecam.arrangement.zero_sets import overlay
from splinecam.engine.affine_maps import fit_maps
from splinecam.geometry.subdivision import Mesh
from splinecam.network.capture import Both
from splinecam.network.capture.models import dtype_of
from splinecam.network.capture.pairs import Shown
from splinecam.questions.boundary import Kind, check_kind, unresolved_places
from splinecam.questions.certainty import class_band
from splinecam.questions.class_regions import ClassPolygon, LabelledCells
from splinecam.questions.curves import Curves
from splinecam.questions.measures import integrals
from splinecam.questions.partition_data import PartitionData, Unresolved, class_number, counted
from splinecam.questions.stats import few_rows, output_names, tables_text
from splinecam.questions.validate import run_real
from splinecam.questions.winners import CLOSE, Scores, disputed, face_winners, find_leads

_PRINTED = 3  # pairs of classes


@dataclass(frozen=True, eq=False, repr=False)
class Disagreement:
    """The decisions of two networks in each part of the domain.

    partition: of the first network, on the regions of both; n_classes: the number of classes;
    areas: (n_classes, n_classes) the area of the points that belong to one class by the first
    network (row) and to another by the second (column); the areas add up to that of the domain.
    mesh: the regions on which they may differ, cut along both decision boundaries;
    cell_classes: (C, 2) the classes of its cells by both networks; cell_region: (C,) the region in
    which each lies. unresolved: places that float64 could not settle, usually none.
    """

    partition: PartitionData
    n_classes: int
    areas: Tensor
    mesh: Mesh
    cell_classes: Tensor
    cell_region: Tensor
    unresolved: tuple[Unresolved, ...]

    @property
    def area(self) -> float:
        """The area on which the decisions differ."""
        return float((self.areas - self.areas.diag().diag()).sum())

    @property
    def share(self) -> float:
        """The same as a share of the domain, between 0 and 1."""
        return self.area / float(self.areas.sum())

    def pairs(self) -> dict[tuple[int, int], float]:
        """The areas of pairs of different classes by the two networks, the largest first."""
        off = self.areas - self.areas.diag().diag()
        found = {(i, j): float(off[i, j]) for i, j in off.nonzero().tolist()}
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    @cached_property
    def _cells(self) -> LabelledCells:
        """The cells, labelled with their pair of classes as one number, -1 where both agree."""
        a, b = self.cell_classes.unbind(1)
        label = torch.where(a == b, -1, a * self.n_classes + b)
        return LabelledCells(self.partition, self.mesh, self.cell_region, label)

    def polygons(
        self, class_a: int | str | None = None, class_b: int | str | None = None
    ) -> list[ClassPolygon]:
        """The connected pieces of the area on which the decisions differ, the largest first.

        Each has one pair of classes. class_a, class_b: only the pieces of these classes, given by
        number or name, of the first and of the second network.
        """
        label = self._cells.outlines.piece_label
        chosen = label >= 0
        for which, own in ((class_a, label // self.n_classes), (class_b, label % self.n_classes)):
            if which is not None:
                number = class_number(which, self.partition.names, self.n_classes)
                chosen &= own == number
        return self._cells.polygons(chosen)

    def rings(self) -> tuple[Tensor, Tensor]:
        """The outlines of the pieces and of their holes, as closed rings in plane coordinates.

        Each ring ends with its first point; the first result says where each begins, (R + 1,).
        """
        return self._cells.rings(self._cells.outlines.piece_label >= 0)

    @cached_property
    def outline(self) -> Curves:
        """The outline of the area where decisions differ, without the border; all labels are 0."""
        # Cells beside which the mesh ends agree, unless they lie at the domain's border.
        return self._cells.outline(self._cells.label >= 0)

    def __repr__(self) -> str:
        names, pairs = self.partition.names or range(self.n_classes), self.pairs()
        largest = list(pairs.items())[:_PRINTED]
        parts = [f"{names[i]} -> {names[j]}: area {area:.4g}" for (i, j), area in largest]
        more = ", ..." * (len(pairs) > _PRINTED)
        share = f"{100 * self.share:.3g} % of the domain"
        return f"Disagreement({', '.join([share, *parts])}{more})"


@torch.no_grad()
def disagreement(
    a: PartitionData, b: PartitionData, *, kind: Kind = "argmax", level: float = 0.0
) -> Disagreement:
    """Where the decisions of two networks differ, from partitions with the same mesh."""
    n, level = check_kind(a, kind, level, single=True)
    both = [Scores.of(part, smallest=kind == "argmin", level=level) for part in (a, b)]
    leads = [find_leads(scores.z, scores.error) for scores in both]
    first = take(a._face_vertices, a.mesh.offsets[:-1])
    settled = torch.stack([take(winner, first) for winner, _, _ in leads], 1)
    open_ = settled[:, 0] != settled[:, 1]
    for lead in leads:
        open_[disputed(a.mesh, lead)] = True
    faces = open_.nonzero()[:, 0]
    places = [a.mesh.uv[unclear] for _, _, unclear in leads if unclear.shape[0]]
    ambiguities = [Ambiguities(uv, CLOSE) for uv in places]

    # The decisions of the first network cut the mesh, and then the decisions of the second.
    z = torch.cat([both[0].z, both[1].z], 1)
    once = overlay(a.mesh, z, lambda mesh, z, layer: both[0].cut(mesh, z[:, :n], layer), faces)
    twice = overlay(once.mesh, once.z, lambda mesh, z, layer: both[1].cut(mesh, z[:, n:], layer))
    winners = [
        face_winners(twice.mesh, values, scores.error, find_leads(values, scores.error))[0]
        for values, scores in zip((twice.z[:, :n], twice.z[:, n:]), both, strict=True)
    ]
    cell_areas = twice.mesh.areas_and_centroids()[0] * a._frame.scale**2
    areas = cell_areas.new_zeros(n * n)
    closed = (~open_).nonzero()[:, 0]
    areas.index_add_(0, settled[closed, 0] * n + settled[closed, 1], a.areas[closed])
    areas.index_add_(0, winners[0] * n + winners[1], cell_areas)
    ambiguities += [*once.ambiguities, *twice.ambiguities]
    unresolved = unresolved_places(a, ambiguities, "disagreement")
    cells = twice.mesh, torch.stack(winners, 1), once.face[twice.face]
    return Disagreement(a, n, areas.view(n, n), *cells, unresolved)


_NORMS = (1.0, 2.0, math.inf)


@dataclass(frozen=True, eq=False, repr=False)
class LargestDifference:
    """The largest difference of two networks on a domain, and where it is attained.

    value: the largest modulus of the difference of one output, or the largest norm of all;
    error: the bound of its rounding error, and of the change by replaced smooth functions; output:
    the index of the output, None for a norm; norm: 1, 2 or inf; place: the plane coordinates;
    input: the input there, in the first model's floating-point type; outputs: what the two models
    themselves return for this input, as float64 vectors, after a final softmax, sigmoid or tanh.
    """

    value: float
    error: float
    output: int | None
    norm: float
    place: tuple[float, float]
    input: Tensor
    outputs: tuple[Tensor, Tensor]

    @property
    def measured(self) -> float:
        """The same difference, or norm, of what the models return."""
        off = self.outputs[0] - self.outputs[1]
        return float(off[self.output].abs() if self.output is not None else off.norm(p=self.norm))

    def __repr__(self) -> str:
        what = f"norm {self.norm:g}" if self.output is None else f"output {self.output}"
        place = ", ".join(f"{x:.6g}" for x in self.place)
        return f"LargestDifference({self.value:.6g} +- {self.error:.1g}, {what}, at ({place}))"


@dataclass(frozen=True, eq=False)
class Magnitude:
    """The largest modulus of some functions as one function, which is affine on each of C cells.

    mesh: the cells, in local coordinates; values: (V,) at its vertices; on a cell the function is
    origin + slopes @ uv, with origin: (C,) and slopes: (C, 2).
    """

    mesh: Mesh
    values: Tensor
    origin: Tensor
    slopes: Tensor


@dataclass(frozen=True, eq=False, repr=False)
class Difference:
    """Two networks on one domain, which is divided into regions on which both are affine.

    view: makes the partition into these regions with the outputs that are to be shown, which is
    done when they are first asked for; error: (n_out,) the bound of the rounding error of the
    difference of each output, 0 where both networks are seen to compute the same function.
    """

    view: Callable[[Shown], PartitionData]
    error: Tensor

    @cached_property
    def partition(self) -> PartitionData:
        """The common partition, with the outputs of the first network and then of the second.

        Its layers have the names ``a.1``, ``b.1``, or ``both.1`` where the networks begin with
        equal layers.
        """
        return self.view("both")

    @cached_property
    def a(self) -> PartitionData:
        """The same regions with the outputs of the first network, for all questions about it."""
        return self.view("a")

    @cached_property
    def b(self) -> PartitionData:
        """The same regions with the outputs of the second network, for all questions about it."""
        return self.view("b")

    @cached_property
    def delta(self) -> PartitionData:
        """The same regions with the difference of the outputs, the first less the second.

        It has level sets, slopes, statistics and pictures like any partition.
        """
        return self.view("difference")

    def __len__(self) -> int:
        return len(self.delta)

    @property
    def unresolved(self) -> tuple[Unresolved, ...]:
        """Places of the common partition that float64 could not settle, usually none."""
        return self.delta.unresolved

    @property
    def bound(self) -> Tensor:
        """How far the difference of the models is at most from that of the maps, (n_out,).

        It is zero unless smooth functions were replaced. ``delta.region_bounds`` has it by region.
        """
        return self.delta._bound

    @cached_property
    def maxima(self) -> Tensor:
        """The largest modulus of the difference of each output, (n_out,)."""
        return self.delta.values.abs().amax(0)

    def largest(
        self, norm: float | str = math.inf, *, output: int | str | None = None
    ) -> LargestDifference:
        """The largest difference on the domain, with its place and an input that shows it.

        norm: 1, 2 or inf, the norm of the differences of all outputs. output: only this output, by
        its number or by the name of its class.
        """
        values, error = self.delta.values, self.error + self.bound
        try:
            size = float(norm)
        except (TypeError, ValueError):
            size = math.nan
        if size not in _NORMS:
            raise ValueError(f"norm must be 1, 2 or inf, not {norm!r}")
        index = None if output is None else self.output_index(output)
        if index is not None:
            values, error = values[:, index : index + 1], error[index : index + 1]
        norms = _row_norms(values, size)
        vertex = int(norms.argmax())
        place = self.delta.vertices[vertex]
        rounding = EPS * values.shape[1] * float(norms[vertex])
        bound = float(torch.linalg.vector_norm(error, size)) + (rounding if size < math.inf else 0)
        x = self.a._inputs(place[None])
        u, v = place.tolist()
        shown = self._outputs_at(x)
        return LargestDifference(float(norms[vertex]), bound, index, size, (u, v), x[0], shown)

    def output_index(self, output: int | str) -> int:
        """The number of an output.

        output: its number, or the name of its class.
        """
        n = int(self.delta.values.shape[1])
        return class_number(output, None if n == 1 else self.a.names, n)

    def _outputs_at(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """What the models themselves return for one input."""
        made, both = [], cast(Both, self.a.model)
        for model, output in zip((both.a, both.b), both.outputs, strict=True):
            options = model, output, dtype_of(model)
            with run_real(*options, wide=False, device=x.device) as forward, torch.no_grad():
                made.append(forward(x)[0])
        return made[0], made[1]

    def magnitude(self, output: int | str | None = None) -> Magnitude:
        """The difference as a function on the domain.

        output: the number or the name of an output; by default the largest difference at each
        place counts.
        """
        chosen = slice(None)
        if output is not None:
            index = self.output_index(output)
            chosen = slice(index, index + 1)
        with torch.no_grad():
            values, error = self.delta.values[:, chosen], self.error[chosen]
            z = torch.cat([values, -values], 1)
            error = torch.cat([error, error]) + EPS * z.abs().amax(0)
            found = overlay(self.delta.mesh, z, Scores(z, error, z.amin(0), z.amax(0)).cut)
            largest = found.z.amax(1)
            fit = fit_maps(found.mesh, largest[:, None])
            slopes = fit.weight[:, 0]
            origin = fit.value[:, 0] - (slopes * fit.anchor).sum(1)
            return Magnitude(found.mesh, largest, origin, slopes)

    @cached_property
    def _means(self) -> Tensor:
        """The means of the differences, of their moduli and of their squares, (3, n_out)."""
        with torch.no_grad():
            found = integrals(self.delta.mesh, self.delta.values)
            area = self.a.areas.sum() / self.a._frame.scale**2  # also used by decisions
            return found / area

    @property
    def mean(self) -> Tensor:
        """The mean modulus of the difference of each output over the domain, (n_out,)."""
        return self._means[1]

    @property
    def bias(self) -> Tensor:
        """The mean difference of each output over the domain, with its sign, (n_out,)."""
        return self._means[0]

    @property
    def rms(self) -> Tensor:
        """The root of the mean squared difference of each output over the domain, (n_out,)."""
        return self._means[2].sqrt()

    @cached_property
    def disagreement(self) -> Disagreement:
        """Where the decisions differ; that of a single output is whether it exceeds 0."""
        return self.decisions()

    def decisions(self, *, kind: Kind = "argmax", level: float = 0.0) -> Disagreement:
        """Where the decisions differ, for other kinds of decisions.

        kind: the class of a point is its largest output (``"argmax"``) or its smallest
        (``"argmin"``). level: with one output, class 1 is above this number, and class 0 is the
        rest.
        """
        return disagreement(self.a, self.b, kind=kind, level=level)

    @cached_property
    def undecided(self) -> float:
        """The area on which the class of one of the models is not certain, at most.

        It is zero unless smooth functions were replaced. The area on which the decisions of the
        models differ is the area of ``disagreement``, up to this number.
        """
        open_ = class_band(self.a).area + class_band(self.b).area
        return min(open_, float(self.a.domain.area))

    def stats(self) -> dict[str, float]:
        """The numbers in short, as a flat dict.

        - ``regions`` of both networks together, ``domain_area``, ``unresolved`` places
        - ``largest_1``, ``largest_2``, ``largest_inf``: the largest norms of the difference
        - ``largest.0``, ``mean.0``, ``rms.0``, ``bias.0``, ...: of each output, see ``maxima``,
          ``mean``, ``rms`` and ``bias``; outputs go by the names of the classes, if they have some
        - ``disagreement_area``, ``disagreement_share``: where the decisions differ
        - if smooth functions were replaced: ``bound.0``, ... and ``undecided_area``, see ``bound``
          and ``undecided``
        """
        found: dict[str, float] = {
            "regions": len(self),
            "domain_area": float(self.delta.domain.area),
            "unresolved": len(self.unresolved),
        }
        for size in _NORMS:
            found[f"largest_{size:g}"] = float(_row_norms(self.delta.values, size).max())
        for key, column in self._columns().items():
            found |= {f"{key}.{name}": x for name, x in zip(self._names, column, strict=True)}
        found["disagreement_area"] = self.disagreement.area
        found["disagreement_share"] = self.disagreement.share
        if self.delta.smoothing is not None:
            pairs = zip(self._names, self.bound.tolist(), strict=True)
            found |= {f"bound.{name}": x for name, x in pairs}
            found["undecided_area"] = self.undecided
        return found

    @property
    def _names(self) -> Sequence[str]:
        """The outputs by name, or by number."""
        return output_names(self.a.names, self.delta.values.shape[1])

    def _columns(self) -> dict[str, list[float]]:
        """Numbers of each output."""
        columns = {"largest": self.maxima, "mean": self.mean, "rms": self.rms, "bias": self.bias}
        return {name: column.tolist() for name, column in columns.items()}

    def _tables(self) -> list[TextTable]:
        """The numbers in short as tables: of all outputs, of each, and of pairs of classes."""
        numbers, columns = self.stats(), self._columns()
        singles = {
            "regions of both networks": numbers["regions"],
            "largest difference of an output": numbers["largest_inf"],
            "largest 2-norm of all outputs": numbers["largest_2"],
            "largest 1-norm of all outputs": numbers["largest_1"],
            "rounding error at most": float(self.error.max()),
            "decisions differ on (share of the area)": numbers["disagreement_share"],
            "unresolved places": numbers["unresolved"],
        }
        whole = TextTable("Difference", (), [(k, [number_text(x)]) for k, x in singles.items()])
        lines = zip(self._names, *columns.values(), strict=True)
        rows = [(name, [number_text(x) for x in line]) for name, *line in lines]
        names = self.a.names or [str(k) for k in range(self.disagreement.n_classes)]
        pairs = [
            (f"{names[i]} -> {names[j]}", [number_text(area)])
            for (i, j), area in self.disagreement.pairs().items()
        ]
        outputs = TextTable("Output", tuple(columns), few_rows(rows))
        return [whole, outputs, *([TextTable("Area", (), few_rows(pairs))] if pairs else [])]

    def __str__(self) -> str:
        return tables_text(self._tables())

    def _repr_html_(self) -> str:
        return "".join(table.html() for table in self._tables())

    def __repr__(self) -> str:
        n = int(self.delta.values.shape[1])
        parts = [
            counted(len(self), "region"),
            f"{n} output{'s' * (n != 1)}",
            f"largest difference {float(self.maxima.max()):.4g}",
            f"decisions differ on {100 * self.disagreement.share:.3g} % of the domain",
        ]
        if self.delta.smoothing is not None:
            parts.append(self.delta.smoothing.within + "s")
        if self.unresolved:
            parts.append(f"{len(self.unresolved):,} unresolved places")
        return f"Difference({', '.join(parts)})"

    def plot(self, ax: Any = None, **options: Any) -> Any:
        """Draw the difference and both decision boundaries.

        ax: where to draw. options: see ``splinecam.plot.plot_difference``.
        """
        from splinecam.plot import plot_difference

        return plot_difference(self, ax=ax, **options)


def _row_norms(values: Tensor, size: float) -> Tensor:
    """The norms 1, 2 or inf of rows (V, n), (V,); products add up short rows the fastest."""
    if size == math.inf:
        return values.abs().amax(1)
    ones = values.new_ones(values.shape[1])
    return values.abs() @ ones if size == 1 else (values.square() @ ones).sqrt()
