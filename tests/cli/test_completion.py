"""Shells complete commands, options and files."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from splinecam.cli import main
from splinecam.cli.console import SHELLS
from splinecam.cli.parser import COLORS

pytest.importorskip("shtab")


def printed(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files of several kinds, and a folder."""
    for name in ("saved.npz", "net.py", "net.pt2", "notes.txt"):
        (tmp_path / name).touch()
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_is_one_that_its_shell_can_read(
    shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "script"
    script.write_text(printed(shell, capsys))
    assert "splinecam" in script.read_text()
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run([shell, "-n", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


CASES = {
    "p": {"partition", "playground", "plot"},
    "completion ": {"bash", "zsh", "fish"},
    "plot --co": {"--color"},
    "plot --color ": {*COLORS},
    "plot saved.npz --kind s": {"surface"},
    "partition net.py:build --device c": {"cpu", "cuda"},
    "plot ": {"saved.npz", "sub"},
    "partition n": {"net.py", "net.pt2"},
    "partition x --out ": {"sub"},
    "view s": {"saved.npz", "sub"},
    "partition x --weights no": {"notes.txt"},
}


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.usefixtures("folder")
def test_what_bash_completes(capsys: pytest.CaptureFixture[str]) -> None:
    script = printed("bash", capsys)
    for line, wanted in CASES.items():
        words = ["splinecam", *line.split(" ")]
        asked = (
            f"COMP_WORDS=({' '.join(repr(word) for word in words)}); COMP_CWORD={len(words) - 1}\n"
            '_shtab_splinecam; printf "%s\\n" "${COMPREPLY[@]}"\n'
        )
        done = subprocess.run(
            ["bash"], input=script + asked, capture_output=True, text=True, check=True
        )
        assert {*done.stdout.split()} == wanted, line


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
@pytest.mark.usefixtures("folder")
def test_what_fish_completes(capsys: pytest.CaptureFixture[str]) -> None:
    script = printed("fish", capsys)
    for line, wanted in (("plot --color ", {*COLORS}), ("plot ", {"saved.npz", "sub/"})):
        code = f'{script}\ncomplete -C "splinecam {line}"\n'
        done = subprocess.run(["fish"], input=code, capture_output=True, text=True, check=True)
        assert {row.split("\t")[0] for row in done.stdout.splitlines()} == wanted, line


def test_a_shell_that_starts_does_not_wait_for_torch() -> None:
    code = """if True:
        import sys
        from splinecam.cli import main
        assert main(["completion", "bash"]) == 0
        print(*sorted({"torch", "numpy"} & set(sys.modules)), "end")
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1].split() == ["end"]


def test_without_the_package_it_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 1
    assert "pip install 'splinecam[completion]'" in capsys.readouterr().err


def test_other_shells_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["completion", "cmd"])
    assert "choose from" in capsys.readouterr().err
