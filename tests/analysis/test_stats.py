from __future__ import annotations

import copy
import json
import math
import pickle
import sys
from itertools import combinations

import numpy as np
import pytest
import torch
from torch import nn

import splinecam as sc
from splinecam._util import text as optional
from splinecam._util.backend import using
from splinecam.geometry.subdivision import polygon_mesh
from splinecam.questions.comparison import Comparison, compare
from splinecam.questions.measures import _norms, shapes, slopes, slopes_in_input_space, table
from splinecam.questions.stats import Stats, stats
from splinecam.testing import Abs
from strategies import dense

BOX = sc.Domain.box(-1, 1)
SHORT = ("NR", "ARV", "ANV", "ARE")
SUMMARY = {"mean", "mean_by_area", "std", "median", "min", "max", "q05", "q25", "q75", "q95"}


def cut(model: nn.Module, domain: sc.Domain = BOX) -> sc.Partition:
    return sc.partition(model, domain, progress=False)


def manhattan() -> nn.Sequential:
    """|x| + |y|."""
    return nn.Sequential(dense([[1, 0], [0, 1]]), Abs(), dense([[1, 1]]))


def mlp(inputs: int, outputs: int, *, width: int = 16) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.LeakyReLU(),
        nn.Linear(width, outputs),
    ).double()


@pytest.fixture
def flat() -> sc.Partition:
    """Two inputs and three outputs."""
    return cut(mlp(2, 3), sc.Domain.box((-3, -2), (2, 3)))


@pytest.fixture
def deep() -> sc.Partition:
    """A plane in a space of 12 inputs, and four outputs."""
    return cut(mlp(12, 4), sc.Domain.around(torch.randn(12), side=8.0, seed=3))


# -- closed forms -----------------------------------------------------------------------------


def test_a_single_square():
    found = cut(dense([[3, 4]], [1.0])).stats()
    assert [found[key] for key in SHORT] == [1, 4.0, 4.0, pytest.approx(math.sqrt(2), rel=1e-15)]
    assert found["num_vertices"] == found["num_edges"] == found["border_edges"] == 4
    assert found["perimeter"]["mean"] == 8.0
    assert found["diameter"]["max"] == pytest.approx(math.sqrt(8), rel=1e-15)
    assert found["lipschitz_plane"] == pytest.approx(5.0, rel=1e-14)
    assert found["output_mean"] == pytest.approx((1.0,))
    assert (found["output_min"], found["output_max"]) == ((-6.0,), (8.0,))
    assert found["total_edge_length"] == 8.0
    # 3 x + 4 y + 1 = 0 from (-1, 1/2) to (1, -1).
    assert found["boundary_length"] == pytest.approx(2.5, rel=1e-14)


def test_the_sum_of_absolute_values():
    found = cut(manhattan(), sc.Domain.box(-2, 2)).stats()
    assert [found[key] for key in SHORT] == [4, 4.0, 4.0, pytest.approx(math.sqrt(2))]
    assert found["num_vertices"] == 9
    assert found["edges_by_layer"] == {"1.abs": 4}
    assert found["border_edges"] == 8
    assert found["lipschitz_plane"] == pytest.approx(math.sqrt(2))
    assert found["output_mean"] == pytest.approx((2.0,))
    assert (found["output_min"], found["output_max"]) == ((0.0,), (4.0,))
    assert found["domain_area"] == found["total_area"] == 16
    assert found["unresolved"] == 0


def test_the_mean_of_an_absolute_value():
    model = nn.Sequential(dense([[1, 0]]), Abs())
    assert cut(model).stats()["output_mean"] == pytest.approx((0.5,), rel=1e-15)


def test_the_mean_agrees_with_a_fine_grid(flat: sc.Partition):
    step = torch.linspace(0, 1, 801, dtype=torch.float64)[:-1] + 0.5 / 800
    low, high = flat.domain.corners.amin(0), flat.domain.corners.amax(0)
    values = flat.model(low + torch.cartesian_prod(step, step) * (high - low))
    mean = values.mean(0).tolist()
    assert flat.stats()["output_mean"] == pytest.approx(mean, abs=1e-5)


