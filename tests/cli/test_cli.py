"""Every command of ``splinecam``, and what it says when something is wrong."""

from __future__ import annotations

import errno
import inspect
import json
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import splinecam as sc
from refinement_cases import eagerly
from splinecam import cli
from splinecam.cli import main
from splinecam.cli.commands import COMMANDS
from splinecam.cli.parser import COLORS, KINDS
from splinecam.cli.pictures import _KINDS
from splinecam.cli.usage import NOT_FOR, parse
from splinecam_check import check

CODE = """
import sys
import torch
from torch import nn

print("hello from the user's code")

def build(width=8, act="relu"):
    torch.manual_seed(0)
    acts = {"relu": nn.ReLU(), "gelu": nn.GELU(), "mixed": nn.Sequential(nn.ReLU(), nn.GELU())}
    return nn.Sequential(
        nn.Linear(2, width), acts[act], nn.Linear(width, width), acts[act], nn.Linear(width, 3)
    )

def image():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(8, 3), nn.Softmax(-1)
    )

class Holder:
    made = build()

ready = build().train()

def wide(width, depth):
    return build(width)

class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = build(), nn.Linear(3, 1)

    def forward(self, x):
        features = self.body(x)
        return {"value": self.head(features), "features": features}

def single():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))

class Typo(nn.Module):
    def forward(self, x):
        return self.missing(x)

class Leaves(nn.Module):
    def forward(self, x):
        return torch.from_numpy(x.numpy())

class Branches(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x

def broken():
    raise ValueError("no such data")

def leaves():
    sys.exit(3)

def number():
    return 3
"""
BOX = ("--box", "-1", "1")


class Evil:
    """An object that writes a file when it is unpickled."""

    def __reduce__(self) -> Any:
        return Path.touch, (Path("evil"),)


def export(model: torch.nn.Module, x: torch.Tensor, path: Path, **batch: Any) -> None:
    shapes = ({0: torch.export.Dim("batch", **batch)},) if batch.pop("any", True) else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(model.eval(), (x,), dynamic_shapes=shapes)
        torch.export.save(program, path)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model in code, exported programs, weights, samples and a saved partition."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "little.py").write_text(CODE)
    space: dict[str, Any] = {}
    exec(CODE, space)
    build, image = space["build"], space["image"]
    torch.save(build().state_dict(), folder / "weights.pt")
    torch.save(
        {"model": {f"module.{k}": v for k, v in build().state_dict().items()}}, folder / "c.pth"
    )
    torch.save(build(4).state_dict(), folder / "narrow.pt")
    np.savez(folder / "weights.npz", **{k: v.numpy() for k, v in build().state_dict().items()})
    torch.save(Evil(), folder / "evil.pt")
    export(image(), torch.zeros(2, 1, 6, 6), folder / "image.pt2")
    export(image(), torch.zeros(1, 1, 6, 6), folder / "fixed.pt2", any=False)
    export(image(), torch.zeros(4, 1, 6, 6), folder / "few.pt2", max=64)
    x = np.random.default_rng(0).random((5, 6, 6), np.float32)
    np.savez(folder / "two.npz", x=x, y=np.arange(5))
    np.save(folder / "images.npy", x[:, None])
    torch.save(torch.from_numpy(x[:, None]), folder / "images.pt")
    x[1, 2, 3] = np.nan
    np.save(folder / "nan.npy", x[:, None])
    np.save(folder / "bent.npy", np.random.default_rng(0).random((4, 1, 6, 6)))
    np.save(folder / "line.npy", np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]))
    np.save(folder / "same.npy", np.ones((3, 2)))
    np.save(folder / "pair.npy", np.array([[0.0, 0.0], [0.0, 0.0], [2.0, 2.0]]))
    (folder / "text.npy").write_text("1, 2\n3, 4\n")
    np.save(folder / "corners.npy", np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]))
    np.save(folder / "objects.npy", np.array([{}], object), allow_pickle=True)
    part = sc.partition(build(), sc.Domain.box(-1, 1), progress=False)
    part.save(folder / "saved.npz")
    (folder / "cut.npz").write_bytes((folder / "saved.npz").read_bytes()[:2000])
    return folder


