"""Runs in a folder: written while training goes on, read by others, continued later."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import splinecam as sc
from splinecam.stores.untrusted import seal
from splinecam.training.store import INDEX

BOX = sc.Domain.box(-1, 1)


def small(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 1))


def watched(folder: Path, steps: range, seed: int = 0, **options: Any) -> sc.results.Watch:
    options = {"every": 1, "statistics": ["num_regions"], **options}
    watch = sc.watch(small(seed), BOX, store=folder, **options)
    for step in steps:
        watch.step(step, loss=step + seed / 10)
    return watch


def test_a_run_is_read_as_it_was_recorded(tmp_path: Path):
    folder = tmp_path / "runs" / "a"
    watch = watched(folder, range(3), points={"random": 4})
    run = sc.load(str(folder))
    assert repr(run) == f"Run(3 steps, 0 to 2, in {folder})"
    assert run.side == watch.run.side
    for written, read in zip(watch.run, run, strict=True):
        assert (read.step, read.scalars, read.around) == (
            written.step,
            written.scalars,
            written.around,
        )
        assert torch.equal(read.partition.vertices, written.partition.vertices)
        assert len(read.partition) == read.scalars["num_regions"]
    assert sorted(path.name for path in folder.iterdir()) == [
        ".claims",
        INDEX,
        *(f"step-0000000{k}.npz" for k in range(3)),
    ]


def test_partitions_are_read_when_they_are_asked_for(tmp_path: Path):
    watched(tmp_path, range(3))
    for path in tmp_path.glob("*.npz"):
        path.unlink()
    run = sc.load(tmp_path)
    assert run.steps == [0, 1, 2]
    with pytest.raises(sc.FileError, match="no file"):
        _ = run[0].partition


READER = """
import sys, splinecam as sc
for line in sys.stdin:
    run = sc.load(line.strip())
    print(run.steps, [len(each.partition) for each in run], flush=True)
