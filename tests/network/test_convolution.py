"""Convolutions in blocks and as products of matrices are the plain ones; networks made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import splinecam as sc
from splinecam._util.backend import using
from splinecam._util.tolerances import EPS
from splinecam.network.capture import capture
from splinecam.network.ops import affine as convolution
from splinecam.network.ops.affine import as_product
from splinecam.network.ops.bounds import Bound
from splinecam.testing import assert_same_cells, exact_partition

ATOL = 1e-9  # of coordinates, for comparing cells
PLAIN = {1: torch.conv1d, 2: torch.conv2d, 3: torch.conv3d}

# Sizes of the image and the window, and stride, padding, dilation and groups.
CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], Any, Any, Any, int]] = {
    "3 x 3": ((12, 11), (3, 3), 1, 1, 1, 1),
    "few windows": ((4, 4), (3, 3), 1, 1, 1, 1),
    "one window": ((3, 3), (3, 3), 1, 0, 1, 1),
    "one pixel": ((9, 9), (1, 1), 1, 0, 1, 1),
    "strided": ((11, 12), (3, 2), [2, 3], 1, 1, 1),
    "dilated": ((13, 12), (3, 2), 1, [2, 1], [2, 3], 1),
    "all of it": ((13, 14), (3, 3), [2, 1], [1, 2], [1, 2], 1),
    "one number for all": ((9, 9), (3, 3), [2], [1], [1], 1),
    "grouped": ((9, 9), (3, 3), 1, 1, 1, 2),
    "each channel": ((9, 9), (3, 3), 2, 1, 1, 4),
    "each channel, all of it": ((13, 14), (3, 3), [2, 1], [1, 2], [1, 2], 4),
    "each channel of a line": ((70,), (5,), 2, 2, 1, 4),
    "each channel of a block": ((5, 6, 4), (3, 2, 3), 1, [1, 0, 1], 1, 4),
    "a line": ((70,), (5,), 2, 2, 1, 1),
    "a block": ((5, 6, 4), (3, 2, 3), 1, [1, 0, 1], 1, 1),
}


def numbers(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def arguments(name: str, channels: int = 4, outputs: int = 8) -> tuple[Callable[..., Tensor], Any]:
    size, kernel, stride, padding, dilation, groups = CASES[name]
    x = numbers(5, channels, *size)
    weight = numbers(outputs, channels // groups, *kernel, seed=1)
    bias = numbers(outputs, seed=2)
    return PLAIN[len(size)], (x, weight, bias, stride, padding, dilation, groups)


def assert_close(found: Tensor, expected: Tensor) -> None:
    assert found.shape == expected.shape
    assert found.is_contiguous()
    torch.testing.assert_close(
        found, expected, rtol=0, atol=100 * EPS * float(expected.abs().max())
    )


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("name", [name for name in CASES if CASES[name][-1] == 1])
def test_a_product_of_matrices_is_the_convolution(name: str, biased: bool) -> None:
    plain, (x, weight, bias, *steps, _) = arguments(name)
    bias = bias if biased else None
    every = [
        list(step) * (x.dim() - 2) if len(step) == 1 else list(step)
        for step in ([step] if isinstance(step, int) else step for step in steps)
    ]
    assert_close(as_product(x, weight, bias, *every), plain(x, weight, bias, *steps))


@pytest.mark.parametrize("name", CASES)
def test_in_parts_is_the_convolution(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolution, "_CACHED", 0)
    plain, given = arguments(name)
    assert_close(convolution.convolution(plain)(*given), plain(*given))


def test_a_few_images_at_a_time_where_the_windows_of_all_are_many() -> None:
    seen = []

    def counted(x: Tensor, *rest: Any) -> Tensor:
        seen.append(x.shape[0])
        return torch.conv2d(x, *rest)

    run = convolution.convolution(counted)
    small, large, weight = numbers(3, 2, 4, 4), numbers(3, 16, 64, 64), numbers(4, 16, 3, 3)
    run(small, weight[:, :2])
    assert seen == [3]
    run(large, weight, None, 1, 1)
    assert seen == [3, 1, 1, 1], "one for each thread"


def test_words_for_the_padding_and_images_without_a_batch() -> None:
    run = convolution.convolution(torch.conv2d)
    x, weight = numbers(2, 3, 6, 6), numbers(4, 3, 3, 3)
    assert torch.equal(
        run(x, weight, None, 1, "same"), torch.conv2d(x, weight, None, padding="same")
    )
    assert torch.equal(run(x[0], weight), torch.conv2d(x[0], weight))


def test_derivatives_of_a_product() -> None:
    x, weight, bias = numbers(2, 3, 9, 9), numbers(4, 3, 3, 3), numbers(4)
    steps = ([2, 1], [1, 1], [1, 2])
    points = [x.clone().requires_grad_() for _ in range(2)]
    as_product(points[0], weight, bias, *steps).square().sum().backward()
    torch.conv2d(points[1], weight, bias, *steps).square().sum().backward()
    torch.testing.assert_close(points[0].grad, points[1].grad)
    tangent = numbers(2, 3, 9, 9, seed=3)
    _, moved = torch.func.jvp(lambda x: as_product(x, weight, bias, *steps), (x,), (tangent,))
    torch.testing.assert_close(moved, torch.conv2d(tangent, weight, None, *steps))


def test_many_small_images_in_single_precision_are_a_product(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = []
    monkeypatch.setattr(
        convolution, "as_product", lambda *given: seen.append(len(given[0])) or as_product(*given)
    )
    weight, convolve = torch.randn(8, 8, 3, 3), convolution.convolution(torch.conv2d)
    with using(convolves_by_product=True):
        for count, side in ((300, 4), (200, 4), (300, 5)):
            x = torch.randn(count, 8, side, side)
            plain = torch.conv2d(x, weight, padding=1)
            torch.testing.assert_close(convolve(x, weight, None, 1, 1), plain)
    assert seen == [300]


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", CASES)
def test_on_a_gpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolution, "_COLUMNS", 1 << 14)
    plain, given = arguments(name, channels=64, outputs=64)
    moved = [item.cuda() if isinstance(item, Tensor) else item for item in given]
    assert_close(convolution.convolution(plain)(*moved).cpu(), plain(*given))


# -- bounds -----------------------------------------------------------------------------------


def test_bounds_of_a_matrix_do_not_depend_on_its_parts() -> None:
    program = capture(nn.Linear(30, 50).double(), (30,))
    size = numbers(1, 30).abs()
    live = {program.input_name: Bound(size, EPS * size)}
    whole = program.bounds(0, live)[program.output_name]
    with using(moduli=100):
        parts = program.bounds(0, live)[program.output_name]
    torch.testing.assert_close(parts, whole, rtol=10 * EPS, atol=0)
    weight, bias = (item for item in program.stages[0].steps[0].args[1:])
    torch.testing.assert_close(whole.magnitude, size @ weight.abs().T + bias.abs())
    error = (live[program.input_name].error.square() @ weight.square().T).sqrt()
    torch.testing.assert_close(whole.error, error + EPS * whole.magnitude)


# -- networks ---------------------------------------------------------------------------------


def vgg(classes: int = 3) -> nn.Sequential:
    """The shape of a VGG, with few channels, for 16 x 16 pixels."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for inputs, outputs, pooled in ((3, 4, True), (4, 6, False), (6, 6, True), (6, 8, True)):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] if pooled else []
    layers += [nn.Flatten(), nn.Linear(32, 16), nn.ReLU(), nn.Dropout(), nn.Linear(16, classes)]
    model = nn.Sequential(*layers).double().eval()
    for module in model:
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
    return model


