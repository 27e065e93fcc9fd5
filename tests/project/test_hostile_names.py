"""Names of users and files in everything that shows them: no markup, no formulas, no commands."""

import io
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from torch import nn

import splinecam as sc
from splinecam.cli import main
from splinecam.plot import plot_histograms
from splinecam.plot.figures import written
from splinecam.training.grid import Grid
from splinecam.training.movies import Movie

HOSTILE = (
    "\"'><img src=x onerror=alert(1)></script></style><!-- $\\frac{$ \\$ ${} | `x` [a](b) & {0} %s"
)
CONTROL = "\x1b[2J\x07\x9b31m\r\u202e"
SHORT = "<b onload=x>$\\a{$"  # as wide as a picture has room for
ATTRIBUTES = {"onerror", "onload", "onclick"}


class Tags(HTMLParser):
    """The elements and attributes of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]


def is_plain(text: str, elements: str) -> bool:
    """Whether HTML has these elements only, none of which runs code."""
    found = Tags(text)
    return set(found.tags) <= set(elements.split()) and not ATTRIBUTES & set(found.attributes)


def network(name: str = HOSTILE) -> nn.Sequential:
    torch.manual_seed(0)
    layers = {"first": nn.Linear(2, 6), name: nn.ReLU(), "last": nn.Linear(6, 3)}
    made = nn.Sequential()
    for name, layer in layers.items():
        made.add_module(name, layer)
    return made


NAMES = [f"{HOSTILE}{k}{CONTROL}" for k in range(3)]


@pytest.fixture(scope="module")
def part() -> sc.Partition:
    return sc.partition(network(), sc.Domain.box(-2, 2), names=NAMES, progress=False)


@pytest.fixture(scope="module")
def small() -> sc.Partition:
    names = [f"{SHORT}{k}" for k in range(3)]
    return sc.partition(network(SHORT), sc.Domain.box(-2, 2), names=names, progress=False)


CARDS: dict[str, Callable[[sc.Partition], Any]] = {
    "partition": lambda part: part,
    "region": lambda part: part[0],
    "boundary": lambda part: part.decision_boundary(),
    "units": lambda part: part.neurons(),
    "classes": lambda part: part.class_regions(),
    "statistics": lambda part: part.stats(),
    "counts": lambda part: part.counts(),
    "topology": lambda part: part.topology(),
    "comparison": lambda part: sc.compare({HOSTILE: part, "b": part}),
    "difference": lambda part: sc.difference(
        network(), network(), part.domain, names=NAMES, progress=False
    ),
    "domain": lambda part: part.domain,
    "grid": lambda part: grid(),
}


def grid(name: str = HOSTILE, groups: Sequence[str] = NAMES[:2]) -> Grid:
    numbers = {name: np.ones((2, 2)), "NR": np.ones((2, 2))}
    return Grid((name, "b"), dict.fromkeys(groups, 1), numbers)


@pytest.mark.few(2)
@pytest.mark.parametrize("made", CARDS.values(), ids=CARDS)
def test_cards_of_notebooks(made: Callable[[sc.Partition], Any], part: sc.Partition) -> None:
    text = made(part)._repr_html_()
    assert text
    assert is_plain(text, "div table tr td th img span svg polygon b br tbody thead")


@pytest.mark.parametrize("kind", [".gif", ".mp4", ".html"])
def test_movies_in_notebooks(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f'i" onload="alert(1)"><script>{kind}'.replace("/", "")
    path.write_bytes(b"<p>")
    text = Movie(path, 1, (4, 4))._repr_html_()
    assert is_plain(text, "img iframe video source")


def test_pages(part: sc.Partition, tmp_path: Path) -> None:
    page = io.BytesIO()
    part.to_html(page, title=HOSTILE)
    text = page.getvalue().decode()
    assert is_plain(
        text, "html head meta title style body main h1 h2 section noscript p div script link"
    )
    sc.movie({HOSTILE: part, "b": part}, tmp_path / "a.html", progress=False)
    text = (tmp_path / "a.html").read_text()
    assert is_plain(text, "html head meta title style body main h1 h2 p div script")


def test_markdown_and_latex(part: sc.Partition) -> None:
    text = grid().to_markdown()
    assert not re.search(r"<\w|(?<!\\)[\[`*]|<!--", text)
    head, _, *rows = text.splitlines()
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in (head, *rows)}) == 1
    assert not re.search(r"<\w|<!--", sc.compare({HOSTILE: part, "b": part}).to_markdown())
    assert not re.search(
        r"(?<!\\)[$%&#]", grid().to_latex().replace(r"$\pm$", "").replace(" & ", "")
    )


PICTURES: dict[str, Callable[[sc.Partition], Any]] = {
    "classes": lambda part: part.plot(color="class"),
    "layers": lambda part: part.plot(color="layer"),
    "panels": lambda part: part.plot.layers(),
    "boundary": lambda part: part.decision_boundary().plot(each=True),
    "histograms": lambda part: plot_histograms({SHORT: part, "b": part}),
    "path": lambda part: sc.along(
        network(), sc.Domain.segment([-1, -1], [1, 1]), names=part.names, progress=False
    ).plot(),
    "grid": lambda part: grid(SHORT, [SHORT, "b"]).plot(),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("drawn", PICTURES.values(), ids=PICTURES)
def test_pictures(drawn: Callable[[sc.Partition], Any], small: sc.Partition) -> None:
    made = drawn(small)
    figure = getattr(made, "figure", made)
    file = io.BytesIO()
    with plt.rc_context({"svg.fonttype": "none"}):
        figure.savefig(file, format="svg")
    plt.close("all")
    tags = {element.tag.rpartition("}")[2] for element in ET.fromstring(file.getvalue()).iter()}
    assert not tags & {"img", "script"}
    assert b"onload=x" in file.getvalue().replace(b" ", b"")


def test_formulas_that_cannot_be_read_are_shown_letter_by_letter() -> None:
    figure = plt.figure()
    assert written(r"$\alpha_1$") == r"$\alpha_1$"
    text = figure.text(0, 0, written(r"a $\frac{$ \$ $x$"))
    figure.canvas.draw()
    assert text.get_window_extent().width > 0
    plt.close(figure)


def test_the_command_line(small: sc.Partition, tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / f"a{CONTROL}.npz"
    small.save(path)
    assert main(["stats", str(path)]) == 0
    assert main(["stats", f"{path}.none"]) != 0
    assert main(["plot", str(path), "--out", f"{path}.png"]) == 0
    found = capsys.readouterr()
    assert "\\x1b[2J" in found.err
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", found.out + found.err)
