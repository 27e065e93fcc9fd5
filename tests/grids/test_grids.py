"""Grids of domains and checkpoints: the same numbers as one sweep for each, tables, the store."""

from __future__ import annotations

import contextlib
import copy
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import splinecam as sc
import store_cases
from splinecam.questions.stats import BATCHED
from splinecam.stores.untrusted import seal
from store_cases import domains, network, networks

FEW = domains(6)
OPTIONS: dict[str, Any] = {"progress": False}


@pytest.fixture(scope="module")
def found() -> sc.results.Grid:
    return sc.grid(networks(), FEW, **OPTIONS)


def states() -> dict[int, dict[str, torch.Tensor]]:
    return {epoch: model.state_dict() for epoch, model in networks().items()}


def test_the_numbers_are_those_of_stats(found: sc.results.Grid) -> None:
    assert found.checkpoints == (0, 5, 10)
    assert found.statistics == BATCHED
    for epoch, model in networks().items():
        for group, some in FEW.items():
            for k, domain in enumerate(some):
                stats = sc.partition(model, domain, progress=False).stats()
                stats["density"] = stats["NR"] / stats["domain_area"]
                row = found.checkpoints.index(epoch)
                for name in BATCHED:
                    number = found.values(name, group)[row, k]
                    assert number == pytest.approx(stats[name], rel=1e-9), name


def test_checkpoints_may_be_given_in_many_ways(tmp_path: Path, found: sc.results.Grid) -> None:
    model = network(7)
    before = copy.deepcopy(model.state_dict())
    for epoch, state in states().items():
        torch.save({"state_dict": state}, tmp_path / f"epoch-{epoch}.pt")
        (tmp_path / "safe").mkdir(exist_ok=True)
        save_file(state, tmp_path / "safe" / f"net{epoch:03d}.safetensors")
    ways: list[Any] = [
        states(),
        (pair for pair in states().items()),
        str(tmp_path),
        tmp_path / "safe",
        {epoch: tmp_path / f"epoch-{epoch}.pt" for epoch in (0, 5, 10)},
    ]
    for way in ways:
        again = sc.grid(model.train(), FEW, checkpoints=way, **OPTIONS)
        assert store_cases.same(again, found)
    plain = sc.grid(model, FEW, checkpoints=list(states().values()), **OPTIONS)
    assert plain.checkpoints == (0, 1, 2)
    assert model.training
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())


def test_files_whose_names_differ_in_words_are_called_by_them(tmp_path: Path) -> None:
    for name, state in zip(("best", "last"), states().values(), strict=False):
        torch.save(state, tmp_path / f"{name}.pth")
    found = sc.grid(network(), FEW["train"], checkpoints=tmp_path, statistics="NR", **OPTIONS)
    assert found.checkpoints == ("best", "last")
    assert found.groups == {"": 3}


def test_local_complexity_over_checkpoints(tmp_path: Path) -> None:
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))
    squares = [sc.Domain.around(each, side=1.0) for each in x]
    groups = {"train": squares[:3], "test": squares[3:]}
    states = {}
    for epoch in (0, 7):
        torch.manual_seed(epoch)
        model = torch.nn.Sequential(torch.nn.Linear(6, 20), torch.nn.ReLU(), torch.nn.Linear(20, 2))
        states[epoch] = model.state_dict()
    how: Any = {"checkpoints": states, "statistics": "local_complexity", "store": tmp_path / "a"}
    found = sc.grid(model, groups, **how, **OPTIONS)
    assert found.statistics == ("local_complexity", "local_complexity.1")
    ways = torch.randn(12, 6, generator=torch.Generator().manual_seed(0))
    expected = sc.local_complexity(model, x, 0.5, directions=ways, exact=True, progress=False)
    means = [expected.mean(samples=[k]).value for k in range(5)]
    assert found.values("local_complexity")[1] == pytest.approx(means)
    assert found.values("local_complexity.1").tolist() == found.values("local_complexity").tolist()
    again = sc.grid(model, groups, **how, **OPTIONS)
    assert again.values("local_complexity").tolist() == found.values("local_complexity").tolist()
    assert "switches along a diameter" in {ax.get_ylabel() for ax in found.plot().axes}


