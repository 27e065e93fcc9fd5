"""Surfaces in three dimensions that are made by hand or by trying all regions, and their boxes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import splinecam as sc
from splinecam.solid.data import SurfaceData
from splinecam.solid.surface import Surface

EYE = torch.eye(3, dtype=torch.float64)
ZERO = torch.zeros(3, dtype=torch.float64)


@dataclass(frozen=True, eq=False)
class Cuboid:
    """A box from lo to hi with the attributes that surfaces ask for."""

    lo: float = -1.0
    hi: float = 1.0
    basis: Tensor = EYE
    origin: Tensor = ZERO

    @property
    def corners(self) -> Tensor:
        return torch.tensor([*product((self.lo, self.hi), repeat=3)], dtype=torch.float64)

    @property
    def planes(self) -> tuple[Tensor, Tensor]:
        offsets = torch.tensor([self.hi] * 3 + [-self.lo] * 3, dtype=torch.float64)
        return torch.cat([EYE, -EYE]), offsets

    def to_input(self, uvw: Tensor) -> Tensor:
        return self.origin + uvw @ self.basis


def surface_of(
    model: nn.Sequential, box: Any = None, level: float = 0.0, output: Any = 0
) -> Surface:
    """The surface of a network with one hidden layer of ReLU, by trying all of its regions."""
    box = Cuboid() if box is None else box
    first, last = (each.double() for each in (model[0], model[2]))
    basis, origin = box.basis.numpy(), box.origin.numpy()
    w, b = first.weight.detach().numpy(), first.bias.detach().numpy()
    b, w = b + w @ origin, w @ basis.T
    v, c = last.weight.detach().numpy(), last.bias.detach().numpy()
    v, c = (
        (v[output], c[output])
        if isinstance(output, int)
        else (v[output[0]] - v[output[1]], c[output[0]] - c[output[1]])
    )
    normals, offsets = (each.numpy() for each in box.planes)
    size = np.abs(box.corners.numpy()).max()
    faces, layers, maps = [], [], []
    for pattern in product((0.0, 1.0), repeat=len(w)):
        on = np.array(pattern)
        g, h = (v * on) @ w, (v * on) @ b + c
        if not np.abs(g).max() > 1e-12:
            continue
        e = np.eye(3)[np.abs(g).argmin()]
        s = np.cross(g, e)
        s, t = s / np.linalg.norm(s), np.cross(g, s) / np.linalg.norm(np.cross(g, s))
        p = (level - h) * g / (g @ g)
        ring = np.array(
            [p + 9 * size * (x * s + y * t) for x, y in ((1, 1), (-1, 1), (-1, -1), (1, -1))]
        )
        kinds = np.full(4, -3)
        for n, d, kind in [
            *((-n, d, -1) for n, d in zip(normals, offsets, strict=True)),
            *((n * q, d * q, 0) for n, d, q in zip(w, b, 2 * on - 1, strict=True)),
        ]:
            ring, kinds = _clipped(ring, kinds, ring @ n + d, kind)
            if len(ring) < 3:
                break
        if len(ring) < 3 or np.linalg.matrix_rank(ring - ring[0], 1e-9 * size) < 2:
            continue
        faces.append(ring)
        layers.append(kinds)
        maps.append((g, h))
    every = np.concatenate([*faces, np.zeros((0, 3))])
    keys = np.round(every / size * 1e9).astype(np.int64)
    _, index, inverse = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    return made(
        every[index],
        [len(ring) for ring in faces],
        inverse.reshape(-1),
        np.array([g for g, _ in maps]).reshape(-1, 3),
        np.array([h for _, h in maps]),
        box,
        sc.capture(model, (len(origin),), device="cpu"),
        layers=np.concatenate([*layers, np.zeros(0)]),
        level=level,
        output=output,
    )


def _clipped(ring: Any, kinds: Any, depth: Any, kind: int) -> tuple[Any, Any]:
    """The part of a polygon with depth above 0; kinds: of the side after each corner."""
    points, found = [], []
    for k in range(len(ring)):
        j = (k + 1) % len(ring)
        if depth[k] >= 0:
            points.append(ring[k])
            found.append(kinds[k])
        if (depth[k] >= 0) != (depth[j] >= 0):
            t = depth[k] / (depth[k] - depth[j])
            points.append(ring[k] + t * (ring[j] - ring[k]))
            found.append(kind if depth[k] >= 0 else kinds[k])
    return np.array(points).reshape(-1, 3), np.array(found)


def made(
    points: Any,
    counts: Any,
    corners: Any,
    gradients: Any,
    bias: Any,
    box: Any,
    network: Any,
    *,
    layers: Any = None,
    level: float = 0.0,
    output: Any = 0,
) -> Surface:
    """A surface from its arrays."""
    layers = np.zeros(len(corners)) if layers is None else layers
    data = SurfaceData(
        vertices=torch.as_tensor(np.asarray(points), dtype=torch.float64).reshape(-1, 3),
        face_offsets=torch.as_tensor(np.cumsum([0, *counts])),
        face_vertices=torch.as_tensor(np.asarray(corners), dtype=torch.int64),
        edge_layer=torch.as_tensor(layers, dtype=torch.int32),
        gradients=torch.as_tensor(gradients, dtype=torch.float64),
        bias=torch.as_tensor(bias, dtype=torch.float64),
        face_region=torch.arange(len(counts)),
        report={"cells bounded": 7},
        unresolved=[],
    )
    return Surface(data, box, network, level=level, output=output)


def cube(radius: float = 0.5, box: Any = None, inside_out: bool = False) -> Surface:
    """A cube, as the level set of the largest coordinate."""
    points = radius * np.array([*product((-1.0, 1.0), repeat=3)])
    quads = [[4, 6, 7, 5], [2, 3, 7, 6], [1, 5, 7, 3], [0, 1, 3, 2], [0, 4, 5, 1], [0, 2, 6, 4]]
    normals = np.concatenate([np.eye(3), -np.eye(3)])
    if inside_out:
        quads, normals = [quad[::-1] for quad in quads], -normals
    sign = -1 if inside_out else 1

    def network(x: Tensor) -> Tensor:
        return sign * (x.abs().amax(1, keepdim=True) - radius)

    bias = np.full(6, -sign * radius)
    box = Cuboid() if box is None else box
    return made(points, [4] * 6, np.concatenate(quads), normals, bias, box, network)


def torus(n: int = 16, m: int = 10) -> Surface:
    """A torus of quadrangles, not flat, with radii 0.6 and 0.25."""
    i, j = np.meshgrid(np.arange(n), np.arange(m), indexing="ij")
    a, b = 2 * np.pi * i / n, 2 * np.pi * j / m
    ring = 0.6 + 0.25 * np.cos(b)
    points = np.stack([ring * np.cos(a), ring * np.sin(a), 0.25 * np.sin(b)], -1).reshape(-1, 3)
    right, up = (i + 1) % n, (j + 1) % m
    quads = np.stack([i * m + j, right * m + j, right * m + up, i * m + up], -1).reshape(-1, 4)
    one, other = (
        points[quads[:, 2]] - points[quads[:, 0]],
        points[quads[:, 3]] - points[quads[:, 1]],
    )
    normals = np.cross(one, other)
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    bias = -(normals * points[quads].mean(1)).sum(1)

    def network(x: Tensor) -> Tensor:
        off = torch.stack([x[:, :2].norm(dim=1) - 0.6, x[:, 2]], 1).norm(dim=1)
        return (off - 0.25)[:, None]

    return made(points, [4] * len(quads), quads.reshape(-1), normals, bias, Cuboid(), network)


def octahedron(radius: float) -> nn.Sequential:
    """A network that computes the sum of absolute values minus a radius."""
    model = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 1)).double()
    eye = torch.eye(3, dtype=torch.float64)
    with torch.no_grad():
        model[0].weight.copy_(torch.cat([eye, -eye]))
        model[0].bias.zero_()
        model[2].weight.fill_(1.0)
        model[2].bias.fill_(-radius)
    return model.eval()


def random_network(seed: int, units: int = 7, inputs: int = 3, outputs: int = 1) -> nn.Sequential:
    """A network with one hidden layer, whose level 0 is met in the box [-1, 1]."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(inputs, units), nn.ReLU(), nn.Linear(units, outputs)).double()
    with torch.no_grad():
        model[2].bias -= model(torch.zeros(1, inputs, dtype=torch.float64))[0] * 0.9
    return model.eval()
