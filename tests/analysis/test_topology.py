"""Topology of classes, boundary and regions, against shapely and networkx."""

from __future__ import annotations

from itertools import pairwise

import networkx as nx
import pytest
import shapely
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import splinecam as sc
from splinecam._util.graphs import diameter_bounds, distances, graph_of
from splinecam.errors import SplineCamError
from splinecam.testing import Abs, Max
from strategies import dense, examples, lattice_networks, mlp


def cut(model: nn.Module, half: float = 2.0, **options) -> sc.Partition:
    domain = sc.Domain.box(-half, half)
    return sc.partition(model, domain, device="cpu", progress=False, **options)


def cells_of(part: sc.Partition) -> tuple[list[list[int]], list[int], sc.results.ClassRegions]:
    """The vertices of the convex cells of all classes, their classes, and the class regions."""
    found = part.class_regions()
    mesh = found.winners.overlay.mesh
    vertices, offsets = mesh.corner_vertices().tolist(), mesh.offsets.tolist()
    cells = [vertices[a:b] for a, b in pairwise(offsets)]
    return cells, found.cell_class.tolist(), found


def open_pieces(cells: list[list[int]], classes: list[int]) -> list[tuple[int, list[int]]]:
    """Cells of one class that share an edge, as sets of cells, by Python loops."""
    beside: dict[frozenset[int], list[int]] = {}
    for cell, ring in enumerate(cells):
        for a, b in zip(ring, [*ring[1:], ring[0]], strict=True):
            beside.setdefault(frozenset((a, b)), []).append(cell)
    graph = nx.Graph()
    graph.add_nodes_from(range(len(cells)))
    graph.add_edges_from(
        pair for pair in beside.values() if len(pair) == 2 and classes[pair[0]] == classes[pair[1]]
    )
    return [(classes[min(each)], sorted(each)) for each in nx.connected_components(graph)]


def holes_of(cells: list[list[int]], inside: list[int], *, closed: bool) -> int:
    """The bounded parts of what a set of cells leaves: cells that are joined by the dual rule.

    Around an open set, other cells are joined at vertices; around a closed one, across edges. What
    reaches the border of the domain is joined with the outside.
    """
    chosen, border = set(inside), border_of(cells)
    graph = nx.Graph()
    graph.add_node("outside")
    seen: dict[object, int] = {}
    for cell, ring in enumerate(cells):
        if cell in chosen:
            continue
        graph.add_node(cell)
        sides = [frozenset(x) for x in zip(ring, [*ring[1:], ring[0]], strict=True)]
        for key in sides if closed else ring:
            if key in seen:
                graph.add_edge(seen[key], cell)
            seen[key] = cell
            if key in border[closed]:
                graph.add_edge(cell, "outside")
    return nx.number_connected_components(graph) - 1


def border_of(cells: list[list[int]]) -> dict[bool, set[object]]:
    """The vertices (False) and the edges (True) on the border of the domain."""
    times: dict[frozenset[int], int] = {}
    for ring in cells:
        for a, b in zip(ring, [*ring[1:], ring[0]], strict=True):
            times[frozenset((a, b))] = times.get(frozenset((a, b)), 0) + 1
    edges = {edge for edge, number in times.items() if number == 1}
    return {True: set(edges), False: {vertex for edge in edges for vertex in edge}}


def closed_pieces(cells: list[list[int]], classes: list[int]) -> list[tuple[int, list[int]]]:
    """Cells of one class that share a vertex."""
    graph = nx.Graph()
    graph.add_nodes_from(range(len(cells)))
    at: dict[tuple[int, int], int] = {}
    for cell, ring in enumerate(cells):
        for vertex in ring:
            key = vertex, classes[cell]
            graph.add_edge(at.setdefault(key, cell), cell)
    return [(classes[min(each)], sorted(each)) for each in nx.connected_components(graph)]


def check(part: sc.Partition) -> None:
    """Everything against loops over cells, networkx and shapely."""
    cells, classes, regions = cells_of(part)
    for closed in (False, True):
        found = part.topology(closed=closed)
        expected = (closed_pieces if closed else open_pieces)(cells, classes)
        for number, row in enumerate(found.classes):
            own = [inside for label, inside in expected if label == number]
            assert row.components == len(own)
            assert row.holes == sum(holes_of(cells, inside, closed=closed) for inside in own)
            assert row.area == pytest.approx(float(regions.areas[number]))
            if not closed:
                polygons = regions.polygons(number)
                assert row.components == len(polygons)
                assert row.holes == sum(len(polygon.holes) for polygon in polygons)
    check_boundary(part)
    check_graph(part)


def check_boundary(part: sc.Partition) -> None:
    boundary = part.decision_boundary()
    graph = nx.MultiGraph(boundary.segments.tolist())
    found = part.topology().boundary
    assert found.components == nx.number_connected_components(graph)
    assert found.cycles == len(nx.cycle_basis(nx.Graph(graph)))
    assert found.length == pytest.approx(boundary.length)


