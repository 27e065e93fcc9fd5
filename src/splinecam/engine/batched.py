"""Run a network over many domains: similar ones at once, as one mesh of many components.

Each stage and each layer takes all domains together, so that the fixed cost of a tensor operation
is paid once. A batch that does not fit the memory is halved: one half is carried to the end of the
network, then the other. Only a single domain is divided into tiles.

In the mesh of a batch a third coordinate, the same for all vertices of a component, is the number
of the domain. It costs no precision: every interpolation between vertices of one component gives
that number, and every difference zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from splinecam._util.arrays import offsets_of, owners_of, take, take_rows
from splinecam.arrangement.crossings import Ambiguities
from splinecam.engine.activations import State, first_state
from splinecam.engine.plan import Plan
from splinecam.engine.run import Outcome, finish, outcome_of
from splinecam.engine.step import Computation, Report, Waiting, silent
from splinecam.engine.tiling import MeshTile, halves
from splinecam.errors import LimitError, option
from splinecam.geometry.domain import Domain, Frame
from splinecam.geometry.subdivision import Mesh, polygon_mesh
from splinecam.network.program import Program

NamedAmbiguities = list[tuple[str, Ambiguities]]
"""Ambiguities, each with the name of its layer."""


def run_batch(
    program: Program,
    domains: Sequence[Domain],
    *,
    memory: int | None = None,
    max_regions: int | None = None,
    report: Report = silent,
    compiled: bool = True,
    plan: Plan | None = None,
) -> Iterator[Outcome]:
    """Partition domains by the program's network, and yield their outcomes in order.

    memory: bytes to stay within, apart from the outcomes; max_regions: of each domain; compiled,
    plan: as for ``engine.run``.
    """
    plan = plan or Plan.of(program, memory=memory, compiled=compiled)
    with torch.inference_mode():
        state = _first_state(plan.first.program, domains)
        waiting = [(range(len(domains)), Waiting(state, 0), Computation(plan, report=report))]
    while waiting:
        members, at, work = waiting.pop()
        work.batch = len(members) > 1
        work.max_regions = None if max_regions is None else len(members) * max_regions
        with torch.inference_mode():
            if work.batch:
                at, reason = work.carry(at)
                if reason is not None:
                    waiting += reversed(_halves(members, at, work))
                    continue
                end = at.state
            else:
                end = finish(work, at)
            whole = outcome_of(work, end)
        yield from _outcomes(whole.kept(), members, max_regions)


def _first_state(program: Program, domains: Sequence[Domain]) -> State:
    corners = [Frame.of(domain).to_local(domain.corners) for domain in domains]
    x = torch.cat([domain.embed(domain.corners) for domain in domains])
    return first_state(program, batch_mesh(corners), x)


def _halves(
    members: range, at: Waiting, work: Computation
) -> list[tuple[range, Waiting, Computation]]:
    """Two batches that continue where one of them was too large."""
    both = halves(members)
    parts = []
    for some, mine in zip(both, split_ambiguities(at.state.ambiguities, both), strict=True):
        part = at.select(select_domains(at.state.mesh, some), work.block)
        part.state.ambiguities = mine
        errors = dict(work.layer_errors)
        begun = Computation(
            work.plan, report=work.report, at_second=work.at_second, layer_errors=errors
        )
        parts.append((some, part, begun))
    return parts


def _outcomes(whole: Outcome, members: range, max_regions: int | None) -> Iterator[Outcome]:
    """The outcome of each domain of a batch."""
    each = [members[i : i + 1] for i in range(len(members))]
    ambiguities = [whole.ambiguities]
    if len(each) > 1:
        ambiguities = split_ambiguities(whole.ambiguities, each)
    pieces = split_batch(whole.mesh, whole.output, members)
    for (mesh, values), mine in zip(pieces, ambiguities, strict=True):
        if max_regions is not None and mesh.num_faces > max_regions:
            raise LimitError(
                f"The partition exceeds {option('max_regions', f'{max_regions:,}')}: it has "
                f"{mesh.num_faces:,} regions. Raise {option('max_regions')}, or choose a "
                "smaller domain."
            )
        yield Outcome(mesh, values, whole.error, whole.layer_errors, mine)


# -- meshes of many components ----------------------------------------------------------------


def batch_mesh(polygons: Sequence[Tensor]) -> Mesh:
    """The mesh of convex polygons (k, 2), each counter-clockwise; a single one stays (k, 2).

    >>> triangle = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> batch_mesh([triangle, triangle]).uv[:, 2].tolist()
    [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]
    """
    if len(polygons) == 1:
        return polygon_mesh(polygons[0])
    counts = torch.tensor([polygon.shape[0] for polygon in polygons])
    uv = torch.cat(list(polygons))
    number = owners_of(counts, uv.shape[0]).to(uv)
    return polygon_mesh(torch.cat([uv, number[:, None]], 1), counts)


def _components(mesh: Mesh) -> tuple[Tensor, Tensor, Tensor]:
    """Which component each vertex (V,), edge (E,) and face (F,) belongs to."""
    vertex = mesh.uv[:, 2].long()
    edge = take(vertex, mesh.edges[:, 0])
    return vertex, edge, take(edge, take(mesh.corners, mesh.offsets[:-1]) >> 1)


def select_domains(mesh: Mesh, members: range) -> MeshTile:
    """Some consecutive components; a single one has two coordinates again."""
    face = _components(mesh)[2]
    chosen = ((face >= members.start) & (face < members.stop)).nonzero()[:, 0]
    part, vertex_ids, _ = mesh.select(chosen)
    return MeshTile(replace(part, uv=_flat(part.uv, members)), vertex_ids)


def _flat(uv: Tensor, members: range) -> Tensor:
    return uv if len(members) > 1 else uv[:, :2].contiguous()


def split_ambiguities(
    ambiguities: NamedAmbiguities, parts: Sequence[range]
) -> list[NamedAmbiguities]:
    """The ambiguities of each part; the parts are consecutive ranges of components."""
    shares: list[NamedAmbiguities] = [[] for _ in parts]
    first = torch.tensor([members.start for members in parts])
    for name, ambiguity in ambiguities:
        uv = ambiguity.uv.cpu()
        part = torch.bucketize(uv[:, 2].contiguous(), first.to(uv), right=True) - 1
        order, _, counts = _ranked(part, len(parts))
        pieces = torch.split(uv[order], counts.tolist())
        for mine, members, piece in zip(shares, parts, pieces, strict=True):
            if piece.shape[0]:
                mine.append((name, Ambiguities(_flat(piece, members), ambiguity.reason)))
    return shares


def split_batch(mesh: Mesh, values: Tensor, members: range) -> list[tuple[Mesh, Tensor]]:
    """The mesh and the values of each component: (V, n) at the vertices of all.

    All components are renumbered at once, in the order that they have, so that the results are
    views.
    """
    count = len(members)
    if count == 1:
        return [(mesh, values)]
    ranked = [_ranked(label - members.start, count) for label in _components(mesh)]
    (vertices, new_vertex, v), (edges, new_edge, e), (faces, _, f) = ranked
    entries, sizes = take_rows(mesh.offsets, faces)
    half = take(mesh.corners, entries)
    label = owners_of(f, faces.shape[0])
    ends = offsets_of(sizes)
    starts = ends[offsets_of(f)[:-1]]
    # The offsets of a component with F faces are F + 1 numbers, the first of them zero.
    offsets = ends.new_zeros(faces.shape[0] + count)
    place = torch.arange(1, faces.shape[0] + 1, device=faces.device) + label
    offsets[place] = ends[1:] - take(starts, label)
    h = torch.diff(ends[offsets_of(f)])
    table = torch.stack([v, e, f, h]).tolist()
    columns = {
        "uv": (mesh.uv[vertices, :2], table[0]),
        "edges": (take(new_vertex, take(mesh.edges, edges).view(-1)).view(-1, 2), table[1]),
        "offsets": (offsets, [size + 1 for size in table[2]]),
        "corners": (2 * take(new_edge, half >> 1) + (half & 1), table[3]),
        "edge_layer": (take(mesh.edge_layer, edges), table[1]),
        "edge_unit": (take(mesh.edge_unit, edges), table[1]),
        "vertex_layer": (take(mesh.vertex_layer, vertices), table[0]),
    }
    parts = {name: torch.split(array, size) for name, (array, size) in columns.items()}
    rows = zip(*parts.values(), strict=True)
    meshes = (Mesh(**dict(zip(parts, row, strict=True))) for row in rows)
    return list(zip(meshes, torch.split(take(values, vertices), table[0]), strict=True))


def _ranked(label: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Indices sorted by label (N,), the place of each among those of its label, and the counts."""
    order = torch.sort(label, stable=True).indices
    sizes = torch.bincount(label, minlength=count)
    place = torch.empty_like(order)
    place[order] = torch.arange(order.shape[0], device=order.device)
    return order, place - take(offsets_of(sizes), label), sizes