def around(side: float) -> sc.Domain:
    return sc.Domain.around(numbers(3, 16, 16, seed=1), side=side, seed=1)


@pytest.mark.slow
def test_cells_of_a_small_vgg_are_those_of_the_oracle() -> None:
    model, domain = vgg(), around(0.15)
    part = sc.partition(model, domain, progress=False)
    assert len(part) > 10
    # Pools have borders of their own here.
    assert {part.layers[op] for op in part.mesh.edge_layer.unique().tolist() if op >= 0} >= {
        "1",
        "7",
    }
    assert part.validate().ok
    assert_same_cells(part, exact_partition(model, domain), atol=ATOL)


@pytest.mark.slow
def test_a_vgg_in_parts_and_as_products(monkeypatch: pytest.MonkeyPatch) -> None:
    model, domain = vgg(), around(2.0)
    plain = sc.partition(model, domain, progress=False)
    monkeypatch.setattr(convolution, "_CACHED", 0)
    parts = sc.partition(model, domain, progress=False)
    assert len(plain) == len(parts) > 500
    assert parts.validate(samples=200).ok
    torch.testing.assert_close(parts.vertices, plain.vertices)


def test_regions_of_a_classifier_with_many_classes() -> None:
    model = vgg(classes=100)
    part = sc.partition(model, around(0.25), progress=False)
    assert part.weight.shape == (len(part), 100, 2)
    assert part.validate().ok
