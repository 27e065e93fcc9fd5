"""``splinecam surface``: files, pictures and numbers of a surface, and wrong options."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import splinecam as sc
from solids import octahedron, surface_of
from splinecam.cli import main

CODE = """
import torch
from solids import octahedron

def build(radius=0.8):
    return octahedron(radius)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model in code."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(CODE)
    return tmp_path


def test_files_and_numbers(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["net.py:build", "--box", "-1", "1", "--out", "new/a.ply", "a.STL", "--no-validate"]
    assert main(["surface", *words]) == 0
    out, err = capsys.readouterr()
    assert "faces        8" in out
    assert "Written to new/a.ply, a.STL" in out
    assert "Surface" in err
    sc.surface(octahedron(0.8), sc.Domain.cube(-1, 1)).export(folder / "b.ply")
    assert (folder / "new/a.ply").read_bytes() == (folder / "b.ply").read_bytes()
    assert main(["surface", *words]) == 1
    assert "--force" in capsys.readouterr().err


def vertices_of(path: Path) -> np.ndarray:
    """The vertices in a binary PLY file, (V, 3)."""
    header, _, rest = path.read_bytes().partition(b"end_header\n")
    count = int(header.split(b"element vertex ")[1].split()[0])
    return np.frombuffer(rest, "<f8", 3 * count).reshape(-1, 3)


def test_a_device_and_memory(folder: Path) -> None:
    words = ["surface", "net.py:build", "--box", "-1", "1", "--no-validate", "--quiet"]
    assert main([*words, "--out", "a.ply"]) == 0
    assert main([*words, "--device", "cpu", "--memory", "1GB", "--out", "b.ply"]) == 0
    assert (folder / "a.ply").read_bytes() == (folder / "b.ply").read_bytes()
    # Parts come in another order.
    assert main([*words, "--memory", "1MB", "--out", "c.ply"]) == 0
    one, other = (np.sort(vertices_of(folder / name), 0) for name in ("a.ply", "c.ply"))
    assert np.allclose(one, other, rtol=0, atol=1e-15)
    assert (folder / "a.ply").stat().st_size == (folder / "c.ply").stat().st_size


def test_level_caps_picture_and_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    words = ["net.py:build", "--box", "-1", "-1", "-1", "1", "1", "1", "--level", "0.7", "--capped"]
    assert main(["surface", *words, "--out", "a.png", "a.obj", "--json", "--up", "y"]) == 0
    out, err = capsys.readouterr()
    numbers = json.loads(out)
    assert numbers["open edges"] == 0
    assert numbers["volume"] == pytest.approx(float(surface_of(octahedron(1.5)).volume))
    assert "9 checks passed, 8 of 8 faces" in err
    assert (folder / "a.png").stat().st_size > 5_000
    assert torch.tensor(numbers["faces"]) == 20


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--box", "-1", "--out", "a.ply"], "--box takes 2 numbers"),
        (["--box", "1", "-1", "--out", "a.ply"], "1 must be below -1"),
        (["--box", "-1", "1", "--out", "a.off"], r"a.off must end in .ply"),
        (["--box", "-1", "1", "--out", "a.ply", "--output", "0", "1", "2"], "one output or two"),
        (["--box", "-1", "1", "--out", "a.ply", "--input-shape", "4"], "inputs of three numbers"),
    ],
)
def test_wrong_options(
    words: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["surface", "net.py:build", *words])
    assert message in capsys.readouterr().err
