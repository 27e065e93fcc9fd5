"""One file holds the viewer and its answers, allows nothing else, and is never blank."""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import splinecam as sc
from splinecam.viewer.container import Message, deflated, key_of
from splinecam.viewer.page import asset, page_of
from viewer_messages import unarchive, unpack


class Reader(HTMLParser):
    """What an HTML parser makes of a page: elements with their texts and attributes."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        about = dict(attrs)
        self.found.append((tag, about))
        self._now = f"{tag}#{about['id']}" if "id" in about else tag

    def handle_data(self, data: str) -> None:
        place = getattr(self, "_now", "")
        self.texts[place] = self.texts.get(place, "") + data


def answers_of(page: bytes) -> dict[str, Message]:
    text = re.search(rb'id="splinecam-data">([^<]*)<', page)
    assert text is not None
    data = zlib.decompress(base64.b64decode(text[1]))
    return {key: unpack(answer) for key, answer in unarchive(data).items()}


def written(subject: Any, **options: Any) -> tuple[bytes, dict[str, Message]]:
    file = BytesIO()
    sc.to_html(subject, file, **options)
    return file.getvalue(), answers_of(file.getvalue())


def partition_of(outputs: int, seed: int = 0, **options: Any) -> sc.Partition:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, outputs)).double()
    return sc.partition(model, sc.Domain.box(-1, 1), progress=False, **options)


def test_a_file_holds_all_answers(tmp_path: Path) -> None:
    part = partition_of(3)
    part.to_html(tmp_path / "regions.html", title="Ünïcode", color="area")
    page = (tmp_path / "regions.html").read_bytes()
    answers = answers_of(page)
    scene = answers[key_of({"ask": "scene"})].message
    assert scene["title"] == "Ünïcode"
    assert not scene["live"]
    assert scene["state"]["color"] == "area"
    mesh = answers[key_of({"ask": "mesh", "pane": 0, "frame": 0})]
    assert mesh.message["regionCount"] == len(part)
    assert np.array_equal(mesh.arrays["values"], part.values)
    assert np.array_equal(mesh.arrays["corners"], part.mesh.corners)
    for choice in scene["panes"][0]["colorings"]:
        for output in (None, 0, 1, 2) if choice["byOutput"] else (None,):
            request = {"ask": "coloring", "mesh": "0/0", "name": choice["name"], "output": output}
            assert answers[key_of(request)].message["kind"] == "coloring"
    assert "Ünïcode" in page.decode()


def test_the_policy_allows_the_viewer_and_nothing_else() -> None:
    page = written(partition_of(1))[0].decode()
    read = Reader(page)
    policy = next(a["content"] for _, a in read.found if "http-equiv" in a)
    assert policy is not None
    assert "default-src 'none'" in policy
    for tag in ("script", "style"):
        text = re.search(rf"<{tag}(?: type=module)?>(.*?)</{tag}>", page, re.DOTALL)
        assert text is not None
        digest = base64.b64encode(hashlib.sha256(text[1].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert not re.search(r"<(link|iframe|img|object)\b", page)
    assert not re.search(r"<script[^>]*\bsrc=", page)
    sources = re.findall(r"""https?://[^\s"'`)]+""", page)
    assert all(each.startswith("http://www.w3.org/") for each in sources)  # names, not addresses


@pytest.mark.parametrize(
    "hostile",
    [
        "</script><img src=x onerror=alert(1)>",
        "</title><script>alert(1)</script>",
        "{0}\ud800\0<!--",
    ],
)
def test_texts_cannot_become_elements(hostile: str) -> None:
    part = partition_of(2, names=[hostile, "b"])
    colors = {hostile: part.areas}
    page, answers = written(part, title=hostile, colors=colors, frames=[hostile])
    tags = [tag for tag, _ in Reader(page.decode()).found]
    assert tags.count("script") == 2
    assert tags.count("img") == 0
    scene = answers[key_of({"ask": "scene"})].message
    assert scene["title"] == hostile
    assert scene["panes"][0]["classes"][0]["name"] == hostile
    assert hostile in [each["name"] for each in scene["panes"][0]["colorings"]]


def test_the_text_comes_first() -> None:
    page = page_of("t", b"").decode()
    assert page.index("could not start") < min(page.index(f"<{tag}") for tag in ("title", "style"))
    assert page.index("type=module") < page.index('splinecam-data">')
    assert asset("viewer.js").count("</script") == 0 or "<\\/script" in page


