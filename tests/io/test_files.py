"""Files appear when they are complete, errors name them, and a killed process leaves nothing."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import splinecam as sc
from splinecam._util.files import replaced

FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="a system without /dev/full")
needs_flock = pytest.mark.skipif(os.name == "nt", reason="a system without flock")


@pytest.fixture(scope="module")
def part() -> sc.Partition:
    model = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1))
    return sc.partition(model, sc.Domain.box(-1, 1), progress=False)


@pytest.fixture(params=["unnamed", "named"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How a file is called before it is complete; some file systems have named ones only."""
    if request.param == "named":
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    return str(request.param)


def write(path: Path, content: bytes = b"new") -> None:
    with replaced(path) as file:
        file.write(content)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_takes_the_place_of_another(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a.bin"
    write(path, b"old")
    with replaced(path) as file:
        file.write(b"new and longer")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new and longer"
    assert names(tmp_path) == ["a.bin"]
    plain = tmp_path / "plain"
    plain.write_bytes(b"")
    assert path.stat().st_mode == plain.stat().st_mode, "files are as others may read them"


def test_an_error_leaves_the_old_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a.bin"
    write(path, b"old")
    with pytest.raises(ZeroDivisionError), replaced(path) as file:
        file.write(bytes([1 // 0]))
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["a.bin"]


def test_a_link_stays_a_link(tmp_path: Path, kind: str) -> None:
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "a.bin", tmp_path / "link.bin"
    target.write_bytes(b"old")
    link.symlink_to(target)
    write(link)
    assert link.is_symlink()
    assert target.read_bytes() == b"new"


@needs_full
def test_a_full_disk(part: sc.Partition) -> None:
    message = "/dev/full cannot be written: the disk is full. Free some space"
    with pytest.raises(sc.FileError, match=message):
        part.save(FULL)
    assert stat.S_ISCHR(FULL.stat().st_mode), "a device is written to, never replaced"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EROFS, "the file system is read-only"),
        (errno.EACCES, "you have no permission"),
        (errno.EIO, os.strerror(errno.EIO)),
    ],
)
def test_what_the_system_says(
    part: sc.Partition, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, words: str
) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("numpy.savez", refuse)
    path = tmp_path / "a.npz"
    with pytest.raises(sc.FileError, match=f"{path} cannot be written: {words}"):
        part.save(path)
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(sc.FileError, match=f"{path} cannot be read: {words}"):
        sc.load(path)


def test_folders_and_files_in_the_way(part: sc.Partition, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(sc.FileError, match="is a folder; give the name of a file"):
        part.save(tmp_path)
    with pytest.raises(sc.FileError, match=r"There is no folder .*absent; make it first"):
        part.save(tmp_path / "absent" / "a.npz")
    with pytest.raises(sc.FileError, match="file is a file, not a folder"):
        part.save(tmp_path / "file" / "a.npz")
    with pytest.raises(sc.FileError, match=r"a.npz cannot be read: a part of its path is a file"):
        sc.load(tmp_path / "file" / "a.npz")


KILLED = """
import os, signal, sys
import numpy, torch
import splinecam as sc
if sys.argv[2] == "named":
    del os.O_TMPFILE
write = numpy.savez

def savez(file, **arrays):
    write(file, **arrays)
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)

numpy.savez = savez
model = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
sc.partition(model, sc.Domain.box(-1, 1), progress=False).save(sys.argv[1])
"""


@pytest.mark.slow
@needs_flock
@pytest.mark.parametrize("kind", ["unnamed", "named"])
def test_a_killed_save_leaves_nothing_that_stays(
    part: sc.Partition, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "a.npz"
    part.save(path)
    before = path.read_bytes()
    done = subprocess.run([sys.executable, "-c", KILLED, str(path), kind], check=False, timeout=300)
    assert done.returncode == -signal.SIGKILL
    assert path.read_bytes() == before
    if kind == "unnamed":
        assert names(tmp_path) == ["a.npz"]
    else:
        assert len(names(tmp_path)) == 2, "a draft that the next save removes"
        part.save(path)
        assert names(tmp_path) == ["a.npz"]


@needs_flock
def test_a_file_that_another_process_writes_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    path = tmp_path / "a.bin"
    with replaced(path) as slow:
        slow.write(b"slow")
        write(path, b"quick")
        assert path.read_bytes() == b"quick"
    assert path.read_bytes() == b"slow"
    assert names(tmp_path) == ["a.bin"]


def test_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    stale = tmp_path / ".a.bin.0123.part"
    stale.write_bytes(b"half")
    write(tmp_path / "a.bin")
    assert names(tmp_path) == ["a.bin"]
