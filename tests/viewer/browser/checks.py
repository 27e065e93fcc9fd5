"""What the browser shows, compared with the partition and the model."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np
import torch
from PIL import Image

import splinecam as sc
from viewer.browser.driver import Driver

Pixel = tuple[float, float]


def hover_pixels(driver: Driver, part: sc.Partition, count: int, pane: int = 0) -> list[Pixel]:
    """Random pixels of the canvas at which the domain is seen."""
    corners = part.domain.corners
    share = torch.distributions.Dirichlet(torch.full((len(corners),), 0.7).double())
    places = (share.sample(torch.Size([count])) @ corners).tolist()
    found = driver.ask("x[0].map((each) => v.camera(x[1]).toScreen(each))", [places, pane])
    return [(x, y) for x, y in found]


def differences(found: list[Any], part: sc.Partition, model: torch.nn.Module) -> list[Any]:
    """What was found at pixels, and is not what the partition and the model say."""
    hits = [each for each in found if each is not None]
    at = torch.tensor([each["at"] for each in hits], dtype=torch.float64)
    inputs = part.domain.embed(at)
    region = part.locate(inputs).tolist()
    with torch.no_grad():
        values = model(inputs).double().flatten(1)
    wrong: list[Any] = [None] * (len(found) - len(hits))
    for hit, where, known in zip(hits, region, values, strict=True):
        shown = torch.tensor(hit["values"], dtype=torch.float64)
        expected = known[torch.tensor(hit["outputs"])]
        same = hit["region"] == where and torch.allclose(shown, expected, rtol=1e-4, atol=1e-5)
        if not same or hit["winner"] not in (None, int(known.argmax())):
            wrong.append({**hit, "expected": where, "known": known.tolist()})
    return wrong


def pixels_of(png: bytes) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The pixels (h, w, 3) of a picture."""
    return np.asarray(Image.open(BytesIO(png)).convert("RGB"))


def is_blank(png: bytes) -> bool:
    """Whether a picture has hardly any content."""
    colors = np.unique(pixels_of(png).reshape(-1, 3), axis=0)
    return len(colors) < 8
