"""The playground is one small file that calls nobody, and its kernel is up to date."""

from __future__ import annotations

import gzip
import os
import re
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest

from splinecam.cli import main
from splinecam.viewer.playground import playground_page

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "viewer" / "kernel" / "build.py"
KILOBYTES = 250
NAMESPACES = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xhtml"}


def test_the_page_is_small_and_names_no_other_place() -> None:
    page = playground_page()
    assert len(gzip.compress(page.encode())) <= KILOBYTES * 1000
    assert set(re.findall(r"(?:https?|wss?)://[\w./-]+", page)) <= NAMESPACES
    assert "innerHTML" not in page
    assert page.count("</script>") == page.count("</style>") == 1


@pytest.mark.skipif(not BUILD.exists(), reason="the sources of the page are not here")
def test_the_kernel_of_the_page_is_built_from_these_sources() -> None:
    built = (BUILD.parent / "SOURCES").read_text().strip()
    assert built == runpy.run_path(str(BUILD))["fingerprint"](), (
        "the kernel has changed: run python viewer/kernel/build.py, then make viewer, and commit"
    )


@pytest.mark.slow
@pytest.mark.skipif(not BUILD.exists(), reason="the sources of the page are not here")
def test_the_kernel_of_the_page_is_reproducible(tmp_path: Path) -> None:
    ziglang = pytest.importorskip("ziglang", reason="ziglang is not installed")
    assert ziglang is not None
    runpy.run_path(str(BUILD))["compile_to"](tmp_path / "kernel.wasm")
    assert (tmp_path / "kernel.wasm").read_bytes() == (BUILD.parent / "kernel.wasm").read_bytes()


def test_the_command_writes_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(
        "splinecam.viewer.surroundings.open_browser", lambda url: not opened.append(url)
    )
    path = tmp_path / "new" / "page.html"
    assert main(["playground", "--out", str(path)]) == 0
    assert path.read_text() == playground_page()
    assert opened == [path.as_uri()]
    assert capsys.readouterr().out == f"Written to {path}\n"
    assert main(["playground", "--out", str(path)]) == 1  # it is there already
    assert main(["playground", "--out", str(path), "--force", "--no-browser"]) == 0
    assert len(opened) == 1


@pytest.mark.slow
def test_the_regions_of_the_page_are_those_of_python(tmp_path: Path) -> None:
    """500 networks, three quarters of them degenerate: counts, and areas to 1e-12."""
    from viewer.page_networks import write

    node, viewer = shutil.which("node"), ROOT / "viewer"
    if node is None or not (viewer / "node_modules").exists():
        pytest.skip("the viewer's tools are not installed")
    write(500, tmp_path / "networks.json")
    subprocess.run([node, "build.mjs", "--tests"], cwd=viewer, check=True)
    environment = os.environ | {"SPLINECAM_PAGE_NETWORKS": str(tmp_path / "networks.json")}
    command = [node, "--test", "out/page_engine.test.mjs"]
    done = subprocess.run(command, cwd=viewer, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