"""


@pytest.mark.slow
def test_another_process_reads_while_training_goes_on(tmp_path: Path):
    watch = watched(tmp_path, range(0))
    reader = subprocess.Popen(
        [sys.executable, "-c", READER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert reader.stdin is not None
    assert reader.stdout is not None
    try:
        for step in range(3):
            watch.step()
            print(tmp_path, file=reader.stdin, flush=True)
            counts = [len(each.partition) for each in watch.run]
            assert reader.stdout.readline() == f"{list(range(step + 1))} {counts}\n"
    finally:
        reader.communicate()
    assert reader.returncode == 0


def test_a_line_that_is_not_complete_is_ignored(tmp_path: Path):
    watch = watched(tmp_path, range(2))
    index = tmp_path / INDEX
    whole = index.read_bytes()
    last = whole.splitlines(keepends=True)[-1]
    for cut in range(1, len(last)):
        index.write_bytes(whole[:-cut])
        assert sc.load(tmp_path).steps == [0]
    index.write_bytes(whole[: -len(last) // 2])  # training was killed here, and is resumed
    resumed = watched(tmp_path, range(1, 3))
    assert resumed.run.steps == sc.load(tmp_path).steps == [0, 1, 2]
    assert watch.run.steps == [0, 1]
    assert (tmp_path / INDEX).read_bytes().startswith(whole[: -len(last) // 2])


def test_a_resumed_run_replaces_what_came_after_the_checkpoint(tmp_path: Path):
    watched(tmp_path, range(6), seed=0)
    size = (tmp_path / INDEX).stat().st_size
    resumed = watched(tmp_path, range(3, 5), seed=1)
    assert (tmp_path / INDEX).stat().st_size > size
    run = sc.load(tmp_path)
    assert run.steps == resumed.run.steps == [0, 1, 2, 3, 4]
    assert [each.scalars["loss"] for each in run] == [0, 1, 2, 3.1, 4.1]
    new = sc.partition(small(1), BOX, progress=False)
    assert torch.equal(run[3].partition.vertices, new.vertices)
    assert not torch.equal(run[2].partition.vertices, new.vertices)


def test_a_run_is_not_continued_by_accident(tmp_path: Path):
    watched(tmp_path, range(3))
    watch = sc.watch(small(), BOX, store=tmp_path)
    with pytest.raises(ValueError, match=r"already holds a run, up to step 2.*watch\.step\(step"):
        watch.step(loss=1)
    with pytest.raises(ValueError, match="already holds a run"):
        watch.snapshot()
    assert watch.step(100) is not None
    assert watch.step() is None  # from here on they are counted
    assert sc.load(tmp_path).steps == [0, 1, 2, 100]


def test_a_run_goes_on_only_on_the_same_domain(tmp_path: Path):
    watched(tmp_path, range(1), points={"random": 2}, radius=0.1)
    with pytest.raises(sc.FileError, match="another domain"):
        sc.watch(small(), sc.Domain.box(-1, 2), store=tmp_path, points={"random": 2}, radius=0.1)
    with pytest.raises(sc.FileError, match="another size"):
        sc.watch(small(), BOX, store=tmp_path, points={"random": 2}, radius=0.2)
    sc.watch(small(), sc.Domain.box(-1, 1), store=tmp_path, points={"random": 2}, radius=0.1)


def test_every_line_is_plain_json(tmp_path: Path):
    watch = watched(tmp_path, range(1))
    watch.step(loss=math.nan)
    watch.step(loss=torch.tensor(math.inf))

    def refuse(name: str) -> None:
        raise AssertionError(name)

    lines = (tmp_path / INDEX).read_text().splitlines()
    head, *rest = [json.loads(line, parse_constant=refuse) for line in lines]
    assert head["format"] == "splinecam run"
    assert [line["scalars"]["loss"] for line in rest] == [0, None, None]
    assert math.isnan(sc.load(tmp_path)[1].scalars["loss"])


def test_folders_without_a_run_are_rejected(tmp_path: Path):
    with pytest.raises(sc.FileError, match="There is no file"):
        sc.load(tmp_path / "nowhere")
    with pytest.raises(sc.FileError, match="is not there"):
        sc.movie(tmp_path / "nowhere", tmp_path / "x.gif")
    with pytest.raises(sc.FileError, match="no atlas, run or grid in it"):
        sc.load(tmp_path)
    (tmp_path / INDEX).write_text('{"format": "other"}\n')
    with pytest.raises(sc.FileError, match="not the head of a run"):
        sc.load(tmp_path)
    (tmp_path / INDEX).write_text('{"format": "splinecam run", "version": 99}\n')
    with pytest.raises(sc.FileError, match="newer splinecam"):
        sc.load(tmp_path)
    (tmp_path / INDEX).write_text("")
    assert len(sc.load(tmp_path)) == 0
    with pytest.raises(TypeError, match="model= is for partitions"):
        sc.load(tmp_path, model=torch.nn.ReLU())


def test_a_folder_that_cannot_be_made(tmp_path: Path):
    (tmp_path / "file").write_text("")
    watch = sc.watch(small(), BOX, store=tmp_path / "file" / "run")
    with pytest.raises(sc.FileError, match="cannot be made"):
        watch.step()


def test_nothing_is_written_before_the_first_step(tmp_path: Path):
    sc.watch(small(), BOX, store=tmp_path / "run")
    assert not (tmp_path / "run").exists()


# -- damage, and two at once ----------------------------------------------------------------------

BAD: list[Any] = [None, "x", -1, 1 << 60, 0.5, [], {}, "../x.npz", "/x.npz", "a/b", [["a"]], True]


def lines(folder: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (folder / INDEX).read_text().splitlines()]
    return [{k: v for k, v in line.items() if k != "crc32"} for line in found]


def test_every_entry_of_an_index_is_checked(tmp_path: Path):
    """Also with right checksums: a ``FileError``, and only names in the folder."""
    watched(tmp_path, range(2), points={"random": 2}, weights=True)
    good = lines(tmp_path)
    for number, line in [(0, good[0]), (0, good[0]["identity"]), (1, good[1])]:
        for name in line:
            for bad in [*BAD, "missing"]:
                wrong = {k: v for k, v in line.items() if k != name or bad != "missing"}
                wrong |= {name: bad} if bad != "missing" else {}
                wrong = good[0] | {"identity": wrong} if line is good[0]["identity"] else wrong
                written = [*good[:number], wrong, *good[number + 1 :]]
                (tmp_path / INDEX).write_bytes(b"".join(seal(each) + b"\n" for each in written))
                try:
                    run = sc.load(tmp_path)
                except sc.FileError:
                    continue
                for each in run:
                    assert each.source.parent == tmp_path
                    assert each.weights is None or each.weights.parent == tmp_path
                    assert each.source.name in ("x", "step-00000000.npz", "step-00000001.npz")
    for wrong in (b"\n", b"x\n", b"[]\n", b"{}\n", seal({"step": 1}) + b"\n"):
        (tmp_path / INDEX).write_bytes(seal(good[0]) + b"\n" + wrong)
        with pytest.raises(sc.FileError):
            sc.load(tmp_path)
    (tmp_path / INDEX).write_bytes(seal(good[0] | {"version": 1}) + b"\n")
    with pytest.raises(sc.FileError, match=r"version 1 .* reads version 3.*another folder"):
        sc.load(tmp_path)


def test_a_flipped_bit_of_an_index_is_told(tmp_path: Path):
    watched(tmp_path, range(2))
    content = (tmp_path / INDEX).read_bytes()
    for k in range(0, len(content) - 1, 7):
        flipped = bytearray(content)
        flipped[k] ^= 1 << k % 8
        (tmp_path / INDEX).write_bytes(flipped)
        with pytest.raises(sc.FileError):
            sc.load(tmp_path)


@pytest.mark.parametrize("name", [INDEX, "step-00000000.npz", "step-00000000.pt", ".claims"])
def test_a_run_has_no_links(tmp_path: Path, name: str):
    folder = tmp_path / "run"
    watched(folder, range(1), weights=True)
    (folder / name).rename(tmp_path / "elsewhere")
    (folder / name).symlink_to(tmp_path / "elsewhere")
    before = (tmp_path / "elsewhere").read_bytes()
    if name != ".claims":
        with pytest.raises(sc.FileError, match="link"):
            sc.load(folder)
    with pytest.raises(sc.FileError, match="link"):
        watched(folder, range(1), weights=True)
    assert (tmp_path / "elsewhere").read_bytes() == before


def test_two_watches_do_not_mix_their_steps(tmp_path: Path):
    first, second = watched(tmp_path, range(0)), watched(tmp_path, range(0), seed=1)
    first.step(loss=1)
    with pytest.raises(sc.FileError, match=r"Another sc\.watch has recorded"):
        second.step(loss=2)
    first.step(loss=3)
    assert [each.scalars["loss"] for each in sc.load(tmp_path)] == [1, 3]
    third = watched(tmp_path, range(0))  # which continues the run
    third.step(2, loss=4)
    with pytest.warns(RuntimeWarning, match=r"Step 2 was not recorded: Another sc\.watch"):
        first.step(loss=5)
    assert [each.scalars["loss"] for each in sc.load(tmp_path)] == [1, 3, 4]


def test_two_processes_do_not_record_one_run(tmp_path: Path):
    watched(tmp_path, range(1))
    code = (
        "import fcntl, os, sys; number = os.open(sys.argv[1], os.O_RDWR); "
        "fcntl.lockf(number, fcntl.LOCK_EX); print('locked', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(tmp_path / ".claims")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"locked\n"
        with pytest.raises(sc.FileError, match="Another process writes a run"):
            watched(tmp_path, range(1, 2))
        other.kill()
    assert watched(tmp_path, range(1, 2)).run.steps == [0, 1]


def test_a_run_whose_first_line_was_cut_off_begins_again(tmp_path: Path):
    watched(tmp_path, range(1))
    (tmp_path / INDEX).write_bytes((tmp_path / INDEX).read_bytes()[:20])
    assert watched(tmp_path, range(1)).run.steps == sc.load(tmp_path).steps == [0]
