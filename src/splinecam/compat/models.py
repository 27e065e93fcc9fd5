"""VGG11 and VGG16 for small images: batch-norm, average pooling, and a stride in the first layer.

``splinecam`` takes them as they are, and torchvision's own, with max-pooling, too.
"""

from __future__ import annotations

from typing import Any

from torch import nn

_VGG11 = ((64,), (128,), (256, 256), (512, 512), (512, 512))
_VGG16 = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


def vgg11_bn(
    n_class: int = 200, input_res: int = 64, weights: Any = None, bias: bool = False
) -> nn.Sequential:
    """VGG11 for images of 64 x 64 pixels, with one linear layer at its end.

    weights: torchvision's, as an enum of weights or a dict of tensors, for the convolutions and
    normalisations; None leaves them random. bias: whether convolutions have biases.

    >>> model = vgg11_bn()
    >>> sum(parameter.numel() for parameter in model.parameters())
    9325832
    """
    return _vgg(_VGG11, [nn.Linear(512, n_class)], input_res, weights, bias)


def vgg16_bn(
    n_class: int = 200, input_res: int = 64, weights: Any = None, bias: bool = False
) -> nn.Sequential:
    """VGG16 for images of 64 x 64 pixels, with three linear layers at its end; see ``vgg11_bn``.

    >>> model = vgg16_bn()
    >>> sum(parameter.numel() for parameter in model.parameters())
    16921224
    """
    head = [nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512), nn.ReLU()]
    return _vgg(_VGG16, [*head, nn.Linear(512, n_class)], input_res, weights, bias)


def _vgg(
    blocks: tuple[tuple[int, ...], ...],
    head: list[nn.Module],
    input_res: int,
    weights: Any,
    bias: bool,
) -> nn.Sequential:
    if input_res != 64:
        raise NotImplementedError(f"images of {input_res} pixels: only 64 is supported")
    body: list[nn.Module] = []
    channels = 3
    for block in blocks:
        for width in block:
            stride = 1 if body else 2
            convolution = nn.Conv2d(channels, width, 3, stride, padding=1, bias=bias)
            body += [convolution, nn.BatchNorm2d(width), nn.ReLU()]
            channels = width
        body.append(nn.AvgPool2d(2))
    model = nn.Sequential(*body, nn.Flatten(), *head)
    if weights is not None:  # of torchvision's ``features``; linear layers have other sizes
        given = getattr(weights, "get_state_dict", lambda: weights)()
        named = {name.removeprefix("features."): value for name, value in given.items()}
        own = model.state_dict()
        model.load_state_dict({name: named.get(name, value) for name, value in own.items()})
    return model