def test_wrong_arguments_are_named(tmp_path: Path) -> None:
    model, some = network(), FEW["train"]
    with pytest.raises(TypeError, match=r"checkpoints must be several.*not a single state dict"):
        sc.grid(model, some, checkpoints=model.state_dict())
    with pytest.raises(TypeError, match=r"model\[0\] must be an nn.Module.*checkpoints="):
        sc.grid([model.state_dict()], some)
    with pytest.raises(TypeError, match=r"domains\['a'\]\[0\] must be a splinecam.Domain"):
        sc.grid(model, {"a": [1]})
    with pytest.raises(TypeError, match="domains must be lists of domains"):
        sc.grid(model, some[0])
    with pytest.raises(ValueError, match="comes from no partition"):
        sc.grid(model, some, statistics=("NR", "local_complexity"))
    with pytest.raises(sc.FileError, match=r"has no checkpoints: no file ends in \.pt"):
        sc.grid(model, some, checkpoints=tmp_path)
    with pytest.raises(sc.SplineCamError, match="weights of checkpoint 3 do not fit Sequential"):
        sc.grid(model, some, checkpoints={3: {"0.weight": torch.zeros(1)}})
    with pytest.raises(ValueError, match="two checkpoints 1"):
        sc.grid(model, some, checkpoints=[(1, model.state_dict())] * 2)
    with pytest.raises(TypeError, match="reduce must return numbers by name, but names is list"):
        sc.grid(model, some, reduce=lambda part: {"names": [1]})
    with pytest.raises(KeyError, match="no statistic 'NRR'"):
        sc.grid(model, some, statistics="NRR")


def test_tables_have_a_row_per_domain_and_per_group(found: sc.results.Grid) -> None:
    table, summary = found.table(), found.summary()
    assert list(table.columns) == ["checkpoint", "group", "domain", *BATCHED]
    assert len(table) == 18
    grouped = table.groupby(["checkpoint", "group"], sort=False)
    assert np.allclose(grouped["NR"].mean(), summary["NR_mean"])
    assert np.allclose(grouped["ARE"].std(), summary["ARE_std"])
    assert list(summary["domains"]) == [3] * 6
    assert found.to_markdown(["NR"]).splitlines()[2].startswith("| 0 train  |")
    assert found.to_latex("NR").count(r" $\pm$ ") == 6


