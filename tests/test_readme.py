"""The README's code runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)


def test_there_is_code():
    assert BLOCKS


@pytest.mark.parametrize("code", BLOCKS)
def test_code_runs(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})
    assert "Partition(" in capsys.readouterr().out
    assert (tmp_path / "regions.png").stat().st_size > 10_000