def check_graph(part: sc.Partition) -> None:
    graph, found = part.to_networkx(progress=False), part.topology().graph
    degrees = [graph.degree[k] for k in range(len(part))]
    assert found.degrees.tolist() == degrees
    assert (found.min_degree, found.max_degree) == (min(degrees), max(degrees))
    assert found.mean_degree == pytest.approx(sum(degrees) / len(degrees))
    assert found.degree_histogram.tolist() == nx.degree_histogram(graph)
    assert found.num_edges == graph.number_of_edges()
    assert found.diameter_is_exact
    assert found.diameter == nx.diameter(graph)


def checkerboard() -> nn.Sequential:
    """A grid of squares of size 1 whose class alternates: they touch at vertices only.

    With the zigzag z(x), which is 1 at even and -1 at odd whole numbers, the output is
    z(x) + z(y): it vanishes along diagonals through the points where both vanish.
    """
    corners = [-2.0, -1.0, 0.0, 1.0, 2.0]
    rows = [[1.0, 0.0]] * 5 + [[0.0, 1.0]] * 5
    slopes = [2.0, -4.0, 4.0, -4.0, 4.0]
    first = dense(rows, [-c for c in corners] * 2)
    return nn.Sequential(first, nn.ReLU(), dense([slopes * 2], [-1.0 - 1.0]))


def ring() -> nn.Sequential:
    """1 - | |x| + |y| - 1.5 |, positive on a square ring."""
    layers = dense([[1, 0], [0, 1]]), Abs(), dense([[1, 1]], [-1.5]), Abs(), dense([[-1]], [1])
    return nn.Sequential(*layers)


def test_a_ring_has_a_hole() -> None:
    part = cut(ring(), 3.0, names=["out", "in"])
    check(part)
    found = part.topology()
    assert found.classes[1][:3] == ("in", 1, 1)
    assert found.classes[0][:3] == ("out", 2, 1)
    assert found.boundary[:2] == (2, 2)
    assert found.classes[1].area == pytest.approx(2 * 2.5**2 - 2 * 0.5**2)
    assert found.pieces.label.tolist().count(1) == 1
    assert found.unresolved == ()


def test_a_hole_that_reaches_the_border_is_none() -> None:
    part = cut(ring(), 2.0)  # the ring is cut off at the border in four corners
    check(part)
    assert [row[1:3] for row in part.topology().classes] == [(5, 0), (1, 1)]
    assert part.topology().boundary[:2] == (5, 1)


def test_squares_that_touch_at_vertices() -> None:
    part = cut(checkerboard(), 2.0)
    check(part)
    apart, joined = part.topology(), part.topology(closed=True)
    for a, b in zip(apart.classes, joined.classes, strict=True):
        assert a.components > b.components
        assert a.holes == 0
        assert a.area == b.area
    assert joined.classes[0].holes + joined.classes[1].holes > 0
    assert apart.boundary == joined.boundary


def test_four_quadrants() -> None:
    # |x + y| - |x - y| has the sign of x * y: two classes with two quadrants each.
    model = nn.Sequential(dense([[1, 1], [1, -1]]), Abs(), dense([[1, -1]]))
    part = cut(model)
    check(part)
    assert [row.components for row in part.topology().classes] == [2, 2]
    assert [row.components for row in part.topology(closed=True).classes] == [1, 1]
    assert part.topology().boundary[:2] == (1, 0)


def test_one_region_and_a_class_that_does_not_occur() -> None:
    part = cut(dense([[0, 0], [0, 0], [0, 0]], [1, 3, 2]))
    check_graph(part)
    found = part.topology()
    assert [row[1:3] for row in found.classes] == [(0, 0), (1, 0), (0, 0)]
    assert found.boundary == (0, 0, 0.0)
    assert found.graph.degrees.tolist() == [0]
    assert found.graph.diameter == 0
    assert "components" in repr(found)


def test_a_tie_on_an_area_belongs_to_the_first_class() -> None:
    # Outputs relu(x) and 0 tie for x < 0.
    part = cut(nn.Sequential(dense([[1, 0], [0, 0]]), nn.ReLU()))
    assert [row[1:3] for row in part.topology().classes] == [(1, 0), (0, 0)]
    assert part.topology().boundary[:2] == (1, 0)


def test_a_tie_along_a_line_does_not_divide_a_class() -> None:
    part = cut(nn.Sequential(dense([[0, 0], [1, 0]]), Abs(), dense([[1, 0], [0, -1]])))
    assert [row[1:3] for row in part.topology().classes] == [(1, 0), (0, 0)]
    assert part.topology().boundary[:2] == (1, 0)


