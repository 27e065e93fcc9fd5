"""Partitions that are divided only where a question is open answer it as the whole ones do."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import splinecam as sc
from refinement_cases import (
    BOX,
    QUADRANGLE,
    Asked,
    disagreement,
    eagerly,
    questions,
    random_network,
)
from splinecam.files.properties import PropertyCase
from splinecam.questions.wanted import Wanted

CONDITION = sc.OutputCondition.of([([[1.0, -1.0, 0.0], [1.0, 0.0, -1.0]], [0.0, 0.0])])


ROWS = (CONDITION.A, CONDITION.b, CONDITION.strict, CONDITION.C, CONDITION.start)


@pytest.fixture(autouse=True)
def _eagerly() -> Iterator[None]:
    with eagerly():
        yield


def network(outputs: int = 3, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    first, second, last = nn.Linear(2, 24), nn.Linear(24, 24), nn.Linear(24, outputs)
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), last).double()


@pytest.fixture(scope="module")
def model() -> nn.Module:
    return network()


@pytest.fixture(scope="module")
def whole(model: nn.Module) -> sc.Partition:
    return sc.partition(model, WIDE, progress=False)


WIDE = sc.Domain.box(-2, 2)


@pytest.mark.parametrize("seed", range(4))
def test_outputs_are_within_the_ranges_of_settled_regions(seed: int) -> None:
    model = network(seed=seed)
    part = refined(model, "boundary")
    assert not bool(part.complete.all())
    points = 4 * torch.rand((4000, 2), dtype=torch.float64) - 2
    with torch.no_grad():
        values = model(points)
    low, high = part.ranges[part.locate(points)].unbind(2)
    assert bool((low - 1e-9 <= values).all() & (values <= high + 1e-9).all())
    narrow = (part.ranges[:, :, 1] - part.ranges[:, :, 0])[~part.complete]
    assert bool((narrow < values.amax(0) - values.amin(0)).any())


def test_ranges_of_linear_regions_are_exact(model: nn.Module, whole: sc.Partition) -> None:
    part = refined(model, "boundary")
    at = part.complete.nonzero()[:, 0]
    found = part.ranges[at]
    expected = whole.ranges[whole.locate(part.centroids[at])]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    assert whole.ranges.shape == (len(whole), 3, 2)


def refined(model: nn.Module, refine: Any, domain: sc.Domain = WIDE) -> sc.Partition:
    return sc.partition(model, domain, refine=refine, progress=False)


@pytest.mark.few(6)
@pytest.mark.parametrize("seed", range(40))
def test_answers_are_those_of_the_whole_partition(seed: int) -> None:
    _, model, n = random_network(seed)
    domain = BOX if seed % 3 else QUADRANGLE
    asked = Asked(model, domain, n)
    for refine in questions(model, domain, n, seed)[seed % 2 :: 2]:
        part = asked.refined(refine)
        assert part.validate(progress=False).ok
        assert disagreement(part, asked.whole, refine) == ""


def test_regions_that_are_settled_are_left_whole(model: nn.Module, whole: sc.Partition) -> None:
    assert bool(whole.complete.all())
    for refine in questions(model, WIDE, 3):
        part = refined(model, refine)
        assert part.complete.shape == (len(part),)
        assert 0 < int(part.complete.sum()) < len(part) < len(whole)
        assert float(part.areas.sum()) == pytest.approx(16)
        assert disagreement(part, whole, refine) == ""
        assert "of them complete" in repr(part)


def test_the_question_is_named(model: nn.Module) -> None:
    made = {
        "made for the decision boundary,": "boundary",
        "made for the boundary between classes 0 and 2,": (0, 2),
        "made for the decision boundary of kind argmin,": {"kind": "argmin"},
        "made for levels 0.1, 0.2 of output 1,": {"level": [0.2, 0.1], "output": 1},
        "made for one condition on the outputs,": CONDITION,
    }
    for words, refine in made.items():
        assert words in repr(refined(model, refine))


def test_values_are_those_of_the_model_at_every_vertex(model: nn.Module) -> None:
    part = refined(model, "boundary")
    right = model(WIDE.embed(part.vertices))
    assert not torch.allclose(part._outputs, right)
    torch.testing.assert_close(part.values, right, rtol=0, atol=1e-12)
    part._model = part._program = None
    part.__dict__.pop("_true_outputs")
    with pytest.raises(sc.SplineCamError, match="needs the network"):
        _ = part.values


def test_complete_regions_have_maps_and_others_none(model: nn.Module) -> None:
    part = refined(model, "boundary")
    known, other = (int(mask.nonzero()[0]) for mask in (part.complete, ~part.complete))
    region = part[known]
    right = model(WIDE.embed(region.centroid[None]))[0]
    torch.testing.assert_close(region.weight @ region.centroid + region.bias, right)
    assert region.jacobian().shape == (3, 2)
    assert region.pattern["1"].shape == (24,)
    with pytest.raises(sc.SplineCamError, match="are not divided"):
        _ = part[other].weight
    for ask in (part[other].jacobian, lambda: part[other].bias, lambda: part[other].pattern):
        with pytest.raises(sc.SplineCamError, match="leave refine= out"):
            ask()


NEED_ALL: dict[str, Callable[[sc.Partition], Any]] = {
    "weight": lambda part: part.weight,
    "bias": lambda part: part.bias,
    "patterns": lambda part: part.patterns(),
    "jacobian": lambda part: part.jacobian(range(len(part))),
    "merged": lambda part: part.merged(),
    "counts": lambda part: part.counts(),
    "stats": lambda part: part.stats(),
    "table": lambda part: part.table(),
    "neurons": lambda part: part.neurons(layer=0),
    "fixed_units": lambda part: part.fixed_units(),
    "density": lambda part: part.density(torch.zeros(1, 2), radius=0.5),
    "at_layer": lambda part: part.at_layer(1),
    "graph": lambda part: part.topology().graph,
    "networkx": lambda part: part.to_networkx(),
    "compare": lambda part: sc.compare([part, part]),
    "surface": lambda part: part.plot.surface(output=0),
    "layers": lambda part: part.plot.layers(),
    "histograms": lambda part: part.plot.histograms(),
    "slope": lambda part: part.plot(color="slope"),
    "output": lambda part: part.plot(color="output", output=0),
    "smallest": lambda part: part.decision_boundary(kind="argmin"),
    "pairs": lambda part: part.decision_boundary(kind="pairwise"),
    "level": lambda part: part.level_set(0.1, output=0),
    "classes": lambda part: part.class_regions(kind="argmin"),
    "preimage": lambda part: part.preimage([[1.0, 0, 0]], [0.0]),
    "check": lambda part: part.check([([[1.0, 0, 0]], [0.0])]),
}


@pytest.mark.parametrize("name", NEED_ALL)
def test_what_needs_all_regions_says_so(name: str, model: nn.Module) -> None:
    part = part_of(model)
    with pytest.raises(sc.SplineCamError, match=r"decision boundary alone.*leave refine= out"):
        NEED_ALL[name](part)


@cache
def part_of(model: nn.Module) -> sc.Partition:
    """The partition for the decision boundary, computed once."""
    return refined(model, "boundary")


def test_other_questions_are_refused(model: nn.Module) -> None:
    levels = refined(model, {"level": [0.1, 0.2], "output": 1})
    assert len(levels.level_set(0.2, output=1)) > 0
    asked = (levels.decision_boundary, levels.class_regions, lambda: levels.preimage(CONDITION))
    for ask in asked:
        with pytest.raises(sc.SplineCamError, match=r"levels 0\.1, 0\.2 of output 1 alone"):
            ask()
    for level, output in ((0.3, 1), (0.1, 0)):
        with pytest.raises(sc.SplineCamError, match="For other levels"):
            levels.level_set(level, output=output)
    order = refined(model, {"kind": "pairwise"})
    assert len(order.decision_boundary()) + len(order.decision_boundary(kind="argmin")) > 0
    pair = refined(model, (0, 2))
    with pytest.raises(sc.SplineCamError, match="between classes 0 and 2 alone"):
        pair.decision_boundary()


def test_what_covers_what() -> None:
    boundary, pair = Wanted("argmax"), Wanted("argmax", (0, 1))
    assert boundary.covers(pair)
    assert not pair.covers(boundary)
    assert Wanted("pairwise").covers(boundary)
    assert not boundary.covers(Wanted("argmin"))
    assert Wanted("level", levels=(0.0, 1.0)).covers(Wanted.classes(1, "argmax", 1.0))
    assert not Wanted("level", None, 1, (0.0,)).covers(Wanted("level", None, 0, (0.0,)))
    on_inputs = sc.OutputCondition.of([([[0.0, 0.0, 0.0]], [1.0])])
    assert boundary.covers(Wanted("condition", condition=on_inputs))
    assert not boundary.covers(Wanted("condition", condition=CONDITION))
    own = Wanted("condition", condition=CONDITION)
    assert own.covers(Wanted("condition", condition=on_inputs))
    assert own.is_about(sc.OutputCondition(*(x if x is None else x.clone() for x in ROWS)))
    assert not own.is_about(on_inputs)


def test_a_property_on_a_box_that_cuts_the_domain(model: nn.Module, whole: sc.Partition) -> None:
    lo, hi = torch.tensor([[-1.0, -9.0], [1.5, 9.0]], dtype=torch.float64)
    for limit in (-0.02, 0.0):
        condition = sc.OutputCondition.of([([[-1.0, 1.0, 0.0], [0.0, 0.0, 0.0]], [limit, 0.1])])
        prop = sc.Property((PropertyCase(lo, hi, condition),), (2,), (3,), "1", "a test")
        part = refined(model, prop)
        assert 0 < int(part.complete.sum()) < len(part)
        mine, right = part.check(prop), whole.check(prop)
        assert mine.status == right.status
        assert mine.covered == pytest.approx(right.covered, rel=1e-12)  # a sum of areas
        assert mine.area == pytest.approx(right.area, rel=1e-9)
        assert part.validate(progress=False).ok


def test_a_verdict_with_its_witness(model: nn.Module, whole: sc.Partition) -> None:
    for limit in (-9.0, 0.1, 9.0):
        prop = sc.OutputCondition.of([([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], [limit, limit])])
        part = refined(model, prop)
        mine, right = part.check(prop), whole.check(prop)
        assert mine.status == right.status
        if mine.status == "violated":
            assert mine.witness is not None
            assert mine.witness.confirmed


def test_samples_and_nearest_points_lie_on_the_boundary(
    model: nn.Module, whole: sc.Partition
) -> None:
    part = part_of(model)
    x = part.decision_boundary().sample(100)
    two = model(x).topk(2, 1).values
    torch.testing.assert_close(two[:, 0], two[:, 1], rtol=0, atol=1e-9)
    points = torch.rand(50, 2, dtype=torch.float64) * 4 - 2
    mine, right = (each.decision_boundary().nearest(points) for each in (part, whole))
    torch.testing.assert_close(mine.distance, right.distance, rtol=0, atol=1e-9)
    mine, right = (each.topology() for each in (part, whole))
    assert [each[:3] for each in mine.classes] == [each[:3] for each in right.classes]
    assert "Graph" not in repr(mine)


def test_the_short_way(model: nn.Module, whole: sc.Partition) -> None:
    curves = sc.boundary(model, WIDE, progress=False)
    assert curves.length == pytest.approx(whole.decision_boundary().length)
    curves = sc.boundary(model, WIDE, classes=(0, 1), progress=False)
    assert curves.length == pytest.approx(whole.decision_boundary(classes=(0, 1)).length)
    names = {"names": ["a", "b", "c"], "progress": False}
    curves = sc.boundary(model, WIDE, classes=("a", "c"), kind="pairwise", **names)
    right = whole.decision_boundary(classes=(0, 2), kind="pairwise")
    assert curves.length == pytest.approx(right.length)
    single = network(1)
    assert isinstance(sc.boundary(single, WIDE, progress=False), sc.results.Boundary)
    part = sc.partition(single, WIDE, progress=False)
    for levels, network_, output in ((0.1, single, None), ([0.2, 0.1], model, 1)):
        right = (whole if output else part).level_set(levels, output=output)
        level = sc.level_set(network_, WIDE, levels, output=output, progress=False)
        assert level.length == pytest.approx(right.length)
    with pytest.raises(sc.SplineCamError, match="has 3 outputs: say which one"):
        sc.level_set(model, WIDE, 0.1, progress=False)


def test_the_short_ways_for_smooth_functions() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    part = sc.partition(model, WIDE, smooth=0.01, progress=False)
    how: Any = {"smooth": 0.01, "progress": False}
    length = part.level_set(0.1, output=0).length
    assert sc.level_set(model, WIDE, 0.1, output=0, **how).length == pytest.approx(length)
    length = part.decision_boundary(kind="pairwise").length
    assert sc.boundary(model, WIDE, kind="pairwise", **how).length == pytest.approx(length)
    assert sc.boundary(model, WIDE, **how).band.area >= 0
    unsafe = [([[1.0, -1.0]], [0.0])]
    assert sc.check(model, WIDE, unsafe, **how).area == pytest.approx(part.check(unsafe).area)


def test_files_keep_the_question(model: nn.Module, whole: sc.Partition) -> None:
    for refine in ("boundary", (0, 1), {"level": 0.2, "output": 1}, CONDITION):
        part = refined(model, refine)
        file = io.BytesIO()
        part.save(file)
        file.seek(0)
        again = sc.load(file)
        assert repr(again) == repr(part).replace(", on cpu", ", without its model, on cpu")
        assert torch.equal(again.complete, part.complete)
        assert disagreement(again, whole, refine) == ""
        again.attach(model)
        assert again.validate(progress=False).ok
        with pytest.raises(sc.SplineCamError, match="leave refine= out"):
            again.stats()
        assert disagreement(pickle.loads(pickle.dumps(part)), whole, refine) == ""
    with pytest.raises(sc.SplineCamError, match="not the one that was partitioned"):
        again.attach(network(seed=5))
    none = refined(model, sc.OutputCondition.of([([[1.0, 0.0, 0.0]], [-9.0])]))
    assert not bool(none.complete.any())
    again = pickle.loads(pickle.dumps(none))
    other = network()
    other[4].bias.data[0] = -99.0
    with pytest.raises(sc.SplineCamError, match="another answer about one condition"):
        again.attach(other)


def test_a_file_with_a_damaged_question_is_refused(model: nn.Module) -> None:
    file = io.BytesIO()
    refined(model, CONDITION).save(file)
    file.seek(0)
    arrays = dict(np.load(file))
    for name, wrong, message in (
        ("settled", arrays["settled"][:-1], "settled has shape"),
        ("settled", arrays["settled"].astype(np.int8), "not true or false"),
        ("wanted_A", arrays["wanted_A"][:, :2], "other outputs"),
    ):
        damaged = io.BytesIO()
        np.savez(damaged, **arrays | {name: wrong})
        damaged.seek(0)
        with pytest.raises(sc.FileError, match=message):
            sc.load(damaged)


def test_a_false_claim_does_not_pass_validation(model: nn.Module) -> None:
    part = refined(model, "boundary")
    settled = (~part.complete).nonzero()[0]
    corners = part.mesh.corner_vertices()[part.mesh.offsets[settled]]
    part._outputs[corners] = -part._outputs[corners]
    with pytest.raises(sc.ValidationError, match="settled regions with another answer"):
        part.validate(progress=False)


def test_pictures_cards_and_pages(model: nn.Module, tmp_path: Any) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    for refine in ("boundary", (0, 2), {"level": 0.1, "output": 1}, CONDITION):
        part = refined(model, refine)
        part.plot()
        part.plot(color="area", edges=False)
        assert "made for" in part._repr_html_()
        assert "output inside" not in part[int((~part.complete).nonzero()[0])]._repr_html_()
        part.to_html(tmp_path / "page.html")
        part.save(tmp_path / "part.npz")
        sc.load(tmp_path / "part.npz").to_html(tmp_path / "page.html")
    part = refined(network(1), {"level": [0.1]})
    part.plot()
    part.plot(level=0.1)
    part.export(tmp_path / "regions.geojson", columns=["area", "layer"])
    part_of(model).export(tmp_path / "regions.geojson")
    pyplot.close("all")


def test_classes_in_region_files_are_those_at_centroids(model: nn.Module) -> None:
    from splinecam.partitions.exports import region_columns

    part = part_of(model)
    right = model(WIDE.embed(part.centroids)).argmax(1).numpy()
    assert (region_columns(part, ["class"])["class"] == right).all()


def test_single_outputs(whole: sc.Partition) -> None:
    model = network(1)
    everything = sc.partition(model, WIDE, progress=False)
    level = float(everything.values.median())
    for refine in ("boundary", {"level": level}, {"level": [level, level / 2], "output": 0}):
        part = refined(model, refine)
        at = 0.0 if refine == "boundary" else level
        mine, right = (each.class_regions(level=at).areas for each in (part, everything))
        torch.testing.assert_close(mine, right, rtol=0, atol=1e-9)
        a, b = (each.level_set(at).length for each in (part, everything))
        assert a == pytest.approx(b)
    names = sc.partition(model, WIDE, refine=("no", "yes"), names=["no", "yes"], progress=False)
    assert names.decision_boundary(classes=("no", "yes")).length == pytest.approx(
        everything.decision_boundary().length
    )


def test_planes_of_many_inputs(model: nn.Module) -> None:
    torch.manual_seed(3)
    wide = nn.Sequential(nn.Linear(7, 2).double(), model)
    plane = sc.Domain.around(torch.zeros(7), side=20.0, seed=0)
    asked = Asked(wide, plane, 3)
    for refine in ("boundary", {"level": 0.2, "output": 1}):
        part = asked.refined(refine)
        assert 0 < int(part.complete.sum()) < len(part)
        assert part.validate(progress=False).ok
        assert disagreement(part, asked.whole, refine) == ""


def test_limits_hold_as_for_all_regions(model: nn.Module, whole: sc.Partition) -> None:
    part = refined(model, "boundary")
    small = sc.partition(model, WIDE, refine="boundary", memory=3e5, progress=False)
    assert disagreement(small, whole, "boundary") == ""
    assert len(small) == len(part)
    with pytest.raises(sc.LimitError, match="max_regions"):
        sc.partition(model, WIDE, refine="boundary", max_regions=100, progress=False)
    fits = sc.partition(model, WIDE, refine="boundary", max_regions=len(part), progress=False)
    assert len(fits) == len(part)


def test_many_outputs_have_too_many_pairs() -> None:
    assert Wanted("pairwise").question(65) is None
    assert Wanted("argmin").question(65) is None
    assert Wanted("argmax").question(1000) is not None
    pair = Wanted("argmax", (0, 1)).question(65)
    assert pair is not None
    assert pair.rows is None
    assert Wanted("argmin", (0, 1)).question(65) is not None


def test_constant_networks_are_settled_at_once() -> None:
    for n, bias in ((1, [0.5]), (2, [0.0, 1.0]), (2, [1.0, 1.0])):
        model = network(n)
        last = model[4].requires_grad_(False)
        last.weight.zero_()
        last.bias.copy_(torch.tensor(bias))
        part = refined(model, "boundary")
        areas = sc.partition(model, WIDE, progress=False).class_regions().areas
        torch.testing.assert_close(part.class_regions().areas, areas)
        assert part.validate(progress=False).ok
        assert len(part.decision_boundary()) == 0


def test_a_final_softmax_does_not_matter(whole: sc.Partition, model: nn.Module) -> None:
    part = refined(nn.Sequential(model, nn.Softmax(1)), "boundary")
    assert part.stripped == "softmax"
    assert part.validate(progress=False).ok
    length = part.decision_boundary().length
    assert length == pytest.approx(whole.decision_boundary().length)


def test_smooth_networks_take_the_same_word() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 8), nn.GELU(), nn.Linear(8, 2))
    a = sc.partition(model, BOX, smooth=1e-2, refine="boundary", progress=False)
    b = sc.partition(model, BOX, smooth=sc.Smooth(1e-2, refine="boundary"), progress=False)
    assert torch.equal(a.vertices, b.vertices)
    assert a.smoothing is not None
    assert a.smoothing.refined
    assert bool(a.complete.all())
    with pytest.raises(TypeError, match='refine="boundary" alone'):
        sc.partition(model, BOX, smooth=1e-2, refine=(0, 1))


def test_an_exact_network_with_a_tolerance_is_refined_too(model: nn.Module) -> None:
    part = sc.partition(model, WIDE, smooth=1e-2, refine="boundary", progress=False)
    assert not bool(part.complete.all())


BAD: list[tuple[Any, type[Exception], str]] = [
    ("bounday", ValueError, "Did you mean boundary"),
    ("", ValueError, "refine is ''"),
    (0.5, TypeError, "refine must be"),
    ({"levels": 0.5}, ValueError, "Did you mean level"),
    ({}, ValueError, "say which"),
    ({"output": 1}, ValueError, "say which"),
    ({"level": 0.5, "kind": "argmin"}, ValueError, "either about a level"),
    ({"level": 0.5}, sc.SplineCamError, "say which one, as in refine="),
    ({"level": [], "output": 1}, ValueError, "no level"),
    ({"level": float("nan"), "output": 1}, ValueError, "finite"),
    ({"level": "high", "output": 1}, TypeError, "number"),
    ({"level": 0.5, "output": 3}, IndexError, "output 3 of 3"),
    ({"kind": "largest"}, ValueError, "choose one of"),
    ((0, 3), IndexError, "of 3 classes"),
    ((1, 1), ValueError, "one class"),
    ((0, 1, 2), TypeError, "a pair"),
    (("cat", "dog"), ValueError, "no class 'cat': give names="),
    (sc.OutputCondition.of([([[1.0, 0.0]], [0.0])]), sc.SplineCamError, "about 2 outputs"),
]


@pytest.mark.parametrize(("refine", "kind", "message"), BAD)
def test_bad_questions(refine: Any, kind: type[Exception], message: str, model: nn.Module) -> None:
    with pytest.raises(kind, match=message):
        refined(model, refine)


def test_options_that_do_not_go_together(model: nn.Module, tmp_path: Any) -> None:
    asked: Any = {"refine": "boundary", "progress": False}
    with pytest.raises(TypeError, match="smooth= works in memory"):
        sc.atlas(model, WIDE, tmp_path / "atlas", smooth=1e-3, **asked)
    with pytest.raises(TypeError, match="smooth= works in one process"):
        sc.partition(model, WIDE, smooth=1e-3, n_jobs=2, **asked)
    with pytest.raises(TypeError, match="not for difference"):
        sc.difference(model, model, WIDE, **asked)
    with pytest.raises(TypeError, match=r"levels are for sc\.level_set"):
        sc.boundary(model, WIDE, level=0.5)
    with pytest.raises(TypeError, match="not for check"):
        sc.check(model, WIDE, CONDITION, **asked)
    with pytest.raises(sc.SplineCamError, match='"argmin" needs several'):
        refined(network(1), {"kind": "argmin"})


class _Numbers(nn.Module):
    """A hidden value and an output that are single numbers."""

    def __init__(self, bend: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.bend = nn.Linear(2, 30).double(), bend

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.bend(self.first(x))
        return torch.relu(hidden.sum(-1) - 9 * hidden[:, 0]) - hidden.mean(-1)


def test_values_that_are_single_numbers() -> None:
    model, level = _Numbers(torch.relu), {"level": 0.5}
    part, whole = refined(model, level), sc.partition(model, WIDE, progress=False)
    assert not bool(part.complete.all())
    assert part.validate().ok
    found, expected = part.level_set(0.5), whole.level_set(0.5)
    assert len(found) == len(expected) > 0
    assert float(found.length) == pytest.approx(float(expected.length))
    assert part.ranges.shape == (len(part), 1, 2)
    condition = sc.OutputCondition.of([([[1.0]], [0.5])])
    verdict = sc.check(model, WIDE, condition, verdict_only=True).status
    assert verdict == whole.check(condition).status
    assert sc.partition(_Numbers(torch.tanh), WIDE, smooth=0.1, progress=False).validate().ok