@pytest.fixture
def here(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the folder, as the current one; what is imported from it is forgotten again."""
    folder = tmp_path / "here"
    shutil.copytree(files, folder)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    known = set(sys.modules)
    yield folder
    for name in [name for name in sys.modules if "little" in name and name not in known]:
        del sys.modules[name]


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(here: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command: its exit code, its results and its messages."""

    def call(*words: str) -> tuple[int, str, str]:
        code = main(words)
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, out, err

    return call


# -- the command itself ---------------------------------------------------------------------------


def test_alone_it_prints_its_help(run: Run) -> None:
    code, out, _ = run()
    assert code == 0
    assert all(f"    {name}" in out for name in COMMANDS)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"splinecam {sc.__version__}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    assert f"splinecam {command}" in capsys.readouterr().out.partition("examples:")[2]


def test_interrupted(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setitem(COMMANDS, "ops", interrupted)
    assert run("ops")[::2] == (130, "\nInterrupted.\n")


def test_errors_on_the_way_out_of_an_interrupt(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: object) -> int:
        try:
            raise KeyboardInterrupt
        finally:
            raise AttributeError("a module that is half imported")

    monkeypatch.setitem(COMMANDS, "ops", fails)
    assert run("ops")[::2] == (130, "\nInterrupted.\n")


def test_interrupted_while_a_model_is_captured(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(torch.export, "export", interrupted)
    monkeypatch.setattr(torch, "_dynamo", None)  # as if it were not imported yet
    code, _, err = run("check", "little.py:Branches", *BOX)
    assert code == 130
    assert "cannot be run" not in err


def test_models_that_fail_keep_the_cause_and_torchs_logs(here: Path) -> None:
    sys.path.insert(0, str(here))
    import little  # type: ignore[import-not-found]

    loggers = [logging.getLogger(name) for name in list(logging.root.manager.loggerDict)]
    before = [list(handler.filters) for logger in loggers for handler in logger.handlers]
    with pytest.raises(sc.CaptureError) as unknown:
        sc.partition(little.Typo(), sc.Domain.box(-1, 1))
    assert isinstance(unknown.value.__cause__, AttributeError)
    with pytest.raises(sc.CaptureError, match="depends on the values") as known:
        sc.partition(little.Branches(), sc.Domain.box(-1, 1))
    assert known.value.__suppress_context__
    after = [list(handler.filters) for logger in loggers for handler in logger.handlers]
    assert before == after


def test_unexpected_errors_are_short(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: object) -> int:
        raise ZeroDivisionError("a fault")

    monkeypatch.setitem(COMMANDS, "ops", fails)
    code, _, err = run("ops")
    assert code == 1
    assert "unexpected ZeroDivisionError: a fault" in err
    assert "--debug" in err


def test_debug_shows_the_traceback(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", "none.npz", "--debug"]) == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.slow
def test_as_a_module_with_a_closed_pipe() -> None:
    words = [sys.executable, "-m", "splinecam", "ops", "--markdown"]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        errors = process.stderr.read()
    assert (process.returncode, errors) == (0, "")


@pytest.mark.parametrize("thread", ["", "threading.Timer(0.2, print, ['thread']).start()"])
def test_the_end_of_a_process(thread: str) -> None:
    code = f"""if True:
        import atexit, sys, threading
        from splinecam.cli import script
        atexit.register(print, "at exit", end=".")  # which stays in a buffer
        {thread}
        sys.argv = ["splinecam", "completion", "bash"]
        code = script()
        print("taken down")
        sys.exit(code)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("thread\nat exit." if thread else "at exit.")
    assert ("taken down" in done.stdout) == bool(thread)
    assert not done.stderr


def test_options_name_what_there_is() -> None:
    from splinecam.plot import colors, plot

    assert set(COLORS) == set(colors._KINDS)
    assert set(KINDS) == set(_KINDS)
    of_regions = {*inspect.signature(plot).parameters}
    for kind, draw in _KINDS.items():
        parameters = {*inspect.signature(draw).parameters}
        known = parameters | of_regions if "style" in parameters else parameters
        options = {name: name.removeprefix("no_") for name in NOT_FOR["histograms"]}
        unknown = {option for option, name in options.items() if name not in known}
        if kind == "histograms":  # whose axes are others
            unknown |= {"axes"}
        assert set(NOT_FOR.get(kind, ())) == unknown


# -- partition ------------------------------------------------------------------------------------


def test_partition_writes_everything(run: Run, here: Path) -> None:
    code, out, err = run("partition", "little.py:build", *BOX, "--out", "a/b", "--dpi", "40")
    assert code == 0
    names = ["partition.npz", "regions.png", "stats.json", "stats.txt"]
    assert sorted(path.name for path in (here / "a/b").iterdir()) == names
    part = sc.load(here / "a/b/partition.npz")
    found = json.loads((here / "a/b/stats.json").read_text())
    assert found["stats"]["NR"] == len(part)
    assert found["model"] == "little.py:build"
    assert found["validated"] is True
    assert f"{len(part):,}" in (here / "a/b/stats.txt").read_text()
    assert (here / "a/b/regions.png").read_bytes().startswith(b"\x89PNG")
    assert "regions (NR)" in out
    assert "hello" not in out
    assert all(word in err for word in ("Model", "Domain", "Partition", "checks passed", "hello"))


def test_partition_is_that_of_the_library(run: Run, here: Path) -> None:
    words = ("partition", "little:build", "--weights", "weights.pt", "--no-plot", "--no-validate")
    assert run(*words, "--box=0,-1,2,1", "--out", "a", "--arg", "width=8")[0] == 0
    part, known = sc.load("a/partition.npz"), sc.load("saved.npz")
    assert part.domain.corners.tolist() == [[0, -1], [2, -1], [2, 1], [0, 1]]
    inside = torch.tensor([[0.3, 0.2], [0.9, -0.4]])
    a, b = (p.weight[p.locate(inside)] for p in (part, known))
    assert torch.allclose(a, b)
    assert not json.loads(Path("a/stats.json").read_text())["validated"]


def test_one_of_several_results(run: Run, here: Path) -> None:
    words = ("little.py:Heads", *BOX, "--no-plot", "--force", "--quiet", "--out", "out")
    for result, outputs in (("value", 1), ("features", 3), ("-1", 3)):
        assert run("partition", *words, f"--result={result}")[0] == 0
        part = sc.load(here / "out/partition.npz")
        assert part.values.shape[1] == outputs
        assert str(part._chosen_output) == result
    about = json.loads((here / "out/stats.json").read_text())
    assert (about["output"], about["validated"]) == (-1, True)
    code, out, _ = run("check", "little.py:Heads", "--input-shape", "2", "--result", "features")
    assert (code, "output  (3,)" in out) == (0, True)
    full = ("--full", "--model", "little.py:Heads")
    assert run("stats", "out/partition.npz", *full)[0] == 0


@pytest.mark.parametrize("weights", ["weights.npz", "c.pth"])
def test_weights_of_several_kinds(run: Run, weights: str) -> None:
    words = ("partition", "little.py:build", "--weights", weights, *BOX, "--no-plot")
    assert run(*words, "--out", "a")[0] == 0
    assert torch.equal(sc.load("a/partition.npz").weight, sc.load("saved.npz").weight)


def test_a_domain_around_data(run: Run) -> None:
    words = ("partition", "image.pt2", "--fit", "images.npy", "--margin", "0.3", "--no-plot")
    code, _, err = run(*words, "--out", "a")
    assert code == 0, err
    fitted = sc.Domain.fit(np.load("images.npy"), margin=0.3)
    assert sc.load("a/partition.npz").domain == fitted


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "domain",
    [
        ["--through", "two.npz", "--key", "x", "--pick", "0", "2", "4", "--input-shape", "1,6,6"],
        ["--through", "images.npy", "--tight", "--margin", "0"],
        ["--around", "images.pt", "--pick", "3", "--side", "0.5", "--seed", "2"],
        ["--polygon", "images.npy", "--pick", "0", "2", "3"],
    ],
)
def test_domains_of_an_exported_program(run: Run, here: Path, domain: list[str]) -> None:
    code, _, err = run("partition", "image.pt2", *domain, "--out", "a", "--dpi", "30")
    assert code == 0, err
    part = sc.load("a/partition.npz")
    assert part.domain.input_shape == (1, 6, 6)
    assert (part.layers, part.stripped) == (("1", "2"), "softmax")
    x = torch.from_numpy(np.load("two.npz")["x"])[:, None]
    marked = domain[domain.index("--pick") + 1 :][:3] if "--pick" in domain else ["0", "1", "2"]
    first = x[int(marked[0])]
    assert float(part.domain.project(first)[1]) < 1e-5


SLICE = ("--slice", "0,1,2", "35", "--box", "0", "1")
FEATURES = [f"f{i}" for i in range(36)]
PROPERTY = (
    "".join(f"(declare-const X_{i} Real)" for i in range(36))
    + "(declare-const Y_0 Real)(assert (<= Y_0 0))"
    + "".join(f"(assert (and (>= X_{i} 0) (<= X_{i} 1)))" for i in range(36))
)


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "options",
    [
        [*SLICE, "--input-shape", "1,6,6"],
        [*SLICE, "--at", "images.npy", "--pick", "2"],
        [*SLICE[:4], *["0"] * 36, *["1"] * 36, "--input-shape", "1,6,6", "--at", *["0.5"] * 36],
        [*SLICE[:1], "8", "35", *SLICE[3:], "--at", *["0.5"] * 36],
        ["--slice", "8", "-1", "--vnnlib", "box.vnnlib", "--input-shape", "1,6,6"],
        ["--slice", "8", "35", "--vnnlib", "two.vnnlib", "--case", "1"],
        ["--slice", "f8", "f35", *SLICE[3:], "--features", *FEATURES],
        ["--slice", "f8", "0,5,5", *SLICE[3:], "--features", *FEATURES, "--input-shape", "1,6,6"],
    ],
)
def test_slices_of_a_box(run: Run, here: Path, options: list[str]) -> None:
    (here / "box.vnnlib").write_text(PROPERTY)
    (here / "two.vnnlib").write_text(f"{PROPERTY}(assert (or (<= X_8 0.5) (>= X_8 0)))")
    code, _, err = run("partition", "image.pt2", *options, "--out", "a", "--dpi", "30")
    assert code == 0, err
    domain = sc.load("a/partition.npz").domain
    assert domain.input_shape == (1, 6, 6)
    assert domain.corners.tolist() == [[0, 0], [1, 0], [1, 1], [0, 1]]
    assert domain.basis.nonzero().tolist() == [[0, 8], [1, 35]]
    at = torch.from_numpy(np.load("images.npy"))[2] if "images.npy" in options else None
    if at is not None:
        assert float(domain.project(at)[1]) == 0.0


def test_slices_that_are_refused(run: Run, here: Path) -> None:
    (here / "box.vnnlib").write_text(PROPERTY)
    (here / "two.vnnlib").write_text(f"{PROPERTY}(assert (or (<= X_8 0.5) (>= X_8 0.7)))")
    (here / "none.vnnlib").write_text(f"{PROPERTY}(assert (>= X_8 2))")
    for words, message in (
        ("--vnnlib box.vnnlib", "has 36 inputs: say which two of them to show, such as --slice"),
        ("--vnnlib two.vnnlib --slice 0 1", "2 boxes of inputs: choose one with --case 0 to 1"),
        ("--vnnlib two.vnnlib --slice 0 1 --case 2", "choose one with --case 0 to 1"),
        ("--vnnlib none.vnnlib --slice 0 1", "0 boxes of inputs, and all are empty"),
        ("--vnnlib images.npy --slice 0 1", "not a VNN-LIB file"),
        ("--slice 0 1 --box 0 1", "say which shape one input has: --input-shape 5"),
        ("--slice 0 1 --box 0 1 --input-shape 6", "takes inputs of shape (1, 6, 6), but"),
        ("--slice 0 1 --box 0 1 --input-shape 36", "Say --input-shape 1,6,6"),
        ("--slice 0 1 --box 0 1 --at 3 3 3", "The plane misses the box: x[2] is 3 in --at"),
        ("--slice 0 9 --box 0 1 --at 0 0 0", "--slice has 9, but inputs have 3 numbers there"),
        ("--slice 1 1 --box 0 1 --at 0 0 0", "The two axes of --slice are the same"),
        ("--slice a 1 --box 0 1 --at 0 0 0 --features a b", "has 2 names for 3 features: name all"),
        ("--slice a 1 --box 0 1 --features a b", "takes inputs of shape (1, 6, 6), but"),
    ):
        code, _, err = run("partition", "image.pt2", *words.split(), "--out", "a", "--no-plot")
        assert (code, message in err) == (1, True), err


@pytest.mark.slow
def test_pictures_of_several_formats(run: Run, here: Path) -> None:
    words = (
        "partition",
        "little:ready",
        *BOX,
        "--out",
        "a",
        "--format",
        "svg",
        "pdf",
        "--dpi",
        "30",
    )
    assert run(*words, "--color", "slope", "--axes", "ticks", "--size", "3")[0] == 0
    assert (here / "a/regions.pdf").read_bytes().startswith(b"%PDF")
    assert "<svg" in (here / "a/regions.svg").read_text()


def test_quiet(run: Run) -> None:
    words = ("partition", "little:Holder.made", *BOX, "--out", "a", "--no-plot", "--quiet")
    assert run(*words)[::2] == (0, "hello from the user's code\n")


def test_progress_lines_where_there_is_no_terminal(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("splinecam.cli.console._PAUSE", 0.0)
    _, _, err = run("partition", "little:build", *BOX, "--out", "a", "--no-plot")
    assert "1: " in err
    assert err.count(" regions, ") >= 2


def test_limits(run: Run, here: Path) -> None:
    words = ("partition", "little:build", *BOX, "--out", "a")
    code, _, err = run(*words, "--max-regions", "3")
    assert (code, "--max-regions 3" in err) == (1, True)
    assert "Raise --max-regions" in err
    assert not (here / "a").exists()
    assert run(*words, "--no-plot", "--memory", "1GB")[0] == 0


WRONG = [
    # what the model is
    ("w none.pt2", "There is no file none.pt2."),
    ("w none.py:f", "There is no file none.py."),
    ("w little.py", "as in little.py:build. It defines: build"),
    ("w little.py:biuld", "Did you mean build?"),
    ("w nonsense.mod:f", "There is no module 'nonsense.mod'"),
    ("w nonsense", "package.module:factory"),
    ("w little", "as in little:build. It defines: build"),
    ("w little.py:wide", "little.py:wide needs width, depth: say --arg width=... --arg depth=..."),
    ("w little.py:wide --arg width=3", "needs depth"),
    ("w little.py:Typo", "AttributeError: 'Typo' object has no attribute 'missing' (at little.py:"),
    ("w little.py:Leaves", "(at little.py:"),
    ("w little.py:Branches", "depends on the values of its input (at little.py:"),
    ("w little.py:broken", "raised ValueError: no such data"),
    ("w little.py:leaves", "raised SystemExit"),
    ("w little.py:number", "gave int, but a factory must return an nn.Module"),
    ("w little.py:CODE", "has no 'CODE'"),
    ("w little.py:build --arg wide=3", "unexpected keyword argument 'wide'"),
    ("w little.py:ready --arg width=3", "takes no --arg"),
    ("w weights.pt", "--weights weights.pt"),
    ("w evil.pt", "is a pickled checkpoint"),
    ("w weights.npz", "is a file of weights"),
    ("w images.npy", "of an unknown kind"),
    ("w little.py:build --weights narrow.pt", "do not fit Sequential"),
    ("w little.py:build --weights evil.pt", "can run any code"),
    ("w little.py:build --weights images.pt", "holds no state dict"),
    ("w image.pt2 --weights weights.pt", "not for image.pt2"),
    ("w little.py:build --arg act=gelu", "1 (aten.gelu): it is not piecewise linear"),
    ("w little.py:build --arg act=gelu", "splinecam partition --smooth 1e-3 replaces it"),
    ("fixed.pt2 --around images.npy", "torch.zeros(2, 1, 6, 6)"),
    ("few.pt2 --around images.npy", "a batch of 0 to 64"),
    # what the domain is
    ("w image.pt2", "takes inputs of shape (1, 6, 6)"),
    ("w little.py:image", "where (2,) is the domain's input shape"),
    ("w little.py:image", "use --slice, which shows two of them, or --through or --around"),
    ("image.pt2 --through two.npz --key x", "Say --input-shape 1,6,6"),
    ("image.pt2 --through two.npz", "'x' (5, 6, 6), 'y' (5,). Choose one with --key"),
    ("image.pt2 --through two.npz --key z", "holds no 'z'"),
    ("image.pt2 --through nan.npy", "Sample 1 of nan.npy is nan at [0][2][3]"),
    ("image.pt2 --through images.npy --pick 1 2 9", "sample 9 is wanted"),
    ("image.pt2 --polygon bent.npy", "not in one plane"),
    ("image.pt2 --around none.npy", "There is no file none.npy."),
    ("image.pt2 --around little.py", "cannot be read as samples"),
    ("image.pt2 --around evil.pt", "can run any code"),
    ("image.pt2 --around objects.npy", "can run any code"),
    (
        "image.pt2 --around images.npy --input-shape 7,7",
        "divided into samples of input shape (7, 7)",
    ),
    ("image.pt2 --around images.npy --key x", "without a name: leave out --key"),
    ("image.pt2 --around text.npy", "was not written by NumPy"),
    ("little.py:build --polygon line.npy", "degenerate"),
    ("little.py:build --through line.npy", "The three samples (--pick) lie on one line"),
    ("little.py:build --through same.npy", "All 3 points are identical. Give three that"),
    ("little.py:build --through pair.npy", "The first two of the three samples (--pick)"),
    # what the computer has
    ("w little.py:build --device cuda", "--device cuda is not available"),
    # which of several results
    (
        "w little.py:Heads",
        "a dict with the keys 'value' (B, 1) and 'features' (B, 3): choose one with --result value",
    ),
    ("w little.py:Heads --result 2", "there is no output 2: the model returns a dict"),
    ("w little.py:build --result x", "the model returns a tensor (B, 3): leave --result out"),
    # which picture
    ("w little.py:build --output 7 --color output", "there is no --output 7"),
    ("w little.py:build --color output", "say which one, --output 0 to 2"),
    ("w little.py:build --level 0.5", "--level is for models with one"),
]


@pytest.mark.parametrize(("words", "message"), WRONG, ids=[words for words, _ in WRONG])
def test_partition_says_what_is_wrong(run: Run, here: Path, words: str, message: str) -> None:
    first, *rest = words.split()
    call = [rest[0], *BOX, *rest[1:]] if first == "w" else [first, *rest]
    code, out, err = run("partition", *call, "--out", "new")
    assert (code, out) == (1, "")
    assert message in err
    assert "splinecam: error: " in err
    assert "Partition " not in err  # nothing was computed
    assert ".." not in err.replace("...", "")
    assert "W1" not in err  # torch's logs
    assert "def forward" not in err  # and its graphs
    assert not (here / "evil").exists()
    assert not (here / "new").exists()


def test_an_existing_output_is_kept(run: Run, here: Path) -> None:
    (here / "old").mkdir()
    (here / "old/stats.json").write_text("mine")
    words = ("partition", "little.py:build", *BOX, "--out", "old", "--no-plot")
    code, _, err = run(*words)
    assert code == 1
    assert "old/stats.json exists already. Say --force" in err
    assert "Model" not in err  # nothing was computed
    assert (here / "old/stats.json").read_text() == "mine"
    assert run(*words, "--force")[0] == 0
    assert json.loads((here / "old/stats.json").read_text())["stats"]["NR"] > 1


def test_a_certificate_is_written_beside_the_partition(here: Path, run: Run) -> None:
    words = ("partition", "little.py:build", *BOX, "--out", "a", "--no-plot")
    code, _, err = run(*words, "--certificate", "little.cert")
    assert (code, "regions in little.cert" in err) == (0, True)
    with (here / "little.cert").open() as file:
        words_proved = check(file)[1]
    regions = json.loads((here / "a/stats.json").read_text())["stats"]["NR"]
    assert words_proved == f"regions {regions} "


def test_a_file_is_no_folder(run: Run) -> None:
    for words in (["partition", "little.py:build", *BOX, "--out", "little.py/x"], ["demo"]):
        code, _, err = run(*words, *(["--out", "little.py"] * (words == ["demo"])))
        assert code == 1
        assert "is a file" in err


def test_where_nothing_can_be_written(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("tempfile.TemporaryFile", refused)
    code, _, err = run("partition", "little.py:build", *BOX, "--out", "a/b")
    assert code == 1
    assert "Nothing can be written to a/b: the file system is read-only." in err
    assert "Model" not in err
    assert not Path("a").exists()


def test_a_picture_that_fails_leaves_the_partition(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise MemoryError("no room for a picture")

    with monkeypatch.context() as patch:
        patch.setattr("splinecam.cli.commands.draw", fails)
        code, _, err = run("partition", "little.py:build", *BOX, "--out", "a")
    assert code == 1
    assert "splinecam: error: no room for a picture\n" in err
    command = err.rpartition("options: splinecam ")[2]
    assert run(*shlex.split(command), "--dpi", "20")[0] == 0
    assert Path("a/regions.png").exists()


def _rewritten(path: str, name: str, content: bytes) -> None:
    """Put other content into one file of an archive."""
    with zipfile.ZipFile(path) as old:
        files = {x: old.read(x) for x in old.namelist()}
    with zipfile.ZipFile(path, "w") as new:
        for x, data in files.items():
            new.writestr(x, content if x.endswith(name) else data)


def test_programs_are_not_unpickled(run: Run, here: Path) -> None:
    _rewritten("image.pt2", "sample_inputs/model.pt", (here / "evil.pt").read_bytes())
    code, _, err = run("check", "image.pt2")
    assert code == 1
    assert "cannot be read by torch" in err
    assert not (here / "evil").exists()


def test_programs_with_objects_are_refused(run: Run, here: Path) -> None:
    config = {"config": {"it": {"path_name": "opaque_obj_0", "use_pickle": True}}}
    _rewritten("image.pt2", "model_constants_config.json", json.dumps(config).encode())
    code, _, err = run("check", "image.pt2")
    assert code == 1
    assert "holds an object that is no tensor (it)" in err


def test_truncated_programs(run: Run, here: Path) -> None:
    (here / "image.pt2").write_bytes((here / "image.pt2").read_bytes()[:3000])
    code, _, err = run("check", "image.pt2")
    assert (code, "truncated or damaged" in err) == (1, True)


# -- plot and stats -------------------------------------------------------------------------------


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "words",
    [
        ["--color", "area", "--no-edges", "--no-boundary", "--axes", "off"],
        ["--color", "output", "--output", "1", "--axes", "ticks"],
        ["--kind", "surface", "--output", "0"],
        ["--kind", "layers"],
        ["--kind", "layers", "--model", "little.py:build", "--arg", "width=8"],
        ["--points", "corners.npy", "--boundary", "--color", "slope"],
        ["--kind", "histograms", "--size", "4"],
    ],
)
def test_plot(run: Run, here: Path, words: list[str]) -> None:
    code, out, err = run("plot", "saved.npz", *words, "--out", "p/x.png", "--dpi", "30")
    assert code == 0, err
    assert "regions drawn to p/x.png" in out
    assert (here / "p/x.png").read_bytes().startswith(b"\x89PNG")


def test_plot_beside_the_file(run: Run, here: Path) -> None:
    assert run("plot", "saved.npz", "--dpi", "20", "--quiet") == (0, "", "")
    assert (here / "saved.png").exists()
    code, _, err = run("plot", "saved.npz")
    assert (code, "saved.png exists already" in err) == (1, True)
    assert run("plot", "saved.npz", "--dpi", "20", "--force")[0] == 0


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("words", "drawn"),
    [
        ([], False),
        (["--boundary"], True),
        (["--level", "-1e-1"], True),
        (["--level", "0.1", "--no-boundary"], False),
        (["--color", "class"], True),
        (["--kind", "surface", "--no-boundary"], False),
    ],
)
def test_when_the_boundary_of_one_output_is_drawn(
    run: Run, words: list[str], drawn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    def noted(part: sc.Partition, *, level: float = 0.0, **options: Any) -> sc.results.Boundary:
        asked.append(level)
        return part.decision_boundary(level=level, **options)

    def found(
        part: sc.Partition, winners: Any, n: int, kind: Any, level: float
    ) -> sc.results.Boundary:
        return noted(part, level=level)  # from the classes that are coloured

    for module in ("picture", "sheets"):
        monkeypatch.setattr(f"splinecam.plot.{module}.decision_boundary", noted)
    monkeypatch.setattr("splinecam.plot.picture.boundary_of", found)
    assert run("partition", "little.py:single", *BOX, "--out", "a", "--no-plot")[0] == 0
    asked.clear()
    assert run("plot", "a/partition.npz", *words, "--dpi", "20")[0] == 0
    level = float(words[1]) if "--level" in words else 0.0
    assert asked == [level] * drawn


def test_a_boundary_that_is_nowhere(run: Run) -> None:
    words = ("partition", "little.py:single", *BOX, "--out", "a", "--dpi", "20")
    _, _, err = run(*words, "--level", "1e3")
    assert "Boundary   none: the output is " in err
    assert err.rstrip().endswith("never 1000")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("none.npz", "There is no file none.npz."),
        ("cut.npz", "truncated or damaged"),
        ("two.npz", "not a partition saved by SplineCam"),
        ("weights.pt", "not a partition saved by SplineCam"),
        ("saved.npz --color output --output 9", "there is no --output 9"),
        ("saved.npz --kind surface", "say which one, --output 0 to 2"),
        ("saved.npz --level 0.1", "--level is for models with one"),
        ("saved.npz --points line.npy --pick 9", "sample 9 is wanted"),
        ("saved.npz --points two.npz --key y", "divided into samples of input shape (2,)"),
        ("saved.npz --kind layers --model little.py:single", "not the one that was partitioned"),
    ],
)
def test_plot_says_what_is_wrong(run: Run, words: str, message: str) -> None:
    code, out, err = run("plot", *words.split())
    assert (code, out) == (1, "")
    assert message in err


def test_stats(run: Run) -> None:
    part = sc.load("saved.npz")
    code, out, _ = run("stats", "saved.npz")
    assert code == 0
    assert str(part.stats()) in out
    _, out, _ = run("stats", "saved.npz", "--json")
    found = json.loads(out)
    assert found["stats"]["ARE"] == part.stats()["ARE"]
    assert found["domain"]["area"] == 4


def test_stats_of_several(run: Run, here: Path) -> None:
    shutil.copy("saved.npz", "again.npz")
    _, out, _ = run("stats", "saved.npz", "again.npz")
    assert out.splitlines()[0].split() == ["saved.npz", "again.npz"]
    assert [row["file"] for row in json.loads(run("stats", "saved.npz", "again.npz", "--json")[1])]
    assert run("stats", "cut.npz")[0] == 1


def test_stats_with_the_model(run: Run) -> None:
    words = ("stats", "saved.npz", "--json")
    assert "lipschitz_input" not in json.loads(run(*words)[1])["stats"]
    _, out, _ = run(*words, "--full", "--model", "little.py:build")
    assert json.loads(out)["stats"]["lipschitz_input"] > 0


@pytest.mark.parametrize("pandas", [True, False])
def test_table(run: Run, here: Path, pandas: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not pandas:
        monkeypatch.setitem(sys.modules, "pandas", None)
    assert run("stats", "saved.npz", "--table", "t/rows.csv")[0] == 0
    header, *rows = (here / "t/rows.csv").read_text().splitlines()
    part = sc.load("saved.npz")
    assert header.startswith("region,area,vertices,")
    assert len(rows) == len(part)
    first = dict(zip(header.split(","), rows[0].split(","), strict=True))
    assert float(first["area"]) == float(part.areas[0])
    assert first["vertices"] == str(int(part.mesh.counts()[0]))
    code, _, err = run("stats", "saved.npz", "--table", "t/rows.csv")
    assert (code, "exists already" in err) == (1, True)


def test_smooth_functions_are_replaced_within_a_bound(run: Run) -> None:
    words = ("partition", "little.py:build", "--arg", "act=gelu", *BOX, "--no-plot", "--force")
    code, _, err = run(*words, "--smooth", "1e-2", "--out", "out")
    assert (code, "2 layers replaced: gelu" in err) == (0, True)
    about = json.loads(Path("out/stats.json").read_text())
    assert max(about["bound"]) <= 1e-2
    assert [layer["function"] for layer in about["replaced"]] == ["gelu", "gelu"]
    share = ("--refine", "boundary", "--undecided", "0.05")
    assert run(*words, "--smooth", "5%", *share, "--quiet", "--out", "out")[0] == 0
    part = sc.load("out/partition.npz")
    assert part.smoothing is not None
    assert part.smoothing.refined


REFINED = """
import torch
from torch import nn

def build(outputs=3):
    torch.manual_seed(0)
    first, second, last = nn.Linear(2, 24), nn.Linear(24, 24), nn.Linear(24, outputs)
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), last).double()
"""


def test_regions_are_divided_for_the_boundary(run: Run) -> None:
    Path("deep.py").write_text(REFINED)
    words = ("partition", "deep.py:build", *BOX, "--force", "--dpi", "40", "--out", "out")
    assert run(*words)[0] == 0
    whole = json.loads(Path("out/stats.json").read_text())
    with eagerly():
        code, out, err = run(*words, "--refine", "boundary")
    assert code == 0, err
    assert "Regions for the decision boundary" in out
    assert "Statistics of regions need all of them: leave out --refine." in out
    assert Path("out/regions.png").stat().st_size > 1000
    found, part = json.loads(Path("out/stats.json").read_text()), sc.load("out/partition.npz")
    assert found["stats"]["complete_regions"] == int(part.complete.sum()) < len(part)
    assert found["stats"]["boundary_length"] == pytest.approx(whole["stats"]["boundary_length"])
    assert found["made_for"] == "the decision boundary"
    for name, each in whole["classes"].items():
        assert found["classes"][name]["area"] == pytest.approx(each["area"], abs=1e-12)
    code, out, _ = run("stats", "out/partition.npz")
    assert (code, "settled regions" in out, "Classes" in out) == (0, True, True)
    shutil.copy("out/partition.npz", "again.npz")
    code, _, err = run("stats", "out/partition.npz", "again.npz")
    assert (code, "this needs all linear regions" in err) == (1, True)


def test_regions_are_divided_for_levels(run: Run) -> None:
    Path("deep.py").write_text(REFINED)
    words = ("partition", "deep.py:build", *BOX, "--force", "--dpi", "40", "--out", "out")
    with eagerly():
        code, _, err = run(*words, "--refine", "0.22")
        assert (code, "--output 0 to 2" in err) == (1, True)
        assert run(*words, "--refine", "0.22", "--output", "1")[0] == 0
        found = json.loads(Path("out/stats.json").read_text())
        assert found["made_for"] == "level 0.22 of output 1"
        assert found["classes"] == {}
        code, _, err = run(*words, "--arg", "outputs=1", "--refine", "0.1", "0.05")
    assert code == 0, err


# -- check and ops --------------------------------------------------------------------------------


def test_check(run: Run) -> None:
    code, out, _ = run("check", "little.py:build", "--input-shape", "2")
    assert code == 0
    assert "little.py:build is supported." in out
    assert ["3", "aten.relu", "(8,)", "8"] in [line.split() for line in out.splitlines()]
    assert out.split()[-2:] == ["all", "16"]
    _, out, _ = run("check", "image.pt2")
    assert "output  (3,), before a final softmax" in out
    assert "aten.max_pool2d" in out
    assert run("check", "torch.nn:Identity", *BOX)[1].rstrip().endswith("it has one region.")
    code, out, _ = run("check", "little.py:build", *BOX)
    assert re.search(r"On this domain: \d+ regions, [\d.]+ ms, ", out)


def test_check_tells_all_that_stands_in_the_way(run: Run) -> None:
    code, out, _ = run("check", "little.py:build", "--arg", "act=gelu", *BOX)
    assert code == 1
    assert "2 operations stand in the way" in out
    assert out.count("it is not piecewise linear: splinecam partition --smooth 1e-3") == 2
    assert out.rstrip().endswith("error of the outputs has a guaranteed bound.")
    code, _, err = run("check", "little.py:build")
    assert (code, "--input-shape 2" in err) == (1, True)


def test_ops(run: Run) -> None:
    code, out, _ = run("ops")
    assert code == 0
    assert all(word in out for word in ("Affine", "max_pool2d", "Rejected", "gelu"))
    assert max(map(len, out.splitlines())) <= 100
    _, out, _ = run("ops", "--search", "MaxPool2d")
    assert "max_pool2d" in out
    assert "relu" not in out
    assert run("ops", "--markdown")[1].startswith("# Supported operations")
    code, _, err = run("ops", "--search", "zork")
    assert (code, "No operation with 'zork'" in err) == (1, True)


def test_the_commands_of_the_page_are_right() -> None:
    page = (Path(__file__).parents[2] / "docs/cli.md").read_text()
    blocks = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    assert len(lines) > 10
    for line in lines:
        program, *words = shlex.split(line.partition(" > ")[0], comments=True)
        if program == "pip":
            assert words == ["install", "-e", ".[completion]", "-c", "constraints.txt"]
            continue
        assert program == "splinecam"
        assert parse(words).command in {*COMMANDS, "completion"}


def test_the_entry_point_is_the_command() -> None:
    assert cli.main is main
    assert main.__module__ == "splinecam.cli"


# -- reproduce ------------------------------------------------------------------------------------


def test_reproduce_says_how_to_install_the_paper(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "splinecam_paper"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "splinecam_paper", None)
    for words in (["--list"], ["table1", "--quick"]):
        assert main(["reproduce", *words]) == 1
        assert capsys.readouterr().err == (
            "splinecam: error: splinecam reproduce needs splinecam-paper, which is not installed. "
            "Run: pip install -e paper -c constraints.txt, in a clone\n"
        )


# -- files and streams that cannot be written -----------------------------------------------------

FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="a system without /dev/full")


def shell(words: str) -> tuple[int, str]:
    """The exit code of a command in a shell, and what it wrote to stderr."""
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {sys.executable} -m splinecam {words}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return done.returncode, done.stderr


@needs_full
def test_a_full_disk_is_named(run: Run, here: Path) -> None:
    for name, words in {
        "full.png": ("plot", "saved.npz", "--out"),
        "full.svg": ("plot", "saved.npz", "--out"),
        "full.csv": ("stats", "saved.npz", "--table"),
    }.items():
        (here / name).symlink_to(FULL)
        code, _, err = run(*words, name, "--force")
        assert code == 1
        assert f"splinecam: error: {name} cannot be written: the disk is full. Free some" in err
    assert FULL.is_char_device()


@needs_full
@pytest.mark.parametrize("name", ["partition.npz", "stats.json", "stats.txt", "regions.png"])
def test_a_disk_that_fills_up_during_a_partition(run: Run, here: Path, name: str) -> None:
    (here / "out").mkdir()
    (here / "out" / name).symlink_to(FULL)
    code, _, err = run("partition", "little.py:build", *BOX, "--out", "out", "--force")
    assert code == 1
    assert f"out/{name} cannot be written: the disk is full" in err
    assert ("The partition is saved" in err) == (name == "regions.png")


def test_a_folder_that_is_read_only(run: Run, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), "out")

    with monkeypatch.context() as patched:
        patched.setattr("tempfile.TemporaryFile", refuse)
        code, _, err = run("partition", "little.py:build", *BOX, "--out", "out")
    assert code == 1
    assert "Nothing can be written to out: the file system is read-only. Choose another" in err
    assert not (here / "out").exists()
    monkeypatch.setattr(Path, "mkdir", refuse)
    code, _, err = run("stats", "saved.npz", "--table", "new/rows.csv")
    assert code == 1
    assert "the file system is read-only" in err


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="a POSIX shell")
def test_streams_that_cannot_be_written(here: Path) -> None:
    # Whoever reads the results has seen enough: that is no error.
    assert shell("ops | head -n 0") == (0, "")
    closed = "splinecam: error: The results cannot be printed: standard output is closed.\n"
    assert shell("ops --search relu6 >&-") == (1, closed)
    if FULL.exists():
        code, err = shell("ops >/dev/full")
        assert code == 1
        assert err.startswith(
            "splinecam: error: The results cannot be printed to standard output: the disk is full"
        )
        assert err.count("\n") == 1
    # Messages are not results: without stderr, everything is as it was.
    words = "partition little.py:build --box -1 1 --no-plot --no-validate --out"
    assert shell(f"{words} quiet 2>&-")[0] == 0
    assert (here / "quiet/partition.npz").exists()


def test_without_matplotlib(run: Run, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    words = ("partition", "little.py:build", *BOX, "--out", "a")
    code, out, err = run(*words)
    assert (code, out) == (1, "")
    assert "pip install 'splinecam[plot]'" in err
    assert "Model" not in err
    assert "Or say --no-plot: the partition and its statistics need none." in err
    assert not (here / "a").exists()
    assert run(*words, "--no-plot")[0] == 0
    assert sorted(path.name for path in (here / "a").iterdir()) == [
        "partition.npz",
        "stats.json",
        "stats.txt",
    ]
    code, _, err = run("plot", "saved.npz", "--out", "a.png")
    assert (code, "--no-plot" in err) == (1, False)


@pytest.mark.few(1)
def test_areas_and_names_of_classes(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("three.py").write_text(
        "import torch\n\ndef build():\n    net = torch.nn.Linear(2, 3)\n"
        "    net.weight.data = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 0.0]])\n"
        "    net.bias.data = torch.tensor([0.0, 0.0, -9.0])\n    return net\n"
    )
    command = ["partition", "three.py:build", "--box", "-1", "3", "--format", "svg", "--out", "out"]
    names = ["--classes", "right", "left", "none", "--features", "width", "height $a$"]
    assert main([*command, *names]) == 0
    assert re.search(r"Classes +area +share\n +right +12 +75 %\n +left +4 +25 %", shown(capsys))
    found = json.loads(Path("out/stats.json").read_text())
    assert found["classes"] == {
        "right": {"area": 12.0, "share": 0.75},
        "left": {"area": 4.0, "share": 0.25},
    }
    drawn = Path("out/regions.svg").read_text()
    assert all(f"<!-- {word} -->" in drawn for word in ("width", "height $a$", "right", "left"))
    assert main(["stats", "out/partition.npz"]) == 0
    assert "right" in shown(capsys)
    assert sc.load("out/partition.npz").names == ("right", "left", "none")
    words = ["--features", "a", "b", "--classes", "x", "y", "z"]
    assert main(["plot", "out/partition.npz", "--out", "again.svg", *words]) == 0
    assert all(f"<!-- {word} -->" in Path("again.svg").read_text() for word in "abxy")


def shown(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--classes", "a"], "--classes has 1 names, but there are 3 classes"),
        (["--classes", "a", "a", "b"], "--classes has a name twice"),
        (["--features", "a"], "--features has 1 names: give 2, one for each feature"),
    ],
)
def test_names_that_do_not_fit(
    here: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    Path("three.py").write_text("import torch\n\ndef build():\n    return torch.nn.Linear(2, 3)\n")
    assert main(["partition", "three.py:build", "--box", "-1", "3", "--out", "o", *words]) == 1
    assert message in capsys.readouterr().err
    assert not Path("o").exists()


def test_local_complexity_of_samples(run: Run, here: Path) -> None:
    np.save(here / "x.npy", np.random.default_rng(0).normal(size=(6, 2)))
    words = [
        "local",
        "little.py:build",
        "--points",
        "x.npy",
        "--radius",
        "0.5",
        "--directions",
        "2",
    ]
    code, out, _ = run(*words)
    assert code == 0
    assert "switches along diameters, radius 0.5" in out
    assert "Switches by layer" in out
    numbers = json.loads(run(*words, "--exact", "--json", "--pick", "0", "3")[1])
    assert numbers["samples"] == 2
    assert numbers["exact_share"] == 1
    assert numbers["total"]["low"] == numbers["total"]["high"]