def test_a_known_lipschitz_constant():
    # On x, y > 0 the derivative is diag(3, 4) turned; elsewhere some of it is switched off.
    turn = torch.tensor([[0.6, -0.8], [0.8, 0.6]], dtype=torch.float64)
    model = nn.Sequential(dense([[3, 0], [0, 4]]), nn.ReLU(), dense(turn))
    found = cut(model).stats(full=True)
    assert found["lipschitz_plane"] == pytest.approx(4.0, rel=1e-14)
    assert found["lipschitz_input"] == pytest.approx(4.0, rel=1e-14)
    assert found["slope_spectral"]["mean"] == pytest.approx((4 + 4 + 3 + 0) / 4)
    assert found["slope_frobenius"]["max"] == pytest.approx(5.0, rel=1e-14)


def test_the_input_space_may_be_steeper_than_the_plane():
    model = nn.Sequential(dense([[1, 0, 7], [0, 1, 0]]), nn.ReLU(), dense([[1, 1]]))
    corners = torch.tensor([[-1.0, -1, 0], [1, -1, 0], [1, 1, 0], [-1, 1, 0]])
    found = cut(model, sc.Domain.polygon(corners)).stats(full=True)
    assert found["lipschitz_plane"] == pytest.approx(math.sqrt(2))
    assert found["lipschitz_input"] == pytest.approx(math.sqrt(51))


def test_the_boundary_of_an_affine_function():
    found = cut(dense([[1, 0], [0, 1]])).stats()
    assert found["boundary_length"] == pytest.approx(math.sqrt(8))


