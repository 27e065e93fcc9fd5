"""Poolings and convolutions over four axes, of which two are idle, as JAX writes them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import splinecam as sc
from importing.onnx_files import graph_model, node, saved
from splinecam.errors import UnsupportedOpError

LAST = torch.randn(3, 8, 6, 4, generator=torch.Generator().manual_seed(0))  # channels last
FIRST = LAST.permute(0, 3, 1, 2)


def loaded(nodes: list[Any], folder: Path, constants: dict[str, Any]) -> Any:
    """The network between two axes that are put before an image and taken away again."""
    wide = node("Unsqueeze", "x two", "w")
    narrow = node("Squeeze", "p two", "y")
    constants = {"two": np.array([0, 1]), **constants}
    model = graph_model([wide, *nodes, narrow], [1, 8, 6, 4], constants=constants)
    return sc.load_model(saved(model, folder))


@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
def test_pooling_of_images_with_channels_last(kind: str, tmp_path: Path) -> None:
    pool = node(kind, "w", "p", kernel_shape=[1, 3, 2, 1], strides=[1, 2, 2, 1])
    module = loaded([pool], tmp_path, {})
    same = torch.nn.functional.max_pool2d if kind == "MaxPool" else torch.nn.functional.avg_pool2d
    known = same(FIRST, (3, 2), 2).permute(0, 2, 3, 1)
    torch.testing.assert_close(module(LAST), known)
    part = sc.partition(module, sc.Domain.around(LAST[0], side=1.0), progress=False)
    assert part.validate().ok


def test_padding_along_the_axes_that_are_kept(tmp_path: Path) -> None:
    pads = [0, 1, 0, 0, 0, 1, 0, 0]
    pool = node("MaxPool", "w", "p", kernel_shape=[1, 3, 2, 1], pads=pads)
    known = torch.nn.functional.max_pool2d(FIRST, (3, 2), 1, (1, 0)).permute(0, 2, 3, 1)
    torch.testing.assert_close(loaded([pool], tmp_path, {})(LAST), known)


@pytest.mark.parametrize("bias", [False, True])
def test_convolutions_of_one_channel(bias: bool, tmp_path: Path) -> None:
    constants = {"k": np.arange(6, dtype=np.float32).reshape(1, 1, 1, 3, 2, 1)}
    constants |= {"b": np.full(1, 0.5, np.float32)} if bias else {}
    names = "w k b" if bias else "w k"
    module = loaded([node("Conv", names, "p", strides=[1, 2, 1, 1])], tmp_path, constants)
    kernel = torch.arange(6.0).reshape(1, 1, 3, 2).expand(4, 1, 3, 2)
    known = torch.nn.functional.conv2d(FIRST, kernel, stride=(2, 1), groups=4)
    known = (known + (0.5 if bias else 0)).permute(0, 2, 3, 1)
    torch.testing.assert_close(module(LAST).detach(), known)


def test_windows_along_four_axes_are_refused(tmp_path: Path) -> None:
    pool = node("MaxPool", "w", "p", kernel_shape=[1, 3, 2, 2], pads=[1, 0, 0, 0, 0, 0, 0, 0])
    with pytest.raises(UnsupportedOpError, match="1 to 3 axes"):
        loaded([pool], tmp_path, {})