def test_several_frames_and_panes() -> None:
    parts = [partition_of(2, seed) for seed in range(3)]
    _, answers = written(parts, frames=["a", "b", "c"], color="class")
    scene = answers[key_of({"ask": "scene"})].message
    assert scene["panes"][0]["frames"] == ["a", "b", "c"]
    for frame, part in enumerate(parts):
        mesh = answers[key_of({"ask": "mesh", "pane": 0, "frame": frame})]
        assert mesh.message["regionCount"] == len(part)
        request = {"ask": "coloring", "mesh": f"0/{frame}", "name": "class", "output": None}
        assert answers[key_of(request)].message["typical"] > 0
    _, answers = written((parts[0], parts[1]))
    assert len(answers[key_of({"ask": "scene"})].message["panes"]) == 2
    assert key_of({"ask": "mesh", "pane": 1, "frame": 0}) in answers


def test_chosen_colorings() -> None:
    part = partition_of(2)
    _, answers = written(part, colorings=["slope", "perimeter"], color="area")
    scene = answers[key_of({"ask": "scene"})].message
    names = [each["name"] for each in scene["panes"][0]["colorings"]]
    assert names == ["slope", "area", "perimeter"]
    with pytest.raises(ValueError, match="no colouring 'cake'"):
        written(part, colorings=["cake"])
    with pytest.raises(TypeError, match="list of names"):
        written(part, colorings="class")


def test_images_have_gradients() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.ReLU(), nn.Linear(6, 3))
    images = torch.rand(3, 1, 4, 4)
    part = sc.partition(model, sc.Domain.through(*images), progress=False)
    _, answers = written(part, points=images, images=True, anchors=images)
    mesh = answers[key_of({"ask": "mesh", "pane": 0, "frame": 0})]
    assert mesh.arrays["gradients"].shape == (len(part), 16)
    _, answers = written(part, gradients=False)
    mesh = answers[key_of({"ask": "mesh", "pane": 0, "frame": 0})]
    assert "gradients" not in mesh.arrays


def test_loaded_partitions_have_no_network(tmp_path: Path) -> None:
    partition_of(3).save(tmp_path / "p.npz")
    page, answers = written(sc.load(tmp_path / "p.npz"))
    assert b"could not start" in page
    assert key_of({"ask": "mesh", "pane": 0, "frame": 0}) in answers


@pytest.mark.slow
def test_odd_partitions() -> None:
    for part in (
        sc.partition(nn.Linear(2, 1), sc.Domain.box(-1, 1), progress=False),
        sc.partition(nn.Linear(2, 100_000), sc.Domain.box(-1, 1), progress=False),
        sc.partition(nn.Sequential(nn.Linear(2, 1), nn.Sigmoid()), sc.Domain.box(0, 1)),
    ):
        page, _ = written(part, points=torch.tensor([[float("nan"), 0.0], [0.5, 0.5]]))
        assert len(page) < 3_000_000


def test_errors_come_before_the_file(tmp_path: Path) -> None:
    part, path = partition_of(2), tmp_path / "a.html"
    with pytest.raises(ValueError, match="labels"):
        part.to_html(path, labels=[1])
    with pytest.raises(TypeError, match="no option 'colour'"):
        part.to_html(path, colour="class")
    with pytest.raises(sc.SplineCamError, match="cake"):
        part.to_html(path, color="cake")
    with pytest.raises(sc.FileError, match="no folder"):
        part.to_html(tmp_path / "none" / "a.html")
    assert not list(tmp_path.iterdir())


def test_a_model_and_its_domain() -> None:
    torch.manual_seed(0)
    model, domain = nn.Sequential(nn.Linear(2, 9), nn.ReLU(), nn.Linear(9, 2)), sc.Domain.box(0, 1)
    _, answers = written((model, domain))
    assert answers[key_of({"ask": "mesh", "pane": 0, "frame": 0})].message["regionCount"] > 1
    with pytest.raises(sc.SplineCamError, match="too large for a file: more than 2 regions"):
        written((model, domain), max_regions=2)


@pytest.mark.parametrize("size", [0, 1, 99, 100, 101, 1000])
def test_deflated_blocks_are_one_stream(size: int) -> None:
    data = bytes(range(256)) * 4
    assert zlib.decompress(deflated(data[:size], block=100)) == data[:size]