@pytest.mark.parametrize("sides", [3, 4, 5, 6, 7, 12, 101])
def test_shapes_of_regular_polygons(sides: int):
    angle = 2 * math.pi * torch.arange(sides, dtype=torch.float64) / sides
    found = shapes(polygon_mesh(torch.stack([angle.cos(), angle.sin()], 1)))
    side = 2 * math.sin(math.pi / sides)
    widest = 2 * math.sin(math.pi * (sides // 2) / sides)
    assert float(found.perimeter) == pytest.approx(sides * side)
    assert float(found.nearest) == pytest.approx(side)
    assert float(found.diameter) == pytest.approx(widest)
    assert float(found.eccentricity) == pytest.approx(widest / side)


# -- against slow and simple ------------------------------------------------------------------


def polygons(part: sc.Partition) -> list[list[tuple[float, float]]]:
    return [[tuple(p) for p in region.vertices.tolist()] for region in part]


@pytest.mark.parametrize("name", ["flat", "deep"])
def test_shapes_agree_with_python(name: str, request: pytest.FixtureRequest):
    part: sc.Partition = request.getfixturevalue(name)
    rows = part.table()
    assert len(part) > 50
    assert int(part.mesh.counts().max()) > 5
    for i, polygon in enumerate(polygons(part)):
        pairs = [math.dist(p, q) for p, q in combinations(polygon, 2)]
        around = [math.dist(p, q) for p, q in zip(polygon, polygon[1:] + polygon[:1], strict=True)]
        assert rows["vertices"][i] == len(polygon)
        assert rows["perimeter"][i] == pytest.approx(sum(around))
        assert rows["diameter"][i] == pytest.approx(max(pairs))
        assert rows["eccentricity"][i] == pytest.approx(max(pairs) / min(pairs), rel=1e-6)


@pytest.mark.parametrize("name", ["flat", "deep"])
def test_slopes_agree_with_singular_values(name: str, request: pytest.FixtureRequest):
    part: sc.Partition = request.getfixturevalue(name)
    plane, space = slopes(part), slopes_in_input_space(part)
    jacobian = part.jacobian(range(len(part))).flatten(2)
    assert torch.allclose(plane[0], torch.linalg.matrix_norm(part.weight, 2), rtol=1e-13)
    assert torch.allclose(plane[1], torch.linalg.matrix_norm(part.weight), rtol=1e-13)
    assert torch.allclose(space[0], torch.linalg.matrix_norm(jacobian, 2), rtol=1e-9)
    assert torch.allclose(space[1], torch.linalg.matrix_norm(jacobian), rtol=1e-9)
    assert bool((plane[0] <= space[0] * (1 + 1e-9)).all())
    assert bool((space[0] <= space[1] * (1 + 1e-14)).all())


@pytest.mark.parametrize("shape", [(1, 7), (7, 1), (2, 2), (2, 9), (9, 2), (5, 3), (3, 8)])
@pytest.mark.parametrize("scale", [1e-200, 1e-9, 1.0, 1e200])
def test_norms_of_large_and_small_matrices(shape: tuple[int, int], scale: float):
    matrix = torch.randn(50, *shape, dtype=torch.float64)
    matrix[0] = 0
    matrix[1] = matrix[1, :1]  # rank one
    spectral, frobenius = _norms(matrix * scale)
    assert torch.allclose(spectral / scale, torch.linalg.matrix_norm(matrix, 2), rtol=1e-14)
    assert torch.allclose(frobenius / scale, torch.linalg.matrix_norm(matrix), rtol=1e-14)
    assert float(spectral[0]) == float(frobenius[0]) == 0


def test_norms_of_nearly_dependent_columns():
    matrix = torch.tensor([[[1.0, 1.0], [1.0, 1.0 + 1e-12]]], dtype=torch.float64)
    spectral, _ = _norms(matrix)
    assert float(spectral) == pytest.approx(2 + 5e-13, rel=1e-15)


def test_input_space_in_blocks(deep: sc.Partition):
    whole = deep.table(full=True)
    with using(numbers=300):
        blocks = deep.table(full=True)
    for name in ("slope_spectral", "slope_frobenius_full", "slope_spectral_full"):
        assert np.allclose(whole[name], blocks[name], rtol=1e-12)


def test_summaries_describe_the_columns(deep: sc.Partition):
    found, rows = deep.stats(full=True), deep.table(full=True)
    area = np.asarray(rows["area"])
    for name in ("area", "vertices", "eccentricity", "slope_spectral", "slope_frobenius_full"):
        column, summary = np.asarray(rows[name], dtype=float), found[name]
        assert set(summary) == SUMMARY
        assert summary["mean"] == pytest.approx(column.mean())
        assert summary["std"] == pytest.approx(column.std(), abs=1e-9 * column.max())
        assert summary["median"] == pytest.approx(np.median(column))
        assert (summary["min"], summary["max"]) == (column.min(), column.max())
        assert summary["mean_by_area"] == pytest.approx(np.average(column, weights=area))
        for percent in (5, 25, 75, 95):
            quantile = np.percentile(column, percent)
            assert summary[f"q{percent:02}"] == pytest.approx(quantile)


def test_paper_names_are_plain_averages(deep: sc.Partition):
    found = deep.stats()
    assert found["NR"] == found["num_regions"] == len(deep)
    assert found["ARV"] == found["mean_area"] == pytest.approx(deep.domain.area / len(deep))
    assert found["ANV"] == found["mean_vertices"] == found["vertices"]["mean"]
    assert found["ARE"] == found["mean_eccentricity"] == found["eccentricity"]["mean"]


def test_edges_by_layer(deep: sc.Partition):
    found = deep.stats()
    assert list(found["edges_by_layer"]) == list(deep.layers)
    total = sum(found["edges_by_layer"].values()) + found["border_edges"]
    assert total == found["num_edges"] == len(deep.mesh.edges)
    assert found["edges_by_layer"]["3"] == int((deep.mesh.edge_layer == 1).sum())


def test_the_boundary_is_that_of_the_partition(deep: sc.Partition):
    assert deep.stats()["boundary_length"] == deep.decision_boundary().length


# -- invariances ------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [2.0**-30, 1e-6, 3.0, 1e6])
def test_scaling_the_plane_keeps_shapes(factor: float):
    model = mlp(2, 2)
    scaled = nn.Sequential(dense(torch.eye(2) / factor), *model)
    one = cut(model, sc.Domain.box(-2, 2)).stats()
    other = cut(scaled, sc.Domain.box(-2 * factor, 2 * factor)).stats()
    assert other["NR"] == one["NR"]
    assert other["ANV"] == one["ANV"]
    assert other["ARE"] == pytest.approx(one["ARE"], rel=1e-6)
    assert other["ARV"] == pytest.approx(one["ARV"] * factor**2)
    assert other["perimeter"]["mean"] == pytest.approx(one["perimeter"]["mean"] * factor)
    assert other["lipschitz_plane"] == pytest.approx(one["lipschitz_plane"] / factor)
    assert other["output_mean"] == pytest.approx(one["output_mean"])


def test_a_domain_far_from_the_origin():
    model = nn.Sequential(dense(torch.eye(2), [-1e6, 1e6]), *manhattan())
    far = sc.Domain.box((1e6 - 1, -1e6 - 1), (1e6 + 1, -1e6 + 1))
    found = cut(model, far).stats()
    assert found["ARE"] == pytest.approx(math.sqrt(2))
    assert found["output_mean"] == pytest.approx((1.0,))


def test_no_random_numbers_are_used_up(deep: sc.Partition):
    before = torch.random.get_rng_state()
    deep.stats(full=True)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_inside_inference_mode(deep: sc.Partition):
    outside = deep.stats(full=True)
    with torch.inference_mode():
        inside = deep.stats(full=True)
    assert inside == outside


# -- the mapping ------------------------------------------------------------------------------


def test_stats_are_a_mapping_of_plain_numbers(deep: sc.Partition):
    found = deep.stats(full=True)
    assert isinstance(found, Stats)
    assert isinstance(found, dict)
    assert all(type(number) in (int, float) for number in found.values())
    again = json.loads(json.dumps(found))
    assert list(again) == list(found)
    assert again == found.to_dict() == dict(found)
    assert type(found.to_dict()) is dict
    assert again["edges_by_layer.3"] == found["edges_by_layer"]["3"]
    assert again["area.std"] == found["area"]["std"] == found["area.std"]
    assert again["output_max.1"] == found["output_max"][1]
    for name in ("area", "edges_by_layer", "output_mean", "area.median"):
        assert name in found
        assert found.get(name) == found[name]
    nested = json.loads(json.dumps(found.nested()))
    assert nested["edges_by_layer"] == found["edges_by_layer"]
    assert tuple(nested["output_max"]) == found["output_max"]
    assert isinstance(found.copy(), Stats)
    assert pickle.loads(pickle.dumps(found)) == found
    assert len(found) == len(set(found)) > 20
    assert "ARE" in found
    assert "nonsense" not in found
    assert found.get("nonsense", 5) == 5


def test_an_unknown_name_says_what_there_is(deep: sc.Partition):
    found = deep.stats()
    with pytest.raises(KeyError, match="boundary_length"):
        found["nonsense"]
    with pytest.raises(KeyError, match="full=True"):
        found["lipschitz_input"]


def test_stats_print_as_a_table(deep: sc.Partition):
    text = str(deep.stats(full=True))
    assert f"{len(deep):,}" in text
    for words in ("NR", "ARV", "ANV", "ARE", "in input space", "Edges by layer", "95 %"):
        assert words in text
    lines = text.splitlines()
    assert all(line == line.rstrip() and len(line) <= 80 for line in lines)
    heads = [line for line in lines if line.startswith(("Regions", "Slope"))]
    assert [line.split()[-1] for line in heads] == ["min", "max"] * 2
    assert repr(deep.stats()) == str(deep.stats())
    assert "in input space" not in str(deep.stats())
    page = deep.stats()._repr_html_()
    assert page.count("<table>") == page.count("</table>") == 6


def test_names_are_escaped_in_html():
    model = nn.Sequential()
    model.add_module("a<b", nn.ReLU())
    page = cut(model).stats()._repr_html_()
    assert "a&lt;b" in page
    assert "a<b" not in page


def test_many_outputs_and_layers_are_cut_short_in_print_only():
    layers = [layer for _ in range(20) for layer in (dense(torch.eye(2), [0.01, 0.02]), nn.ReLU())]
    part = cut(nn.Sequential(*layers, nn.Linear(2, 30).double()))
    found = part.stats()
    assert len(found["output_mean"]) == 30
    assert len(found["edges_by_layer"]) == 20
    assert "... and 9 more" in str(found)
    assert "... and 18 more" in str(found)
    assert not [name for name in part.table() if name.startswith("output")]


def test_comparing_partitions(flat: sc.Partition, deep: sc.Partition):
    several = {"flat": flat.stats(), "deep and wide": deep.stats()}
    table = compare(several)
    text = str(table)
    head, *rows = text.splitlines()
    assert head.split() == ["flat", "deep", "and", "wide"]
    assert rows[0].split() == ["NR", f"{len(flat):,}", f"{len(deep):,}"]
    assert [row.split()[0] for row in rows[:4]] == list(SHORT)
    assert "area.q05" in str(compare(several, keys=["area.q05"]))
    assert compare({"flat": flat, "deep and wide": several["deep and wide"]}) == table
    assert repr(table) == text
    assert compare([flat, deep]) == compare({"[0]": flat, "[1]": deep})
    for wrong in (flat, several["flat"], "flat", [3], {"flat": None}):
        with pytest.raises(TypeError, match="partitions"):
            compare(wrong)


def test_stats_of_a_model_without_layers():
    found = cut(dense([[1, 2]])).stats()
    assert found["edges_by_layer"] == {}
    assert "edges_by_layer" in found
    assert found.nested()["edges_by_layer"] == {}
    assert "Edges by layer" in str(found)


def test_stats_in_data_frames(flat: sc.Partition, deep: sc.Partition):
    pandas = pytest.importorskip("pandas")
    one, other = flat.stats(), deep.stats()
    columns = pandas.DataFrame({"a": one, "b": other})
    rows = pandas.DataFrame([one, other])
    assert columns.loc["NR"].tolist() == [len(flat), len(deep)]
    assert columns["b"]["area.std"] == other["area"]["std"]
    assert all(dtype.kind == "f" for dtype in columns.dtypes)
    assert rows["NR"].tolist() == [len(flat), len(deep)]
    assert rows["NR"].dtype.kind == "i"
    assert all(dtype.kind in "if" for dtype in rows.dtypes)
    assert pandas.Series(other)["area.median"] == other["area"]["median"]


def test_outputs_are_called_by_their_names(deep: sc.Partition):
    count = deep.values.shape[1]
    part = sc.partition(deep.model, deep.domain, names=[f"<{k}>" for k in range(count)])
    found = part.stats()
    assert found["output_mean"] == deep.stats()["output_mean"]
    assert found["output_mean.<0>"] == deep.stats()["output_mean.0"]
    assert "<0>" in str(found)
    assert "&lt;0&gt;" in found._repr_html_()
    assert "<0>" not in found._repr_html_()


def test_a_comparison_as_other_tables(flat: sc.Partition, deep: sc.Partition):
    found = compare({"a_1 & b": flat, "c|d <e>": deep}, keys=["NR", "area.std"])
    assert isinstance(found, Comparison)
    assert found.to_dict()["a_1 & b"] == {"NR": len(flat), "area.std": flat.stats()["area.std"]}
    first, rule, *rows = found.to_markdown().splitlines()
    assert first.replace(" ", "") == r"||a_1&amp;b|c\|d&lt;e&gt;|"
    assert set(rule) == {"|", ":", "-"}
    assert len({len(line) for line in (first, rule, *rows)}) == 1
    assert rows[0].split() == ["|", "NR", "|", f"{len(flat):,}", "|", f"{len(deep):,}", "|"]
    lines = found.to_latex().splitlines()
    assert lines[0] == r"\begin{tabular}{lrr}"
    assert lines[2] == r" & a\_1 \& b & c|d <e> \\"
    assert lines[4] == rf"NR & {len(flat):,} & {len(deep):,} \\"
    assert lines[-2:] == [r"\bottomrule", r"\end{tabular}"]
    page = found._repr_html_()
    assert "c|d &lt;e&gt;" in page
    assert "<e>" not in page
    with pytest.raises(ValueError, match=r"'area' has several numbers.*'area.mean'"):
        compare([flat], keys=["area"])
    with pytest.raises(KeyError, match="no statistic 'nonsense'"):
        compare([flat], keys=["nonsense"])
    assert compare([flat], keys="NR").numbers == {"NR": (len(flat),)}
    assert str(compare({}, keys=["NR"])).split() == ["NR"]


def test_names_are_attributes(flat: sc.Partition):
    found = flat.stats()
    assert [getattr(found, name) for name in SHORT] == [found[name] for name in SHORT]
    assert found.num_regions == found.NR == len(flat)
    assert found.area == found["area"]
    assert {"NR", "area", "output_mean", "keys"} <= {*dir(found)}
    with pytest.raises(AttributeError, match=r"no attribute 'Nr'\. Did you mean NR\?"):
        found.Nr  # noqa: B018
    assert not hasattr(found, "lipschitz_input")
    assert pickle.loads(pickle.dumps(found)) == found == copy.deepcopy(found)


def test_printed_tables_fit_80_columns(flat: sc.Partition):
    several = compare({f"a rather long name {k}": flat for k in range(5)})
    for printed in (flat.stats(), several, flat.counts(), flat.topology()):
        assert max(len(line) for line in str(printed).splitlines()) <= 80
    # Nothing is left out.
    assert all(f"a rather long name {k}" in str(several) for k in range(5))
    found, printed = flat.stats(), " ".join(str(flat.stats()).split())
    assert all(f"{found[f'area.{name}']:.4g}" in printed for name in SUMMARY)
    assert printed.count("area (mean: ARV)") == 2


def test_a_comparison_as_a_frame(flat: sc.Partition, deep: sc.Partition):
    pytest.importorskip("pandas")
    frame = compare({"flat": flat, "deep": deep}).to_frame()
    assert list(frame.index) == ["flat", "deep"]
    assert frame["NR"].tolist() == [len(flat), len(deep)]
    assert frame["NR"].dtype.kind == "i"
    assert frame.loc["deep", "ARV"] == deep.stats()["ARV"]


def test_a_frame_without_pandas(flat: sc.Partition, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    found = compare([flat])
    with pytest.raises(sc.SplineCamError, match=r"splinecam\[table\]"):
        found.to_frame()
    assert "NR" in found.to_latex()
    assert "NR" in found.to_markdown()


# -- the table --------------------------------------------------------------------------------


def test_table_values(flat: sc.Partition):
    rows = flat.table()
    assert np.array_equal(rows["area"], flat.areas)
    assert np.array_equal(rows["centroid_u"], flat.centroids[:, 0])
    assert np.array_equal(rows["centroid_v"], flat.centroids[:, 1])
    values = flat.model(flat.centroids).detach()
    for k in range(3):
        assert np.allclose(rows[f"output_{k}"], values[:, k], atol=1e-12)
    best = values.topk(2, 1).values
    clear = (best[:, 0] - best[:, 1] > 1e-9).numpy()
    assert np.array_equal(np.asarray(rows["class"])[clear], values.argmax(1).numpy()[clear])
    assert "slope_spectral_full" not in rows


def test_one_output_is_a_class_by_its_sign():
    rows = cut(nn.Sequential(dense([[1, 1]], [-0.5]), nn.ReLU(), dense([[1]], [-0.25]))).table()
    above = np.asarray(rows["output_0"]) > 0
    assert np.array_equal(rows["class"], above.astype(int))
    assert set(rows["class"]) == {0, 1}


def test_table_is_a_data_frame(deep: sc.Partition):
    pandas = pytest.importorskip("pandas")
    rows = deep.table(full=True)
    assert isinstance(rows, pandas.DataFrame)
    assert rows.index.name == "region"
    assert rows.shape == (len(deep), 16)
    assert rows["vertices"].dtype == rows["class"].dtype == np.int64
    assert rows["area"].sum() == pytest.approx(deep.domain.area)


def test_table_without_pandas(
    deep: sc.Partition, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setitem(sys.modules, "pandas", None)
    optional._say_that_tables_are_dicts.cache_clear()
    deep.plot.histograms()  # needs no DataFrame, and says nothing
    assert not caplog.messages
    rows = deep.table(full=True)
    deep.table()
    (message,) = caplog.messages  # once
    assert "pandas is not installed" in message
    assert "pip install -e '.[table]'" in message
    assert isinstance(rows, dict)
    assert all(isinstance(column, np.ndarray) for column in rows.values())
    assert {column.shape for column in rows.values()} == {(len(deep),)}
    monkeypatch.undo()
    other = table(deep, full=True)
    assert list(rows) == list(other)
    assert all(np.allclose(rows[name], other[name], rtol=1e-9) for name in rows)


def test_changing_the_table_leaves_the_partition_alone(flat: sc.Partition):
    before = flat.areas.clone()
    rows = flat.table()
    rows["area"] *= 0
    assert torch.equal(flat.areas, before)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_the_same_on_a_gpu():
    model, domain = mlp(12, 4), sc.Domain.around(torch.randn(12), side=8.0, seed=3)
    here = sc.partition(model, domain, device="cpu", progress=False)
    there = sc.partition(model, domain, device="cuda", progress=False)
    one, other = stats(here, full=True), stats(there, full=True)
    for key in (*SHORT, "lipschitz_plane", "lipschitz_input", "boundary_length", "output_mean"):
        assert other[key] == pytest.approx(one[key], rel=1e-6)
    assert len(there.table()) == one["NR"]