def test_tables_without_pandas(found: sc.results.Grid, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert found.table()["domain"][:4] == [0, 1, 2, 0]
    assert len(found.summary()["NR_std"]) == 6


def test_a_grid_is_drawn_over_epochs(found: sc.results.Grid) -> None:
    figure = found.plot(["NR", "ARV", "ARE"], band="points")
    assert figure.axes[0].get_ylabel() == "regions (NR)"
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == [
        "train (3)",
        "test (3)",
    ]
    named = sc.grid({"a": network(), "b": network(1)}, FEW["train"], statistics="NR", **OPTIONS)
    labels = [text.get_text() for text in named.plot().axes[0].get_xticklabels()]
    assert labels == ["a", "b"]
    with pytest.raises(ValueError, match="no statistic 'area'"):
        found.plot("area")


def test_a_store_is_continued_and_opened(tmp_path: Path, found: sc.results.Grid) -> None:
    some = {epoch: model for epoch, model in networks().items() if epoch}
    sc.grid(some, FEW, store=tmp_path / "run", **OPTIONS)
    files = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.npz")}
    again = sc.grid(networks(), FEW, store=tmp_path / "run", **OPTIONS)
    assert store_cases.same(again, found), "a checkpoint was added before the others"
    assert all(path.stat().st_mtime_ns == time for path, time in files.items())
    opened = sc.load(tmp_path / "run")
    assert store_cases.same(opened, found)
    assert opened.groups == found.groups
    with pytest.raises(sc.FileError, match="a model with other weights"):
        sc.grid({5: network(3)}, FEW, store=tmp_path / "run", **OPTIONS)
    with pytest.raises(sc.FileError, match="other statistics"):
        sc.grid(networks(), FEW, store=tmp_path / "run", statistics="NR", **OPTIONS)
    with pytest.raises(sc.FileError, match="other groups of domains"):
        sc.grid(networks(), FEW["train"], store=tmp_path / "run", **OPTIONS)
    with pytest.raises(sc.FileError, match="no atlas, run or grid in it"):
        sc.load(tmp_path)


@pytest.mark.slow
def test_a_grid_that_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    wanted = store_cases.compute(None)
    done = store_cases.interrupt(tmp_path / "run", 3)
    assert done == sorted(done), "nothing is lost"
    again = store_cases.compute(str(tmp_path / "run"))
    assert store_cases.same(again, wanted)
    assert store_cases.kept(tmp_path / "run") == 3 * store_cases.DOMAINS, "nothing is done twice"
    assert not list(tmp_path.rglob("*.part"))


@pytest.mark.slow
def test_two_processes_share_a_grid(tmp_path: Path) -> None:
    processes = [store_cases.start(tmp_path / "run") for _ in range(2)]
    for process, hear in processes:
        with contextlib.suppress(EOFError):
            while hear.recv_bytes():
                pass
        process.join()
    assert [process.exitcode for process, _ in processes] == [0, 0]
    assert store_cases.kept(tmp_path / "run") == 3 * store_cases.DOMAINS, "nothing is done twice"
    opened = sc.load(tmp_path / "run")
    assert store_cases.same(opened, store_cases.compute(None))


@pytest.mark.slow
def test_workers_measure_and_this_process_writes(tmp_path: Path, found: sc.results.Grid) -> None:
    pytest.importorskip("joblib")
    for store in (None, tmp_path / "run"):
        again = sc.grid(networks(), FEW, n_jobs=2, store=store, **OPTIONS)
        assert store_cases.same(again, found)
    assert store_cases.same(sc.load(tmp_path / "run"), found)


def test_the_checkpoints_of_a_watched_run(tmp_path: Path, found: sc.results.Grid) -> None:
    model = network()
    options: Any = {"every": 5, "store": tmp_path / "a", "weights": True}
    watch = sc.watch(model, FEW["train"][0], **options)
    for epoch, state in states().items():
        model.load_state_dict(state)
        watch.step(epoch, loss=1.0)
    for run in (str(tmp_path / "a"), sc.load(tmp_path / "a"), watch.run):
        assert store_cases.same(sc.grid(network(8), FEW, checkpoints=run, **OPTIONS), found)
    plain = sc.watch(model, FEW["train"][0], every=5, store=tmp_path / "b")
    plain.step()
    with pytest.raises(sc.SplineCamError, match=r"Step 0 .* without its weights.*weights=True"):
        sc.grid(model, FEW, checkpoints=tmp_path / "b", **OPTIONS)
    with pytest.raises(ValueError, match="weights=True is for a store"):
        sc.watch(model, FEW["train"][0], weights=True)


def test_every_entry_of_a_grid_is_checked(tmp_path: Path) -> None:
    """Also with right checksums: a ``FileError``, or another grid."""
    few = {"a": FEW["train"][:2]}
    sc.grid({3: network()}, few, store=tmp_path, statistics="NR", **OPTIONS)
    bad: list[Any] = [None, "x", -1, 1 << 60, 0.5, [], {}, [["a", -1]], [["a", 1 << 40]], [1], True]
    (part,) = (path for path in tmp_path.iterdir() if path.is_dir())
    for path in (tmp_path / "manifest.json", part / "manifest.json"):
        content = path.read_bytes()
        good = json.loads(content)
        del good["crc32"]
        for name in (*good, *good["identity"]):
            for value in [*bad, "missing"]:
                inner = name in good["identity"]
                wrong = (good["identity"] if inner else good) | {name: value}
                wrong = {k: v for k, v in wrong.items() if v != "missing"}
                path.write_bytes(seal(good | {"identity": wrong} if inner else wrong))
                with contextlib.suppress(sc.FileError):
                    assert len(sc.load(tmp_path).groups) < 2
        path.write_bytes(content)
    (file,) = part.glob("*.npz")
    for text in ("[3, 4]", '[{"NR": [1]}, {"NR": 2}]', '[{"NR": {}}, {"NR": 2}]'):
        domains = np.zeros((2, 16), np.uint8)
        np.savez(file, domains=domains, results=np.frombuffer(text.encode(), np.uint8))
        with pytest.raises(sc.FileError, match="something else than numbers"):
            sc.load(tmp_path)
    part.rename(tmp_path.with_name("elsewhere"))
    part.symlink_to(tmp_path.with_name("elsewhere"))
    with pytest.raises(sc.FileError, match="link"):
        sc.load(tmp_path)
    with pytest.raises(sc.FileError, match="link"):
        sc.grid({3: network()}, few, store=tmp_path, statistics="NR", **OPTIONS)
