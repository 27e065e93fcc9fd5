"""The command ``splinecam view``: what it shows, and what it says when something is wrong."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import splinecam as sc
from splinecam.cli import main
from splinecam.viewer import viewer as viewing
from splinecam.viewer.session import Session

CODE = """
import torch
from torch import nn

def build(width=8):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, width), nn.ReLU(), nn.Linear(width, 3))

def image():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.ReLU(), nn.Linear(8, 2))

class Two(nn.Module):
    def forward(self, x):
        return {"first": x.sum(1, keepdim=True), "second": x.relu()}
"""


@dataclass
class Shown:
    """What the command printed and opened."""

    code: int
    out: str
    err: str
    opened: list[tuple[Session, dict[str, Any]]]

    @property
    def session(self) -> Session:
        ((session, _),) = self.opened
        return session


Show = Callable[[str], Shown]


@pytest.fixture
def show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Show:
    """Runs the command in a folder with a network, samples, a saved partition and a run."""
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(CODE)
    generator = np.random.default_rng(0)
    np.savez("digits.npz", x=generator.random((5, 1, 6, 6)), y=np.arange(5) % 2)
    np.save("points.npy", generator.random((4, 2)))
    np.save("labels.npy", np.array([0, 1, 2, 0]))
    part = sc.partition(torch.nn.Linear(2, 3), sc.Domain.box(-1, 1), progress=False)
    part.save("saved.npz")
    watch = sc.watch(torch.nn.Linear(2, 3), sc.Domain.box(-1, 1), every=1, store="run")
    watch.step()

    def call(words: str) -> Shown:
        opened: list[tuple[Session, dict[str, Any]]] = []
        monkeypatch.setattr(viewing, "opened", lambda session, **how: opened.append((session, how)))
        code = main(["view", *shlex.split(words)])
        return Shown(code, *capsys.readouterr(), opened)

    return call


def test_a_network(show: Show) -> None:
    shown = show("net.py:build --arg width=4 --box -1 1 --color slope --output 1 --port 8123")
    assert (shown.code, shown.out) == (0, "")
    ((session, how),) = shown.opened
    assert how == {"door": "browser", "browser": True, "port": 8123, "block": True}
    (pane,) = session.panes
    assert pane.frames.network(0).model[0].out_features == 4  # type: ignore[index]
    assert pane.domain == sc.Domain.box(-1, 1)
    assert (session.options.color, session.options.output) == ("slope", 1)


def test_several_networks_and_a_saved_partition(show: Show) -> None:
    shown = show("net.py:build saved.npz net.py:build --box -1 1 --no-browser --quiet")
    ((session, how),) = shown.opened
    assert how == {"door": "browser", "browser": False, "port": 0, "block": True}
    assert shown.err == ""
    assert [pane.frames.partition(0) is None for pane in session.panes] == [True, False, True]


def test_a_run(show: Show) -> None:
    session = show("run --title Training").session
    assert session.options.title == "Training"
    (pane,) = session.panes
    assert pane.frames.grows
    assert pane.labels == ["step 0"]


def test_images_are_anchors_and_points(show: Show) -> None:
    shown = show("net.py:image --through digits.npz --key x --pick 0 2 4 --max-regions 1k")
    options = shown.session.options
    assert options.anchors.shape == options.points.shape == (3, 1, 6, 6)
    assert options.images is True


def test_points_and_labels(show: Show) -> None:
    options = show("saved.npz --points points.npy --labels labels.npy").session.options
    assert options.points.shape == (4, 2)
    assert options.labels.tolist() == [0, 1, 2, 0]
    around = "net.py:image --around digits.npz --key x"
    shown = show(f"{around} --points digits.npz --labels digits.npz --labels-key y")
    options = shown.session.options
    assert options.anchors is None
    assert options.points.shape == (5, 1, 6, 6)
    assert options.labels.tolist() == [0, 1, 0, 1, 0]


@pytest.mark.slow
def test_one_of_several_results(show: Show) -> None:
    (pane,) = show("net.py:Two --result second --box -1 1").session.panes
    assert pane.frames.network(0).output == "second"
    assert show("net.py:Two --box -1 1").code == 1


def test_a_saved_partition_with_its_network(show: Show) -> None:
    assert main(shlex.split("partition net.py:build --box -1 1 --out out --no-plot --quiet")) == 0
    (pane,) = show("out/partition.npz --model net.py:build").session.panes
    assert pane.live
    wrong = show("out/partition.npz --model net.py:build --arg width=9")
    assert (wrong.code, wrong.opened) == (1, [])
    assert "not the one that was partitioned" in wrong.err


def test_one_file(show: Show) -> None:
    words = "net.py:build --box -1 1 --color slope --html pages/regions.html"
    shown = show(words)
    assert (shown.code, shown.opened) == (0, [])
    assert shown.out.startswith(f"Written to {Path('pages/regions.html')} in ")
    assert b'id="splinecam-data"' in Path("pages/regions.html").read_bytes()
    again = show(words)
    assert (again.code, "Say --force to overwrite it" in again.err) == (1, True)
    assert show(f"{words} --force").code == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("net.py:build", "Say which of its inputs to show for net.py:build: --box -1 1"),
        ("saved.npz --box -1 1", "A domain is for a network, and none is given"),
        ("nothing.npz --box -1 1", "There is no file nothing.npz"),
        ("nothing.npz", "There is no file nothing.npz"),
        ("net.py:image --box -1 1", "or --through or --around"),
        ("points.npy --box -1 1", "points.npy is"),
        ("digits.npz", "digits.npz is"),
        ("saved.npz --points nothing.npy", "nothing.npy"),
        ("saved.npz --points points.npy --labels digits.npz", "Choose one with --labels-key"),
        (
            "saved.npz --points points.npy --labels digits.npz --labels-key z",
            "digits.npz holds no 'z'",
        ),
        (
            "saved.npz --points points.npy --labels digits.npz --labels-key y",
            "holds 5 labels (shape (5,)) for 4 samples",
        ),
        ("saved.npz --color nice", "There is no colouring 'nice'; choose of"),
        ("saved.npz --output 7", "output is 7; there are 3, numbered from 0"),
    ],
)
def test_what_is_wrong_is_said(show: Show, words: str, message: str) -> None:
    shown = show(words)
    assert (shown.code, shown.opened) == (1, [])
    assert message in shown.err
    assert "unexpected" not in shown.err
