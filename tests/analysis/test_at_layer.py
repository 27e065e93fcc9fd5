"""The partition after some of the layers: exact, and that of the truncated network."""

from __future__ import annotations

import io
import pickle

import pytest
import torch
from torch import Tensor, nn

import splinecam as sc
from splinecam.questions.measures import regions_by_layer


def chain() -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Linear(2, 9), nn.ReLU(), nn.Linear(9, 8), nn.LeakyReLU(), nn.Linear(8, 7)]
    return nn.Sequential(*layers, nn.Hardtanh(-0.3, 0.3), nn.Linear(7, 3), nn.Tanh()).double()


def images() -> nn.Sequential:
    torch.manual_seed(1)
    layers = [nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(2, 2, 2), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(2, 2)).double()


class Branches(nn.Module):
    """The input and the first layer are used again after the second one."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.first, self.second = nn.Linear(2, 6), nn.Linear(6, 6)
        self.skip, self.last = nn.Linear(2, 6), nn.Linear(6, 2)
        self.double()

    def hidden(self, x: Tensor) -> tuple[Tensor, Tensor]:
        first = torch.relu(self.first(x))
        return first, torch.relu(self.second(first) + self.skip(x))

    def forward(self, x: Tensor) -> Tensor:
        first, second = self.hidden(x)
        return self.last((first + second - self.skip(x)).abs())


BOX = sc.Domain.box(-2, 2)
PLANE = sc.Domain.through(
    *torch.rand(3, 1, 6, 6, generator=torch.manual_seed(3)).double(), margin=1
)


@pytest.mark.few(1)
@pytest.mark.parametrize(("model", "domain"), [(chain(), BOX), (images(), PLANE)])
def test_it_is_the_partition_of_the_truncated_network(model: nn.Sequential, domain: sc.Domain):
    part = sc.partition(model, domain, progress=False)
    for k in range(1, len(part.layers) + 1):
        found = part.at_layer(k)
        truncated = model[: int(part.layers[k - 1]) + 1]
        wanted = sc.partition(truncated, domain, progress=False)
        assert found.layers == part.layers[:k]
        assert len(found) == len(wanted) == regions_by_layer(part)[k - 1]
        assert int(found.mesh.edge_layer.max()) < k
        corners = (torch.unique(each.vertices, dim=0) for each in (found, wanted))
        assert torch.allclose(*corners, atol=1e-10)
        assert torch.allclose(found.areas.sort().values, wanted.areas.sort().values, atol=1e-10)
        x = domain.embed(found.vertices)
        assert torch.allclose(found.values, truncated(x).flatten(1).detach(), atol=1e-12)
        assert found.validate(thorough=True).ok
        assert len(part.at_layer(part.layers[k - 1])) == len(found)


def test_before_the_first_layer_there_is_one_region_with_the_input_as_its_output():
    found = sc.partition(images(), PLANE, progress=False).at_layer(0)
    assert len(found) == 1
    assert found.layers == ()
    assert torch.equal(found.values, PLANE.embed(found.vertices).flatten(1))
    assert found.validate().ok
    assert found.stats()["NR"] == 1


def test_branches_end_at_the_layer_in_the_order_of_evaluation():
    model = Branches()
    part = sc.partition(model, BOX, progress=False)
    counts = [len(part.at_layer(k)) for k in range(4)]
    assert counts == [1, *regions_by_layer(part)] == sorted(counts)
    for k in (1, 2):
        found = part.at_layer(k)
        x = BOX.embed(found.vertices)
        assert torch.allclose(found.values, model.hidden(x)[k - 1].detach(), atol=1e-12)
        assert found.validate(thorough=True).ok
        assert torch.allclose(found.model(x), found.values, atol=1e-12)
    assert part.at_layer(2)._network.stages[-2].live_out == (part._network.layers[1].source,)


def test_it_is_a_partition_in_every_respect():
    part = sc.partition(chain(), BOX, names=["a", "b", "c"], progress=False)
    found = part.at_layer(2)
    assert found.names is None
    assert found.stripped is None
    assert found.jacobian([0, 1]).shape == (2, 8, 2)
    lengths = [float(each.neurons(layer=1).length) for each in (found, part)]
    assert lengths[0] == pytest.approx(lengths[1])
    assert len(found.at_layer(1)) == len(part.at_layer(1))
    again = pickle.loads(pickle.dumps(found))
    assert again.validate().ok
    file = io.BytesIO()
    found.save(file)
    file.seek(0)
    assert len(sc.load(file, model=found.model)) == len(found)


def test_of_several_outputs_the_layers_are_those_of_the_one_that_was_partitioned():
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = chain(), chain()[:3]

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.a(x), torch.relu(self.b(x))

    part = sc.partition(Two(), BOX, output=1, progress=False)
    found = part.at_layer(len(part.layers))
    assert torch.equal(found.values, part.values)
    assert found.validate().ok


def test_a_changed_model_is_noticed():
    model = chain()
    found = sc.partition(model, BOX, progress=False).at_layer(1)
    with torch.no_grad():
        model[0].weight += 0.1
    with pytest.raises(sc.SplineCamError, match="not valid"):
        found.validate()


def test_wrong_layers_and_missing_models_are_explained():
    part = sc.partition(chain(), BOX, progress=False)
    with pytest.raises(IndexError, match="4 layers: give a number from 0 to 3, or a name: '1'"):
        part.at_layer(4)
    with pytest.raises(IndexError, match="from 0 to 3"):
        part.at_layer(-1)
    with pytest.raises(TypeError, match="name of a layer or a number"):
        part.at_layer(1.5)  # type: ignore[arg-type]
    with pytest.raises(sc.SplineCamError, match="no layer is called"):
        part.at_layer("relu9")
    file = io.BytesIO()
    part.save(file)
    file.seek(0)
    with pytest.raises(sc.SplineCamError, match=r"sc\.load\(path, model=model\)"):
        sc.load(file).at_layer(1)
