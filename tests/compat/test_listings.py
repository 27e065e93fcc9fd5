"""The listings of the paper, and the examples of its code, run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import splinecam
import splinecam as sc
from compat_cases import NETWORKS, assert_same_regions, make, mlp, wrap
from splinecam import compat
from splinecam.compat.utils import areas_of, mesh_of

SHARED = Path(os.environ.get("SPLINECAM_SHARED", Path(__file__).parents[3] / "shared"))
PAPER = SHARED / "paper" / "splinecam.tex"

# -- the listings -----------------------------------------------------------------------------


def listings() -> list[str]:
    found = re.findall(
        r"\\begin\{lstlisting\}\[.*?\]\n(.*?)\\end\{lstlisting\}", PAPER.read_text(), re.S
    )
    assert len(found) == 3  # the third is pseudocode
    return found[:2]


@pytest.mark.skipif(not PAPER.exists(), reason="no shared folder")
@pytest.mark.parametrize("name", NETWORKS)
def test_the_listings_run_without_a_gpu(name: str) -> None:
    wrapping, loop = listings()
    wrapping = wrapping.replace("model.cuda()", "model.cpu()").replace("'cuda'", "'cpu'")
    assert_listings_run(name, wrapping, loop)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.skipif(not PAPER.exists(), reason="no shared folder")
@pytest.mark.parametrize("name", NETWORKS)
def test_the_listings_run_as_printed(name: str) -> None:
    assert_listings_run(name, *listings())


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_results_are_on_the_cpu_for_pictures() -> None:
    model, domain = make("mlp")
    T = compat.utils.get_proj_mat(domain)
    NN = compat.wrappers.model_wrapper(model.cuda(), T=T.cuda(), device="cuda")
    assert NN.verify()
    regions, edges, Abw = compat.compute.get_partitions_with_db(domain.cuda(), T.cuda(), NN)
    assert {each.device.type for each in (regions[0], edges, Abw)} == {"cpu"}
    assert_same_regions(regions, NN, model.cpu(), domain)


def assert_listings_run(name: str, wrapping: str, loop: str) -> None:
    """Listing 1 wraps the network, and Listing 2 finds its regions and their maps."""
    model, domain = make(name)
    before = model.state_dict()
    names: dict[str, Any] = {"model": model, "domain": list(domain)}
    exec(wrapping, names)
    assert names["flag"] is True
    assert names["splinecam"] is splinecam
    names["poly"] = [compat.utils.plane_coordinates(domain, names["T"])]
    exec(loop, names)
    assert {*before} == {*model.state_dict()}
    assert_same_regions(names["out_cyc"], names["NN"], model.cpu(), domain)
    assert_right_maps(names["NN"], names["out_cyc"], names["Abw"])


def assert_right_maps(NN: Any, cycles: list[Tensor], Abw: Tensor) -> None:
    """The map of each region gives the model's output at all of its vertices."""
    uv = torch.cat(cycles)
    owner = torch.repeat_interleave(torch.tensor([len(cycle) for cycle in cycles]))
    maps = Abw.cpu().as_subclass(Tensor)[owner]
    made = (maps[:, :, :2] @ uv[:, :, None])[:, :, 0] + maps[:, :, 2]
    torch.testing.assert_close(made, NN.layers(uv).cpu(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", NETWORKS)
def test_regions_layer_by_layer(name: str) -> None:
    model, domain = make(name)
    NN = wrap(model, domain, NETWORKS[name][1])
    assert NN.verify()
    cycles: Any = compat.utils.plane_coordinates(domain, NN.T)  # one polygon, or a list of them
    maps, sizes = NN.layers[0].get_weights()[None], []
    for k in range(1, len(NN.layers)):
        before = [cycles] if isinstance(cycles, Tensor) else cycles
        cycles, parents = compat.graph.to_next_layer_partition(cycles, maps, k, NN)
        means = compat.utils.get_region_means(cycles)
        maps = compat.utils.get_Abw(
            NN.layers[k].get_activation_pattern(NN.layers[:k](means)),
            NN.layers[k].get_weights(),
            maps[parents],
        )
        rows = NN.layers[k].get_weights(row_idx=torch.tensor([-1, 0]))
        assert rows.equal(NN.layers[k].get_weights()[[-1, 0]])
        areas = areas_of(mesh_of(cycles))
        whole = areas_of(mesh_of(before))
        torch.testing.assert_close(torch.zeros_like(whole).index_add_(0, parents, areas), whole)
        sizes.append(len(cycles))
    assert sizes == sorted(sizes)
    assert_same_regions(cycles, NN, model, domain)
    assert_right_maps(NN, cycles, maps)


def test_regions_that_were_chosen_are_divided_further() -> None:
    model, domain = make("mlp")
    NN = wrap(model, domain)
    uv = compat.utils.plane_coordinates(domain, NN.T)
    first, _ = compat.graph.to_next_layer_partition([uv], None, 1, NN)
    everything, parents = compat.graph.to_next_layer_partition_batched(
        first, None, 2, NN, batch_size=128, fwd_batch_size=1024
    )
    chosen = [5, 2]
    some, parent = compat.graph.to_next_layer_partition([first[k] for k in chosen], None, 2, NN)
    assert [int((parent == k).sum()) for k in range(2)] == [
        int((parents == k).sum()) for k in chosen
    ]
    assert len(some) < len(everything)


def test_maps_of_other_regions_are_refused() -> None:
    q, weights = torch.ones(3, 4), torch.ones(4, 3)
    with pytest.raises(ValueError, match=r"2 incoming maps for 3 regions: .*out_idx"):
        compat.utils.get_Abw(q, weights, torch.ones(2, 2, 3))


# -- the examples -----------------------------------------------------------------------------


@pytest.mark.few(2)
@pytest.mark.parametrize("name", NETWORKS)
def test_regions_and_boundary_in_one_call(name: str) -> None:
    model, domain = make(name)
    NN = wrap(model, domain, NETWORKS[name][1])
    regions, edges, _ = splinecam.compute.get_partitions_with_db(domain, NN.T, NN)
    assert_same_regions(regions, NN, model, domain)
    part = NN.partition(compat.utils.plane_coordinates(domain, NN.T))
    assert edges.shape == (len(part.decision_boundary()), 2, 2)
    out = NN.layers(edges.mean(1))
    top = out.topk(2).values if out.shape[1] > 1 else torch.cat([out, 0 * out], 1)
    torch.testing.assert_close(top[:, 0], top[:, 1])
    found = compat.compute.get_partitions_with_db(domain, NN.T, NN, batch_size=7, n_workers=0)
    assert type(found) is tuple
    again, ends, Abw = found
    assert len(again) == len(regions)
    assert ends.equal(edges)
    uv = compat.utils.get_region_means(regions)
    hidden = NN.layers[:-1](uv)[:, -Abw.shape[1] :]  # of a sum the last summand
    made = (Abw[:, :, :2] @ uv[:, :, None])[:, :, 0] + Abw[:, :, 2]
    if name != "shared":
        torch.testing.assert_close(made, hidden.cpu())


def test_the_picture(tmp_path: Path) -> None:
    plt = pytest.importorskip("matplotlib.pyplot")
    model, domain = make("leaky")
    NN = wrap(model, domain)
    regions, edges, _ = compat.compute.get_partitions_with_db(domain, NN.T, NN)
    fig, ax = plt.subplots()
    assert splinecam.plot.plot_partition is compat.plot.plot_partition
    drawn = compat.plot.plot_partition(
        regions, alpha=0.3, edgecolor="#a70000", ax=ax, color_range=[0.3, 0.8], linewidth=0.5
    )
    for each in edges:
        ax.plot(each[:, 0], each[:, 1], c="r", linewidth=5)
    assert drawn is ax
    (low, high) = ax.get_xlim()
    assert low <= float(torch.cat(regions).min()) < float(torch.cat(regions)[:, 0].max()) <= high
    colors = ax.collections[0].get_facecolor()
    assert colors.shape == (len(regions), 4)
    assert colors[:, :3].min() >= 0.3
    assert colors[:, :3].max() <= 0.8
    fig.savefig(tmp_path / "regions.png")
    plt.close(fig)
    lowest = torch.vstack(regions).amin(0)
    few = compat.plot.plot_partition(regions, colors=["red", "#00f"], xlims=[lowest[0], 0.5])
    assert len({tuple(color) for color in few.collections[0].get_facecolor()}) == 2
    one = compat.plot.plot_partition(regions, colors=["red"] * len(regions), ylims=(0, 1))
    assert one.get_ylim() == (0, 1)
    plt.close("all")


@pytest.mark.parametrize(("name", "count"), [("vgg11_bn", 31), ("vgg16_bn", 50)])
def test_the_models(name: str, count: int) -> None:
    make_model = getattr(splinecam.models, name)
    model = make_model(n_class=3).eval()
    assert len(model) == count
    assert model(torch.zeros(2, 3, 64, 64)).shape == (2, 3)
    weights = {f"features.{key}": value + 1 for key, value in model[:4].state_dict().items()}
    copied = make_model(n_class=3, weights=SimpleNamespace(get_state_dict=lambda: weights))
    assert copied[0].weight.equal(model[0].weight + 1)
    assert make_model(bias=True)[0].bias is not None
    with pytest.raises(NotImplementedError, match="only 64"):
        make_model(input_res=224)


# -- where they are found ---------------------------------------------------------------------


@pytest.mark.slow
def test_they_are_imported_when_they_are_used() -> None:
    code = (
        "import sys, splinecam as sc; before = dir(sc); from splinecam import *; "
        "assert not any(name.startswith('splinecam.compat') for name in sys.modules); "
        "import splinecam.compat as other; "
        "assert all(getattr(sc, name) is getattr(other, name) for name in other.__all__ "
        "if name != 'plot'); assert dir(sc) == before; assert 'utils' not in before"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_gpu_that_is_not_there() -> None:
    with pytest.raises(sc.SplineCamError, match="'auto' or 'cpu', as there is no CUDA"):
        compat.wrappers.model_wrapper(mlp().eval(), T=torch.eye(4)[:, :3], device="cuda")
