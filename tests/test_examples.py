"""The example scripts run, with settings small enough for a test."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch

EXAMPLES = Path(__file__).parents[1] / "examples"


def example(name: str) -> ModuleType:
    found = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_architectures(capsys: pytest.CaptureFixture[str]):
    options = "--images 300 --steps 20 --width 8 --channels 1 1 --margin 0 --device cpu --full"
    example("architectures").main(options.split())
    lines = capsys.readouterr().out.splitlines()
    rows = {line.split()[0]: line.split()[1:] for line in lines[-9:]}
    assert lines[-10].split() == ["mlp", "conv"]
    mlp, conv = (int(number.replace(",", "")) for number in rows["NR"])
    assert 1 < mlp < conv
    assert all(3 <= float(number) <= 4.5 for number in rows["ANV"])
    assert "  in input space" in "\n".join(lines)


def test_drawn_shapes_are_images_by_class():
    module = example("architectures")
    x, label = module.drawn_shapes(60, seed=3)
    assert x.shape == (60, 784)
    assert torch.bincount(label).tolist() == [10] * len(module.CLASSES)
    disc, ring = (x[label == k].view(-1, 28, 28) for k in (0, 1))
    assert float(disc.mean()) > float(ring.mean())
    again, _ = module.drawn_shapes(60, seed=3)
    assert torch.equal(x, again)


def test_a_missing_zoo_is_named(tmp_path: Path):
    with pytest.raises((SystemExit, FileNotFoundError), match=r"zoo\.py"):
        example("architectures").main(["--zoo", str(tmp_path)])