def test_levels_and_smallest_outputs() -> None:
    part = cut(ring(), 3.0)
    assert part.topology(level=0.5).classes[1][1:3] == (1, 1)
    assert part.topology(level=2.0).classes[1][1:3] == (0, 0)
    three = cut(mlp(2, 8, 3, seed=2))
    assert sum(row.area for row in three.topology(kind="argmin").classes) == pytest.approx(16)
    with pytest.raises(SplineCamError, match="argmin"):
        three.topology(kind="pairwise")


@pytest.mark.parametrize("outputs", [1, 2, 4])
def test_random_networks(outputs: int) -> None:
    torch.manual_seed(outputs)
    model = mlp(2, 12, 12, outputs, seed=outputs)
    with torch.no_grad():
        model[-1].weight *= 8
        model[-1].bias -= model(torch.rand(500, 2, dtype=torch.float64) * 4 - 2).mean(0)
    part = cut(model, 3.0)
    check(part)
    check_with_shapely(part)


def test_maxima() -> None:
    maxout = nn.Sequential(mlp(2, 6, 12, seed=5), nn.Unflatten(1, (3, 4)), Max(2))
    check(cut(maxout))


def check_with_shapely(part: sc.Partition) -> None:
    """In general position, the pieces of a class are the polygons that shapely unites."""
    regions = part.class_regions()
    corners, offsets = regions.cell_corners.numpy(), regions.cell_offsets.tolist()
    cells = [shapely.Polygon(corners[a:b]) for a, b in pairwise(offsets)]
    for number, row in enumerate(part.topology().classes):
        own = [cells[k] for k in (regions.cell_class == number).nonzero()[:, 0].tolist()]
        united = shapely.coverage_union_all(own)
        polygons = [p for p in shapely.get_parts(united).tolist() if not p.is_empty]
        assert row.components == len(polygons)
        assert row.holes == sum(len(polygon.interiors) for polygon in polygons)


@examples(40)
@given(lattice_networks(), st.sampled_from([1.0, 2.0, 3.0]))
def test_degenerate_networks_against_brute_force(model: nn.Sequential, half: float) -> None:
    check(cut(model, half))


def test_pieces_of_the_domain_are_the_cycles_of_boundary_and_border() -> None:
    # Without ties, the boundary together with the border divides the domain into the pieces.
    part = cut(ring(), 2.0)
    edges = part.class_regions().winners.overlay.mesh
    beside = edges.halfedge_face().view(-1, 2)
    winner = part.class_regions().cell_class
    drawn = (beside < 0).any(1) | (winner[beside[:, 0]] != winner[beside[:, 1]])
    graph = nx.Graph(edges.edges[drawn].tolist())
    cycles = graph.number_of_edges() - len(graph) + nx.number_connected_components(graph)
    assert len(part.topology().pieces) == cycles


# -- graphs -----------------------------------------------------------------------------------


@examples(60)
@given(st.integers(2, 40), st.integers(0, 60), st.integers(0, 2**20))
def test_distances_and_diameters_of_graphs(nodes: int, more: int, seed: int) -> None:
    """Random trees with further edges, with few distances at a time."""
    generator = torch.Generator().manual_seed(seed)
    child = torch.arange(1, nodes)
    parent = (torch.rand(nodes - 1, generator=generator) * child).long()
    ends = torch.randint(0, nodes, (2, more), generator=generator)
    ends = ends[:, ends[0] != ends[1]]
    a, b = torch.cat([child, ends[0]]), torch.cat([parent, ends[1]])
    graph, known = graph_of(nodes, a, b), nx.Graph(list(zip(a.tolist(), b.tolist(), strict=True)))
    found = distances(graph, torch.arange(nodes))
    for source, lengths in nx.all_pairs_shortest_path_length(known):
        assert found[source].tolist() == [lengths[k] for k in range(nodes)]
    exact = nx.diameter(known)
    assert diameter_bounds(graph) == (exact, exact)
    for limit in (1, 2 * nodes, 6 * nodes):
        low, high = diameter_bounds(graph, limit)
        assert low <= exact <= high


def test_a_large_graph_has_bounds() -> None:
    part = cut(mlp(2, 64, 64, 1, seed=0), 3.0)
    graph = part.topology().graph
    low, high = diameter_bounds(graph_of(len(part), *part_edges(part)), limit=8 * len(part))
    assert low <= graph.diameter <= high
    assert graph.diameter_is_exact


def part_edges(part: sc.Partition) -> tuple[torch.Tensor, torch.Tensor]:
    beside = part._edge_faces
    a, b = beside[(beside >= 0).all(1)].unbind(1)
    return a, b


def test_unreachable_nodes() -> None:
    graph = graph_of(3, torch.tensor([0]), torch.tensor([1]))
    assert distances(graph, torch.tensor([0])).tolist() == [[0, 1, -1]]
