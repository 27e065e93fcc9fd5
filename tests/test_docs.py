"""The code of the README and of the documentation runs as it stands, and the site builds."""

from __future__ import annotations

import ast
import html
import importlib.util
import inspect
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

import pytest

import splinecam as sc

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


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
    assert {name for name in sc.__all__ if name != "nn"} <= documented()
    assert set(sc.nn.__all__) <= documented()
    public = {name for name in vars(sc.Partition) if not name.startswith("_")}
    assert {f"Partition.{name}" for name in public} <= documented()


def test_the_reference_has_every_plot_function():
    functions = {name for name in sc.plot.__all__ if inspect.isfunction(getattr(sc.plot, name))}
    known = {name.rpartition(".")[2] for name in documented()}
    assert functions - {"require_matplotlib"} <= known


def test_the_site_builds_without_warnings(tmp_path: Path):
    pytest.importorskip("furo")
    pytest.importorskip("myst_parser")
    options = ["-q", "-n", "-W", "--keep-going", "-d", str(tmp_path / "trees")]
    command = [sys.executable, "-m", "sphinx", *options, str(DOCS), str(tmp_path / "html")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    site = tmp_path / "html"
    assert broken_links(site) == []
    home = (site / "index.html").read_text()
    assert not re.search(r'<(script|link)[^>]*(src|href)="https?:', home)  # it reads well offline
    assert "<math" in (site / "mathematics.html").read_text()


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


def modules_of_the_map() -> list[str]:
    table = (ROOT / "CONTRIBUTING.md").read_text().split("| module |")[1].split("\n\n")[0]
    cells = re.findall(r"^\| (`.*?) \|", table, re.M)
    return [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]


def imports(path: Path) -> set[str]:
    """The modules of splinecam that a file imports when it is imported itself."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("splinecam"):
            _, _, inner = str(node.module).partition(".")
            found |= {inner.split(".")[0]} if inner else {alias.name for alias in node.names}
    return found


def test_the_map_of_the_code_has_every_module_in_the_order_of_imports():
    source = ROOT / "src" / "splinecam"
    names = modules_of_the_map()
    there = {path.stem for path in source.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert set(names) == {name for name in there if not name.startswith("__")} - {"py"}
    for k, name in enumerate(names):
        files = [source / f"{name}.py"]
        if not files[0].exists():
            files = sorted((source / name).glob("*.py"))
        used = {inner for path in files for inner in imports(path)} & set(names)
        assert used <= {*names[:k], name}, f"{name} imports what stands below it"