# The domains of a batch share their rounding errors: none may be so much larger than another.
_ALIKE = 4.0


def run_window(
    plan: Plan,
    window: list[Domain],
    *,
    max_regions: int | None = None,
    report: Report = silent,
    first: int = 0,
) -> Iterator[Outcome]:
    """Yield the outcome of each domain of a window, in order.

    max_regions: of each domain; first: the number of the first domain, for the message of an error.
    """
    run_group = partial(
        run_batch, plan.first.program, max_regions=max_regions, report=report, plan=plan
    )
    found: dict[int, Outcome] = {}
    due = 0
    for group in _groups(window):
        outcomes = run_group([window[place] for place in group])
        for place in group:
            # The contexts end before an outcome is yielded, or they would hold for the caller, too.
            with torch.inference_mode(False), torch.no_grad():
                try:
                    found[place] = next(outcomes)
                except LimitError as error:
                    raise LimitError(f"domains[{first + place}]: {error}") from None
            while due in found:
                yield found.pop(due)
                due += 1


def _groups(window: list[Domain]) -> list[list[int]]:
    """The places of domains of similar size around inputs of similar size, in ascending groups."""
    inputs = [float(domain.embed(domain.corners).abs().amax(0).mean()) for domain in window]
    sides = [domain.diameter for domain in window]
    groups = [
        sorted(group)
        for nearby in _alike(range(len(window)), inputs)
        for group in _alike(nearby, sides)
    ]
    return sorted(groups)


def _alike(places: Iterable[int], sizes: list[float]) -> list[list[int]]:
    """The places in groups of similar sizes."""
    groups: list[list[int]] = []
    for place in sorted(places, key=lambda place: sizes[place]):
        if not groups or sizes[place] > _ALIKE * sizes[groups[-1][0]]:
            groups.append([])
        groups[-1].append(place)
    return groups
