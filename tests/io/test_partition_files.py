"""Partitions come back from files as they were, and bad files are told from good ones."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import splinecam as sc
from splinecam.partitions import partition_files

FIXTURES = Path(__file__).parents[1] / "fixtures"


def mlp(outputs: int, *end: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(2, 12), nn.ReLU(), nn.Linear(12, 9), nn.LeakyReLU(), nn.Linear(9, outputs), *end
    )


def image_net() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(18, 4)
    )


def found(model: nn.Module, domain: sc.Domain | None = None) -> sc.Partition:
    domain = domain or sc.Domain.box(-3, 3)
    return sc.partition(model.eval(), domain, device="cpu", progress=False)


def partitions() -> dict[str, tuple[nn.Module, sc.Partition]]:
    torch.manual_seed(2)
    images = torch.randn(3, 1, 8, 8)
    models: dict[str, tuple[nn.Module, sc.Domain | None]] = {
        "one output": (mlp(1), None),
        "softmax": (mlp(3, nn.Softmax(1)), None),
        "double": (mlp(2).double(), sc.Domain.polygon([[0.0, 0.0], [5.0, 1.0], [1.0, 4.0]])),
        "images": (image_net(), sc.Domain.through(*images)),
        "affine": (nn.Linear(2, 2), None),
    }
    return {name: (model, found(model, domain)) for name, (model, domain) in models.items()}


PARTITIONS = partitions()


@pytest.fixture(params=PARTITIONS)
def case(request: pytest.FixtureRequest) -> tuple[nn.Module, sc.Partition]:
    return PARTITIONS[request.param]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "part.npz"
    PARTITIONS["one output"][1].save(path)
    return path


def same(part: sc.Partition, again: sc.Partition) -> bool:
    tensors = (
        *("vertices", "values", "weight", "bias", "areas", "centroids", "_value_error"),
        *("_face_vertices", "_edge_faces"),
    )
    plain = ("layers", "stripped", "unresolved", "_dtype")
    meshes = (vars(part.mesh), vars(again.mesh))
    assert all(torch.equal(tensor, meshes[1][name]) for name, tensor in meshes[0].items())
    return all(torch.equal(getattr(part, name), getattr(again, name)) for name in tensors) and all(
        getattr(part, name) == getattr(again, name) for name in plain
    )


# -- there and back -------------------------------------------------------------------------------


def test_a_file_of_an_earlier_day_is_read() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 3))
    part = sc.load(FIXTURES / "partition_version3.npz", model=model)
    assert len(part) == 14
    assert (part.names, part.layers, part._dtype) == (("a", "b", "c"), ("1",), torch.float32)
    assert part.domain == sc.Domain.box(-2, 2)
    assert float(part.areas.sum()) == pytest.approx(16)
    assert part.validate().ok
    now = sc.partition(model, sc.Domain.box(-2, 2), device="cpu", progress=False)
    assert torch.equal(part.mesh.edge_layer, now.mesh.edge_layer)
    assert torch.equal(part._face_vertices, now._face_vertices)
    assert torch.allclose(part.vertices, now.vertices, rtol=0, atol=1e-12)


def test_pickles_name_a_function_that_stays() -> None:
    content = (FIXTURES / "partition_version3.npz").read_bytes()
    restore, (_, *others) = sc.load(io.BytesIO(content)).__reduce__()
    assert (
        f"{restore.__module__}.{restore.__qualname__}"
        == "splinecam.partitions.partition._unpickled"
    )
    assert len(restore(content, *others)) == 14


def test_everything_comes_back(case: tuple[nn.Module, sc.Partition], tmp_path: Path) -> None:
    _, part = case
    part.save(tmp_path / "part.npz")
    again = sc.load(str(tmp_path / "part.npz"))
    assert same(part, again)
    assert again.domain.input_shape == part.domain.input_shape
    for name in ("origin", "basis", "corners"):
        assert torch.equal(getattr(again.domain, name), getattr(part.domain, name))
    assert [path.name for path in tmp_path.iterdir()] == ["part.npz"]


def test_what_needs_no_network_works(case: tuple[nn.Module, sc.Partition], tmp_path: Path) -> None:
    _, part = case
    part.save(tmp_path / "part.npz")
    again = sc.load(tmp_path / "part.npz")
    assert dict(again.stats()) == dict(part.stats())
    assert torch.equal(again.decision_boundary().ends, part.decision_boundary().ends)
    assert len(again.merged()) == len(part.merged())
    x = part.sample(20, generator=torch.Generator().manual_seed(0))
    y = again.sample(20, generator=torch.Generator().manual_seed(0))
    assert torch.equal(x, y)
    assert x.dtype == y.dtype
    assert torch.equal(again.locate(x), part.locate(x))
    assert "without its model" in repr(again)


def test_the_model_is_taken_back(case: tuple[nn.Module, sc.Partition], tmp_path: Path) -> None:
    model, part = case
    part.save(tmp_path / "part.npz")
    again = sc.load(tmp_path / "part.npz", model=model)
    assert again.model is model
    assert "without" not in repr(again)
    first, second = part.patterns(), again.patterns()
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert again.validate().ok


def test_unresolved_places_come_back(tmp_path: Path) -> None:
    # (v + 4 + tiny u) - (v + 4) is tiny everywhere, and changes sign at u = 0.
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1, bias=False), nn.ReLU())
    with torch.no_grad():
        model.double()[0].weight[:] = torch.tensor([[0.0, 1.0], [5e-15, 1.0]])
        model[0].bias[:] = 4.0
        model[2].weight[:] = torch.tensor([[-1.0, 1.0]])
    part = found(model)
    assert part.unresolved
    part.save(tmp_path / "part.npz")
    assert sc.load(tmp_path / "part.npz").unresolved == part.unresolved


def test_a_file_object_will_do() -> None:
    part = PARTITIONS["softmax"][1]
    file = io.BytesIO()
    part.save(file)
    file.seek(0)
    assert same(part, sc.load(file))


def test_pickle_and_copies_keep_the_model() -> None:
    _, part = PARTITIONS["softmax"]
    for again in (pickle.loads(pickle.dumps(part)), copy.deepcopy(part)):
        assert same(part, again)
        assert again.validate().ok


def test_numpy_alone_can_read_it(saved: Path) -> None:
    with np.load(saved, allow_pickle=False) as file:
        about = json.loads(file["about"].tobytes())
        regions = len(file["mesh_offsets"]) - 1
    assert about["format"] == "splinecam partition"
    assert regions == len(PARTITIONS["one output"][1])


def test_whole_numbers_are_stored_narrowly(saved: Path) -> None:
    with np.load(saved) as file:
        widths = {name: file[name].dtype for name in file.files if file[name].dtype.kind == "i"}
    assert widths["mesh_edge_layer"] == np.int8
    assert max(kind.itemsize for kind in widths.values()) <= 4


def test_extremes_of_whole_numbers_fit() -> None:
    for high in (127, 128, 32767, 32768, 2**31 - 1, 2**31):
        array = np.array([-1, high])
        narrow = partition_files.narrow(array)
        assert np.array_equal(narrow, array)
        assert narrow.dtype.kind == "i"


# -- without the network, or with another ---------------------------------------------------------


def test_what_needs_the_network_says_so(saved: Path) -> None:
    part = sc.load(saved)
    for ask in (part.patterns, part.neurons, part.validate, part.fixed_units):
        with pytest.raises(sc.SplineCamError, match=r"sc\.load\(path, model=model\)"):
            ask()
    with pytest.raises(sc.SplineCamError, match="loaded without it"):
        part.jacobian([0])


def test_another_model_is_refused(saved: Path) -> None:
    other = mlp(1)
    with torch.no_grad():
        other[0].weight += 0.1
    with pytest.raises(sc.SplineCamError, match="outputs at the vertices differ"):
        sc.load(saved, model=other)
    with pytest.raises(sc.SplineCamError, match="it has 3 outputs"):
        sc.load(saved, model=mlp(3))
    with pytest.raises(sc.SplineCamError, match="the layers"):
        sc.load(saved, model=nn.Linear(2, 1))


# -- files that hold no partition -----------------------------------------------------------------


def test_missing_files_and_folders(tmp_path: Path) -> None:
    part = PARTITIONS["one output"][1]
    with pytest.raises(sc.FileError, match="There is no file"):
        sc.load(tmp_path / "none.npz")
    with pytest.raises(sc.FileError, match=r"cannot be read|not a partition"):
        sc.load(tmp_path)
    with pytest.raises(sc.FileError, match="no folder"):
        part.save(tmp_path / "none" / "part.npz")
    with pytest.raises(sc.FileError, match="is a folder"):
        part.save(tmp_path)


def test_truncated_files(saved: Path) -> None:
    content = saved.read_bytes()
    for length in range(0, len(content), len(content) // 40):
        saved.write_bytes(content[:length])
        with pytest.raises(sc.FileError, match=r"truncated|not a partition"):
            sc.load(saved)


def test_flipped_bits(saved: Path) -> None:
    content = saved.read_bytes()
    part = PARTITIONS["one output"][1]
    for place in range(40, len(content), len(content) // 60):
        damaged = bytearray(content)
        damaged[place] ^= 0x10
        saved.write_bytes(damaged)
        try:
            again = sc.load(saved)
        except sc.FileError:
            continue
        assert same(part, again)  # the bit was in padding or in a time stamp


def test_foreign_files(tmp_path: Path) -> None:
    path = tmp_path / "foreign"
    path.write_text("regions\n")
    with pytest.raises(sc.FileError, match="not a partition saved by SplineCam"):
        sc.load(path)
    with path.open("wb") as file:
        np.save(file, np.arange(3))
    with pytest.raises(sc.FileError, match="not a partition saved by SplineCam"):
        sc.load(path)
    with path.open("wb") as file:
        np.savez(file, weights=np.arange(3))
    with pytest.raises(sc.FileError, match="not a partition saved by SplineCam"):
        sc.load(path)
    with path.open("wb") as file:
        np.savez(file, about=np.frombuffer(b'{"format": "other"}', np.uint8))
    with pytest.raises(sc.FileError, match="not a partition saved by SplineCam"):
        sc.load(path)


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    path = tmp_path / "pickled.npz"
    np.savez(path, about=np.array([{"format": "splinecam partition"}], dtype=object))
    with pytest.raises(sc.FileError, match="damaged"):
        sc.load(path)
    pickled = tmp_path / "pickle"
    pickled.write_bytes(pickle.dumps({"weights": [1.0]}))
    with pytest.raises(sc.FileError, match="not a partition saved by SplineCam"):
        sc.load(pickled)


def rewritten(path: Path, about: dict[str, Any] | None = None, **arrays: Any) -> Path:
    """The file with something changed; None takes an array away."""
    with np.load(path) as file:
        content = {name: file[name] for name in file.files}
    words = json.loads(content["about"].tobytes()) | (about or {})
    content["about"] = np.frombuffer(json.dumps(words).encode(), np.uint8)
    content = {k: v for k, v in (content | arrays).items() if v is not None}
    np.savez(path, **content)
    return path


def test_newer_files(saved: Path) -> None:
    with pytest.raises(sc.FileError, match=r"version 4 .* reads version 3"):
        sc.load(rewritten(saved, {"version": 4}))


def test_contents_that_do_not_fit(saved: Path) -> None:
    original = saved.read_bytes()
    with np.load(saved) as file:
        values, edges, offsets = file["values"], file["mesh_edges"], file["mesh_offsets"]
        uv, corners, units = file["mesh_uv"], file["mesh_corners"], file["mesh_edge_unit"]
    moved = uv.copy()
    moved[len(uv) // 2] += 0.5
    far = np.where(units < 0, units, 11)  # there are layers of 12 and 9 units
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("there is no 'values'", {"values": None}),
        ("values has shape", {"values": values[1:]}),
        ("values is float32, not float64", {"values": values.astype(np.float32)}),
        ("values has entries that are not finite", {"values": values * np.inf}),
        ("mesh_edges has an index out of range", {"mesh_edges": edges + len(uv)}),
        ("mesh_edge_unit has an index out of range", {"mesh_edge_unit": units + 99}),
        ("mesh_edge_unit has a unit that its layer lacks", {"mesh_edge_unit": far}),
        ("mesh_edge_unit has no unit", {"mesh_edge_unit": units * 0 - 1}),
        ("mesh_edges is float64, not whole numbers", {"mesh_edges": edges.astype(float)}),
        ("mesh_offsets does not divide", {"mesh_offsets": offsets[::-1]}),
        ("the mesh fails a check", {"mesh_corners": np.roll(corners, 1)}),
        ("the mesh fails a check", {"mesh_uv": moved}),
        ("domain_basis|basis has shape", {"domain_basis": np.eye(3)}),
        ("bfloat77", {"about": {"dtype": "bfloat77"}}),
        ("not a floating-point type", {"about": {"dtype": "nn"}}),
        ("", {"about": {"layers": 3}}),
        ("", {"about": {"unresolved": [1]}}),
        ("", {"about": {"input_shape": [3]}}),
    ]
    for message, change in wrong:
        saved.write_bytes(original)
        with pytest.raises(sc.FileError, match=rf"damaged: .*({message})"):
            sc.load(rewritten(saved, **change))


def test_unverified_files_are_read_as_they_are(case: tuple[nn.Module, sc.Partition]) -> None:
    part, file = case[1], io.BytesIO()
    part.save(file)
    file.seek(0)
    assert same(part, sc.load(file, verify=False))


def test_regions_that_do_not_fit_together_are_read_unverified_only(saved: Path) -> None:
    with np.load(saved) as file:
        uv = file["mesh_uv"]
    uv[len(uv) // 2] += 0.5
    rewritten(saved, mesh_uv=uv)
    with pytest.raises(sc.FileError, match="the mesh fails a check"):
        sc.load(saved)
    assert len(sc.load(saved, verify=False)) == len(PARTITIONS["one output"][1])


@pytest.mark.parametrize("seed", range(40))
def test_damaged_indices(saved: Path, seed: int) -> None:
    """What is not refused unverified can be used, with an error or a wrong result at worst."""
    random = np.random.default_rng(seed)
    name = ("mesh_corners", "mesh_edges", "mesh_offsets", "mesh_edge_layer")[seed % 4]
    with np.load(saved) as file:
        array = file[name]
    place = random.integers(array.size)
    far = seed % 8 > 3 and name != "mesh_edge_layer"
    wrong = random.integers(-(2**31), 2**31) if far else -1 if array.flat[place] >= 0 else 0
    if not far and name != "mesh_edge_layer":
        wrong = array.flat[(place + random.integers(1, array.size - 1)) % array.size]
    if wrong == array.flat[place]:
        wrong += 1
    array = array.astype(np.int64)
    array.flat[place] = wrong
    rewritten(saved, **{name: array})
    with pytest.raises(sc.FileError, match="damaged"):
        sc.load(saved)
    with contextlib.suppress(sc.FileError, RuntimeError, IndexError, ValueError):
        part = sc.load(saved, verify=False)
        assert not far, "indices out of range are never read"
        part.locate(part.vertices)
        part.stats()


def test_a_file_is_as_readable_as_any_other(saved: Path) -> None:
    other = saved.with_name("other")
    other.touch()
    assert saved.stat().st_mode == other.stat().st_mode


def test_a_failed_save_leaves_the_old_file(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved.read_bytes()

    def broken(*_: Any, **__: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez", broken)
    with pytest.raises(OSError, match="disk full"):
        PARTITIONS["softmax"][1].save(saved)
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_devices(tmp_path: Path) -> None:
    model = mlp(2)
    part = sc.partition(model, sc.Domain.box(-3, 3), device="cuda", progress=False)
    part.save(tmp_path / "part.npz")
    again = sc.load(tmp_path / "part.npz", model=model, device="cuda")
    assert again.mesh.uv.is_cuda
    assert same(part, again)
    assert again.validate().ok
    assert not sc.load(tmp_path / "part.npz").mesh.uv.is_cuda
