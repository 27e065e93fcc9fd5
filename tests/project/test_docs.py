"""The code of the README and of the documentation runs as it stands, and the site builds."""

from __future__ import annotations

import dataclasses
import html
import importlib.util
import inspect
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

import pytest

import splinecam as sc

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SOURCE = ROOT / "src" / "splinecam"


def script(path: Path) -> ModuleType:
    found = importlib.util.spec_from_file_location(path.stem, path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[path.stem] = module
    found.loader.exec_module(module)
    return module


pages = script(DOCS / "pages.py")
PAGES = [str(page.relative_to(ROOT)) for page in pages.all_pages()]


def words(text: str) -> list[str]:
    """What is printed but for its numbers, which depend on the machine's rounding."""
    return re.sub(r"-?\d[\d,]*(\.\d*)?(e[+-]?\d+)?", "#", text).split()


def test_pages_are_found():
    assert {"README.md", "docs/tutorial.md", "docs/analysis.md"} <= set(PAGES)


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_the_code_of_a_page_runs(name: str, tmp_path: Path):
    page = ROOT / name
    printed = pages.run(page, tmp_path)
    for block, output in zip(pages.blocks(page), printed, strict=True):
        if block.printed is not None:
            assert words(output) == words(block.printed), f"{name}:{block.line}"
    for picture in pages.pictures(page):
        assert (tmp_path / picture).stat().st_size > 5_000
        assert (pages.PICTURES / picture).exists()


def test_no_picture_is_left_over():
    shown = {picture for page in pages.all_pages() for picture in pages.pictures(page)}
    assert {path.name for path in pages.PICTURES.iterdir()} == shown


def documented() -> set[str]:
    text = "\n".join(path.read_text() for path in (DOCS / "api").glob("*.rst"))
    return set(re.findall(r"^\.\. auto\w+:: (?:splinecam\.)?(\S+)", text, re.M))


def test_the_reference_has_every_public_name():
    assert {*sc.__all__} - {"nn", "results"} <= documented()
    assert {f"results.{name}" for name in sc.results.__all__} <= documented()
    assert set(sc.nn.__all__) <= documented()
    public = {name for name in dir(sc.Partition) if not name.startswith("_")}
    public -= {*dir(Sequence)}
    fields = {field.name for field in dataclasses.fields(sc.Partition)}  # in the class's docstring
    assert {f"Partition.{name}" for name in public - fields} <= documented()


def test_the_reference_has_every_plot_function():
    functions = {name for name in sc.plot.__all__ if inspect.isfunction(getattr(sc.plot, name))}
    known = {name.rpartition(".")[2] for name in documented()}
    assert functions - {"require_matplotlib"} <= known


@pytest.mark.slow
def test_the_site_builds_without_warnings(tmp_path: Path):
    pytest.importorskip("furo")
    pytest.importorskip("myst_parser")
    live = tmp_path / "html" / "live"
    live.mkdir(parents=True)
    for name, write in script(DOCS / "live_pages.py").PAGES.items():
        if name != "lines":  # which the build writes; a process that has torch is quicker
            write(live / f"{name}.html")
    options = ["-q", "-n", "-W", "--keep-going", "-t", "tests", "-d", str(tmp_path / "trees")]
    command = [sys.executable, "-m", "sphinx", *options, str(DOCS), str(tmp_path / "html")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    site = tmp_path / "html"
    assert broken_links(site) == []
    home = (site / "index.html").read_text()
    assert not re.search(r'<(script|link)[^>]*(src|href)="https?:', home)  # it reads well offline
    assert re.search(r'<script src="_static/copybutton.js', home)
    assert "<math" in (site / "mathematics.html").read_text()
    reference = "".join(path.read_text() for path in (site / "api").glob("*.html"))
    assert undescribed(reference) == []
    for project, name in (("docs.python.org/3", "str"), ("docs.pytorch.org", "torch.Tensor")):
        assert re.search(rf'href="https://{project}[^"]*#{name}"', reference)
    assert re.search(r'href="https://matplotlib.org/stable/[^"]*#matplotlib.axes.Axes"', reference)


_OBJECT = re.compile(r'<dt class="sig[^"]*"[^>]*id="(splinecam[^"]+)"(.*?)</dt>\s*<dd>', re.S)
_PARAMETER = re.compile(r'<em class="sig-param">(.*?)</em>', re.S)
_LISTED = re.compile(r"<(?:li|dd[^>]*)><p><strong>(.*?)</strong>(.*?)</p>", re.S)


def undescribed(reference: str) -> list[str]:
    """Parameters of functions that are not listed below the signature, or without a word."""
    missing = []
    found = [*_OBJECT.finditer(reference)]
    assert len(found) > 100
    for this, following in zip(found, [*found[1:], None], strict=True):
        body = reference[this.end() : following.start() if following else None]
        listed = {plain(name): "–" in plain(rest) for name, rest in _LISTED.findall(body)}
        for parameter in map(plain, _PARAMETER.findall(this[2])):
            name = re.split("[=:]", parameter)[0].strip()
            if name not in ("*", "/") and not listed.get(name):
                missing.append(f"{this[1]}: {name}")
    return missing


def plain(markup: str) -> str:
    return html.unescape(re.sub("<[^>]+>", "", markup))


@pytest.mark.slow
def test_sentences_that_begin_with_a_name_become_a_list(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("sphinx")
    monkeypatch.syspath_prepend(str(DOCS / "extensions"))
    extension = script(DOCS / "extensions" / "docstrings.py")

    def draw(part: object, x: int, *, low: float = 0.0, high: float = 1.0, **style: str) -> None:
        pass

    told = [
        "Draw something: a line.",
        "",
        "Some words first. x: how many; that is",
        "all. low, high: the ends. Colour: not a name.",
        "",
        ">>> draw(1)  # low: 3",
        "",
    ]
    lines = list(told)
    extension.docstring(None, "method", "sc.Thing.draw", draw, None, lines)
    assert [line for line in lines if line] == [
        "Draw something: a line.",
        "Some words first.",
        ":param x: how many; that is all",
        ":type x: int",
        ":param low: the ends. Colour: not a name",
        ":type low: float",
        ":param high: see ``low``",
        ":type high: float",
        r":param \*\*style: further options, which are passed on",
        r":type \*\*style: str",
        ">>> draw(1)  # low: 3",
    ]
    shown, _ = extension.signature(None, "method", "draw", draw, None, "(...)", "None")
    assert shown == "(x, *, low=0.0, high=1.0, **style)"
    numpydoc = ["Draw.", "", "Parameters", "----------", "x : int", "    How many.", ""]
    extension.docstring(None, "function", "draw", draw, None, numpydoc)
    assert ":param x: How many." in numpydoc
    fields = ["Some pieces.", "", "labels: (F,) numbers; areas: (P,) of the pieces.", ""]
    extension.docstring(None, "class", "Merged", sc.Domain.__class__, None, fields)
    assert [line for line in fields if line][1:] == [
        ":ivar labels: (F,) numbers",
        ":ivar areas: (P,) of the pieces",
    ]


def test_inventories_are_stored_and_in_order():
    paths = sorted((DOCS / "inventories").glob("*.inv"))
    names = {path.stem for path in paths}
    assert names == {"python", "numpy", "torch", "matplotlib", "pandas"}
    for path in paths:
        head, *lines = path.read_text().splitlines()
        assert head == "# Sphinx inventory version 1"
        assert lines[0] == f"# Project: {path.stem}"
        assert lines[2:]
        assert all(len(line.split()) == 3 for line in lines[2:]), path.name


def test_code_fits_on_the_page():
    """Lines of 100 characters fit at 1280 pixels; what is printed is wrapped."""
    texts = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "benchmarks/README.md")]
    for path in [*texts, *DOCS.rglob("*.md")]:
        for kind, code in re.findall(r"^```([^\n`]*)\n(.*?)^```$", path.read_text(), re.M | re.S):
            longest = max(map(len, code.splitlines()), default=0)
            assert kind == "text" or longest <= 100, f"{path.name}: {longest}"


def broken_links(site: Path) -> list[str]:
    """Links of built pages to files that are not there."""
    broken = []
    for page in site.rglob("*.html"):
        for link in set(re.findall(r'(?:src|href)="([^"]+)"', page.read_text())):
            parts = urlsplit(html.unescape(link))
            target = page.parent / unquote(parts.path)
            if not parts.scheme and parts.path and not target.exists():
                broken.append(f"{page.relative_to(site)}: {link}")
    return broken


def test_every_image_of_the_drawings_is_used():
    text = "\n".join(path.read_text() for path in DOCS.rglob("*.md"))
    drawn = {path.name for path in (DOCS / "img").glob("math-*.svg")}
    assert drawn
    assert {name for name in drawn if name not in text} == set()


def test_files_and_functions_that_the_pages_name_are_there():
    """A page names ``folder/file.py`` or ``folder/file.py::function`` below src/splinecam."""
    named = set()
    for path in [ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")]:
        named |= {*re.findall(r"`(\w+(?:/\w+)+\.(?:py|cu))(?:::(\w+))?`", path.read_text())}
    assert len(named) > 30
    for file, name in named:
        found = next((place / file for place in (SOURCE, ROOT) if (place / file).exists()), None)
        assert found is not None, file
        assert not name or re.search(rf"^(def|class) {name}\b", found.read_text(), re.M), name
