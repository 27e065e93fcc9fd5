"""The pages of the paper's experiments show what the files of their results contain."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from splinecam_paper.experiment import NAMES

PAPER = Path(__file__).parents[1]


def load() -> ModuleType:
    found = importlib.util.spec_from_file_location("paper_pages", PAPER / "pages.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules["paper_pages"] = module
    found.loader.exec_module(module)
    return module


paper_pages = load()
PAGES = paper_pages.pages()
CONTENT = {
    "experiment": "scaling",
    "shows": "time",
    "quick": False,
    "seed": 0,
    "seconds": 3.0,
    "machine": "2 cores",
    "splinecam": "0.1.0",
    "notes": ["A note."],
    "rows": [
        {"what": "regions", "paper": 10, "ours": 12, "comparable": "yes"},
        {"what": "seconds", "paper": 10.0, "ours": 2.0, "comparable": "no", "seconds": 2.0},
    ],
    "numbers": {"all": list(range(50_000)), "few": [1, 2]},
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_shows_the_numbers_and_figures_of_its_results(page: Path) -> None:
    assert paper_pages.with_results(page) == page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\((results/[^)]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).is_file()


@pytest.mark.parametrize("page", PAGES[1:], ids=lambda page: page.stem)
def test_page_has_a_place_for_its_results_and_is_listed(page: Path) -> None:
    assert "<!-- results -->" in page.read_text(encoding="utf-8")
    assert f"({page.name})" in PAGES[0].read_text(encoding="utf-8")


def test_every_experiment_is_on_the_first_page() -> None:
    text = (PAPER.parent / "docs" / "paper" / "index.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in text for name in NAMES)


@pytest.mark.slow
def test_results_become_figures_and_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import Image

    paper = tmp_path / "paper"
    monkeypatch.setattr(paper_pages, "PAPER", paper)
    monkeypatch.setattr(paper_pages, "RESULTS", paper / "results")
    runs = tmp_path / "runs" / "scaling"
    runs.mkdir(parents=True)
    paper.mkdir()
    (runs / "scaling.json").write_text(json.dumps(CONTENT))
    Image.new("RGB", (2000, 900), "red").save(runs / "scaling.png")
    Image.effect_noise((2000, 900), 90).convert("RGB").save(runs / "scaling-regions.png")
    (paper / "scaling.md").write_text("# Scaling\n\n<!-- results -->\n\nThe end.\n")
    (paper / "index.md").write_text("# Paper\n\n<!-- speed -->\n")
    assert paper_pages.refresh(runs.parent) == ["scaling"]
    text = (paper / "scaling.md").read_text()
    assert text.index("results/scaling.png") < text.index("results/scaling-regions.webp")
    assert "A note." in text
    assert text.endswith("<!-- end of results -->\n\nThe end.\n")
    assert "[scaling](scaling.md)" in (paper / "index.md").read_text()
    kept = json.loads((paper / "results" / "scaling.json").read_text())
    assert kept["numbers"] == {"all": "50,000 numbers, left out here", "few": [1, 2]}
    with Image.open(paper / "results" / "scaling.png") as image:
        assert image.width == 1600
        assert image.convert("RGB").getpixel((5, 5)) == (255, 0, 0)
    assert (paper / "results" / "scaling-regions.webp").stat().st_size < 400_000
    paper_pages.refresh(runs.parent)
    assert (paper / "scaling.md").read_text() == text
