"""The code of the README and of the pages of the documentation runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import matplotlib
import pytest

ROOT = Path(__file__).parents[1]


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.S)


BLOCKS = blocks("README.md")


def test_there_is_code():
    assert BLOCKS


def test_the_page_on_analysis_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys):
    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {}
    for code in blocks("docs/analysis.md"):
        exec(compile(code, "docs/analysis.md", "exec"), scope)
    assert scope["stats"]["NR"] == len(scope["part"])
    assert "Boundary(" in capsys.readouterr().out


@pytest.mark.parametrize("code", BLOCKS)
def test_code_runs(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})
    assert "Partition(" in capsys.readouterr().out
    assert (tmp_path / "regions.png").stat().st_size > 10_000
