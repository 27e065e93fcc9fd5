"""Pixels of a network's decision have the colours that exact pictures have."""

import numpy as np
import pytest
import torch
from torch import nn

import splinecam as sc
from splinecam.plot.palette import paler
from splinecam.viewer.frames import Limits, Network
from splinecam.viewer.windows import raster_pixels, typical_lead

BOX = sc.Domain.box(-1, 1)


def endless() -> float:
    """A clock that stands still, so that no raster takes too long on a busy machine."""
    return 0.0


def network(outputs: int = 3, domain: sc.Domain = BOX) -> Network:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, outputs))
    return Network.of_model(model, domain, device="cpu")


@pytest.mark.parametrize("outputs", [1, 3])
def test_pixels_are_the_classes_at_their_middles(outputs):
    net = network(outputs)
    box, image = raster_pixels(net, BOX, (-2.0, -0.5, 0.5, 1.5), 48, typical=0.3, clock=endless)
    assert box == (-1.0, -0.5, 0.5, 1.0)
    assert image.shape == (48, 48, 3)
    u, v = (np.arange(48) + 0.5) / 32 + np.array([[-1.0], [-0.5]])
    x = torch.tensor(np.stack(np.meshgrid(u, v), -1).reshape(-1, 2))
    z = net.model.double()(x).detach().numpy()
    if outputs == 1:
        winner, lead = (z[:, 0] > 0).astype(int), np.abs(z[:, 0])
    else:
        top = np.sort(z, 1)
        winner, lead = z.argmax(1), top[:, -1] - top[:, -2]
    wanted = np.round(255 * paler(winner, lead, 0.3)).reshape(48, 48, 3)
    assert np.abs(image.astype(int) - wanted).max() <= 1


def test_outside_of_a_polygon_pixels_are_transparent():
    triangle = sc.Domain.polygon([[-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]])
    _, image = raster_pixels(network(), triangle, (-1.0, -1.0, 1.0, 1.0), 32, clock=endless)
    assert image.shape == (32, 32, 4)
    assert image[0, 0, 3] == 255
    assert image[-1, -1, 3] == 0
    assert image[..., 3].mean() == pytest.approx(127.5, rel=0.1)


def test_slow_networks_have_fewer_pixels():
    for each, size in ((1e-4, 500), (0.015, 96), (1.0, 24)):  # seconds between two looks
        ticks = iter(each * k for k in range(100))
        clock = ticks.__next__
        _, image = raster_pixels(network(), BOX, (-1, -1, 1, 1), 500, seconds=0.2, clock=clock)
        assert image.shape == (size, size, 3)


def test_the_typical_lead_is_the_median():
    net = network()
    part = net.partition(BOX, Limits())
    cells = part.class_regions()
    order = cells.cell_leads.argsort()
    below = cells.cell_areas[order].cumsum(0)
    median = float(cells.cell_leads[order][(below < below[-1] / 2).sum()])
    assert typical_lead(net, BOX) == pytest.approx(median, rel=0.2)
