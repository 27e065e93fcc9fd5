"""Networks that were trained elsewhere, through an ONNX file: the same regions as without."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import splinecam as sc
from importing.onnx_export import exported
from importing.onnx_files import reference

SHARED = Path(os.environ.get("SPLINECAM_SHARED", Path(__file__).parents[3] / "shared"))
pytestmark = pytest.mark.skipif(not (SHARED / "zoo").is_dir(), reason="no shared folder")

# name: shrink the domain by this factor, so that there are at most some thousand regions.
ZOO = {
    "acasxu_1_1": 0.2,
    "acasxu_2_9": 0.2,
    "vnn_tll_8_0_0": 0.3,
    "vnn_verivital_maxpool": 0.005,
    "mlp_fashion": 0.2,
    "conv1_fashion": 0.05,
    "resbn_fashion": 0.0001,
    "edgesub_bunny2d_2x100": 0.5,
    "edgesub_bunny3d_8x32": 0.1,
    "inr10x5_camera": 1.0,
    "inr256x6_camera": 0.01,
    "sdf2d_easy_metfaces": 0.02,
    "sdf2d_hard_metfaces": 0.02,
    "sdf3d_bunny": 0.01,
    "cnn5_cats": 0.0005,
}


@pytest.fixture(scope="module")
def zoo() -> Iterator[Any]:
    sys.path.insert(0, str(SHARED / "zoo"))
    written, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    yield importlib.import_module("zoo")
    sys.dont_write_bytecode = written
    sys.path.remove(str(SHARED / "zoo"))


@pytest.mark.parametrize("name", ZOO)
def test_regions_are_those_of_the_module(zoo: Any, name: str, tmp_path: Path):
    item = zoo.load(name)
    corners, middle = item.domain, item.domain.mean(0)
    domain = sc.Domain.polygon(middle + ZOO[name] * (corners - middle))
    model, eps = item.model, 1e-9
    if any(isinstance(layer, nn.Conv2d) for layer in model.modules()):
        model, eps = model.float(), 1e-5  # onnxruntime has no convolution in float64
    for layer in model.modules():
        if isinstance(layer, nn.LeakyReLU):  # attributes in ONNX files are float32
            layer.negative_slope = float(np.float32(layer.negative_slope))
    path = exported(model, (corners.shape[1],), tmp_path)
    part, same = sc.partition(path, domain), sc.partition(model, domain)
    assert len(part) == len(same)
    assert part.validate(samples=500).ok
    found = part.locate(same._inputs(same.centroids, dtype=torch.float64))
    assert found.unique().numel() == len(same)
    torch.testing.assert_close(part.areas[found], same.areas, rtol=1e-6, atol=1e-12)
    scale = float(same.weight.abs().max())
    torch.testing.assert_close(part.weight[found], same.weight, rtol=0, atol=1e-7 * scale)
    x = part._inputs(part.vertices[:10_000])
    values = reference(path, x.reshape(len(x), -1).numpy())[0]
    size = float(np.abs(values).max())
    np.testing.assert_allclose(part.values[:10_000].numpy(), values, rtol=0, atol=eps * size)
